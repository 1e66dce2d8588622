"""What the profiled processes show: which operator takes most, and how its time grows with the batch."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from trainlab.analysis.batch_series import BatchSeries
from trainlab.analysis.cost.operators import Operator, is_on_device, ranked
from trainlab.analysis.findings.finding import Finding
from trainlab.record.cost import OperatorsRecord
from trainlab.words import Words
from trainlab.words.numbers import bare_operator

DOMINATES = 0.5
"""An operator that takes at least this share dominates; below it, it only comes first."""
FORWARD = ("forward", "loss")
PER_SAMPLE = (*FORWARD, "backward")
"""The phases whose work grows with the batch; that of an optimizer depends on the parameters alone."""


@dataclass(frozen=True, kw_only=True)
class OperatorFinding(Finding):
    """A finding about one operator between two batch sizes."""

    section = "operators"

    of_mode: str
    """`train` or `inference`."""

    @property
    def weight(self) -> float:
        return float(self.of_mode == "train")

    def phrases(self, words: Words) -> dict[str, object]:
        own = {"mode_word": words.mode(self.of_mode), "operator": bare_operator(self.subject)}
        return super().phrases(words) | own


@dataclass(frozen=True, kw_only=True)
class TopOperator(OperatorFinding):
    """The operator that takes most of the step at the largest batch, and its share at the smallest."""

    kind = "top_operator"
    rank = 8

    share_a: float
    share_b: float
    first_a: str
    """The operator that takes most at the smallest batch."""
    first_share_a: float
    share_of: Literal["step", "device"]
    """What shares are of: the time of the profiled step, or that of all kernels on a GPU."""

    def statement(self, words: Words) -> str:
        whole = words("share_of_device" if self.share_of == "device" else "share_of_step")
        return self.fill(words, self._text, whole=whole, other=bare_operator(self.first_a))

    @property
    def _text(self) -> str:
        if self.first_a != self.subject:
            return "first_at_one"
        return "dominates" if min(self.share_a, self.share_b) >= DOMINATES else "first_at_both"


@dataclass(frozen=True, kw_only=True)
class OperatorGrowth(OperatorFinding):
    """How many times longer one call takes from one batch size to the next."""

    kind = "operator_growth"
    text = "growth"

    time: float
    samples: float
    average_us_a: float
    average_us_b: float


def operator_findings(series: BatchSeries) -> Iterator[Finding]:
    """Where two or more of the batch sizes were profiled."""
    by_size = {
        size: measurement.operators
        for size, measurement in series.by_size.items()
        if measurement.operators is not None
    }
    if len(by_size) > 1:
        yield _top(series, by_size)
        yield from _growth(series, by_size)


def _top(series: BatchSeries, by_size: Mapping[int, OperatorsRecord]) -> Finding:
    smallest, largest = min(by_size), max(by_size)
    small, large = (ranked(by_size[size], by_shape=False) for size in (smallest, largest))
    top = large[0]
    return TopOperator(
        subject=top.name,
        factor="batch_size",
        levels=(smallest, largest),
        cells=series.cells,
        of_mode=series.mode,
        share_a=next((op.share for op in small if op.name == top.name), 0.0),
        share_b=top.share,
        first_a=small[0].name,
        first_share_a=small[0].share,
        share_of="device" if is_on_device(by_size[largest]) else "step",
        n=1,
    )


def _growth(series: BatchSeries, by_size: Mapping[int, OperatorsRecord]) -> Iterator[Finding]:
    calls = _compared_calls(by_size)
    for small, large in pairwise(calls):
        a, b = calls[small], calls[large]
        if a.average_us <= 0:
            continue
        yield OperatorGrowth(
            subject=a.name,
            factor="batch_size",
            levels=(small, large),
            cells=series.cells,
            of_mode=series.mode,
            time=b.average_us / a.average_us,
            samples=large / small,
            average_us_a=a.average_us,
            average_us_b=b.average_us,
            n=1,
        )


def _compared_calls(by_size: Mapping[int, OperatorsRecord]) -> dict[int, Operator]:
    """One operator at every size: that which takes most of the forward and backward pass at the largest.

    torch may run the same layer by other operators at another size. Where the calls per step differ,
    it is the operator that the model's code called itself and that takes most; nothing where those
    differ too.
    """
    inner = {size: ranked(r, by_shape=False, phases=PER_SAMPLE) for size, r in by_size.items()}
    if inner[max(inner)] and (same := _at_every_size(inner, inner[max(inner)][0].name)):
        return same
    written = {
        size: [op for op in ranked(r, "total", by_shape=False, phases=FORWARD) if _is_written(op)]
        for size, r in by_size.items()
    }
    largest = written[max(written)]
    return _at_every_size(written, largest[0].name) if largest else {}


def _is_written(operator: Operator) -> bool:
    """Whether no other operator called it, in any of its calls."""
    return math.isclose(operator.outermost_calls_per_step, operator.calls_per_step)


def _at_every_size(by_size: Mapping[int, Sequence[Operator]], name: str) -> dict[int, Operator]:
    """The operator at every size; empty unless it is called equally often at all of them."""
    found = {size: op for size, ops in by_size.items() for op in ops if op.name == name}
    calls = [op.calls_per_step for op in found.values()]
    is_same = len(found) == len(by_size) and math.isclose(min(calls), max(calls))
    return found if is_same else {}
