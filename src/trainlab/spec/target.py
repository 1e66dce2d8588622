"""Targets: the value of a metric that is good enough, and from which side it is reached."""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, WithJsonSchema

LOWER_IS_BETTER = (
    *("loss", "error", "err", "mae", "mse", "rmse", "mape", "nll", "entropy", "perplexity", "ppl"),
    *("wer", "cer", "eer", "ece", "brier", "fid", "regret", "rmsle", "smape", "wape"),
    *("nrmse", "nmse", "lpips", "crps", "hamming", "chamfer", "hinge", "latency"),
    *("ce", "bce", "kl", "kld", "divergence", "bits", "bpc", "bpd", "dist", "distance", "gap"),
)
"""Words in the name of a metric that is better when lower; all other metrics are better when higher."""

BOUNDS: dict[str, Literal["at most", "at least"]] = {"<=": "at most", ">=": "at least"}
_BOUND_AND_NUMBER = re.compile(r"\s*(<=|>=)\s*(\S+)\s*")


@dataclass(frozen=True)
class Target:
    """What is good enough: accuracy at least, or loss at most, the value."""

    metric: str
    bound: Literal["at least", "at most"]
    value: float

    def is_met_by(self, value: float) -> bool:
        """Never by a value that is not finite."""
        if not math.isfinite(value):
            return False
        return value >= self.value if self.bound == "at least" else value <= self.value


def lower_is_better(metric: str) -> bool:
    """Whether a metric is better when lower, by its name: `test/loss`, `test/top5_error`."""
    words = re.split(r"[^a-z0-9]+", metric.rpartition("/")[2].lower())
    return any(word in LOWER_IS_BETTER or word.endswith(("loss", "error")) for word in words)


def target_of(metric: str, written: float | str) -> Target:
    """A target: `<=` and `>=` give its bound; that of a bare number follows from the metric's name."""
    if isinstance(written, str):
        sign, number = _parts(written)
        return Target(metric, BOUNDS[sign], number)
    return Target(metric, "at most" if lower_is_better(metric) else "at least", written)


def _parts(text: str) -> tuple[str, float]:
    """The sign and the number; ValueError where there are none."""
    match = _BOUND_AND_NUMBER.fullmatch(text)
    if not match or not math.isfinite(float(match[2])):
        raise ValueError(text)
    return match[1], float(match[2])


def _checked(value: object) -> object:
    """One line for a wrong target: pydantic would write one for a number and one for a text."""
    try:
        if isinstance(value, str):
            _parts(value)
            return value
        if isinstance(value, int | float) and type(value) is not bool and math.isfinite(value):
            return value
    except ValueError:
        pass
    raise ValueError(f'got {value!r}, must be a number, or a text as "<= 0.1" or ">= 0.9"')


WrittenTarget = Annotated[
    float | str,
    BeforeValidator(_checked),
    WithJsonSchema(
        {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\s*(<=|>=)\s*\S+\s*$"}]}
    ),
]
"""As people write it: 0.97, or "<= 0.1"."""
