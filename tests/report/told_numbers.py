"""Numbers as they stand in a sentence."""

import importlib
import pkgutil
import re
from collections.abc import Iterator

from trainlab import analysis
from trainlab.analysis.finding import Finding, Kind

NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
FIXED = (
    *("95% CI", "95% 置信区间", "90% CI", "90% 置信区间", "(95%)", "（95%）", "p < 0.001"),
    *("less than 10%", "不足 10%", "more than 10%", "超过 10%"),
)
"""What a sentence may say by itself: the level of the intervals, and what a small gain is."""


def without_fixed(text: str) -> str:
    """The sentence less what it says by itself."""
    for phrase in FIXED:
        text = text.replace(phrase, " ")
    return text


def all_kinds() -> set[str]:
    """Every kind of finding there is, by the modules of the analysis; `""` is that of a bare finding."""
    names = (
        module.name for module in pkgutil.iter_modules(analysis.__path__, "trainlab.analysis.")
    )
    values = (one for name in names for one in vars(importlib.import_module(name)).values())
    flat = (part for one in values for part in (one.values() if isinstance(one, dict) else (one,)))
    return {one.name for one in flat if isinstance(one, Kind)} | set(_derived(Finding)) - {""}


def _derived(base: type) -> Iterator[str]:
    for kind in base.__subclasses__():
        if isinstance(vars(kind).get("kind"), str):
            yield vars(kind)["kind"]
        yield from _derived(kind)
