"""Numbers as they stand in a sentence."""

import re
from collections.abc import Iterator

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


def kinds_of(base: type) -> Iterator[type]:
    """Every kind of finding there is: the classes that say which kind they are."""
    for kind in base.__subclasses__():
        if "kind" in vars(kind):
            yield kind
        yield from kinds_of(kind)
