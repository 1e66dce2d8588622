"""The tables of words: the languages there are, their texts, and how numbers stand in them."""

import string
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

from trainlab.errors import SpecError
from trainlab.words.numbers import count, figure, mib, p_value, percent, times, whole_percent


@dataclass(frozen=True)
class Language:
    """What a language needs beside its texts."""

    tag: str
    """As HTML names it."""
    sentence_gap: str = " "
    """Between two sentences."""
    is_cjk: bool = False
    """Needs a font of Chinese, Japanese or Korean characters."""


LANGUAGES = {"en": Language("en"), "zh": Language("zh-CN", sentence_gap="", is_cjk=True)}
"""By name, in the order in which words.toml lists the texts of a key."""

TABLES: dict[str, dict[str, list[str]]] = tomllib.loads(
    (files("trainlab.words") / "words.toml").read_text(encoding="utf-8")
)
"""The texts of each part of the report, by key; no key is in two parts."""
WORDS = {key: texts for table in TABLES.values() for key, texts in table.items()}
BUILTIN_KEYS = {texts[0]: key for key, texts in TABLES["builtin"].items()}
"""Of titles and summaries that come with trainlab, by their English text."""

NUMBER_FORMATS: Mapping[str, Callable[[float], str]] = {
    "count": count,
    "figure": figure,
    "figure_2": partial(figure, digits=2),
    "ratio": partial(figure, digits=4),
    "cores": "{:.1f}".format,
    "mib": mib,
    "percent": percent,
    "whole": whole_percent,
    "times": times,
    "times_apart": lambda ratio: times(max(ratio, 1 / ratio)),
    "p": p_value,
}
"""How a number is written, by the format after the colon of its name in a text: `{time:figure}`."""


def check_language(lang: str, place: str = "--lang") -> None:
    """SpecError, listing the languages there are, where `lang`, given at `place`, is none of them."""
    if lang not in LANGUAGES:
        raise SpecError([f"{place}: got {lang!r}, must be one of {', '.join(LANGUAGES)}"])


class TextFormatter(string.Formatter):
    """Fills the names of a text in, numbers by the formats above; of an interval both ends."""

    def __init__(self, between: str) -> None:
        self.between = between

    def format_field(self, value: Any, format_spec: str) -> str:
        if hasattr(value, "high"):  # an interval; one figure where both ends read alike
            low, high = (self.format_field(end, format_spec) for end in (value.low, value.high))
            return low if low == high else self.between.format(low=low, high=high)
        if format_spec == "capital":  # what begins a sentence
            return str(value)[:1].upper() + str(value)[1:]
        number_text = NUMBER_FORMATS.get(format_spec)
        return number_text(value) if number_text else format(value, format_spec)
