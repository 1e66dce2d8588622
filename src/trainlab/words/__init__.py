"""Words: every label, caption, note and sentence, in every language. The texts are in words.toml."""

import string
import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

from trainlab.errors import SpecError
from trainlab.words.numbers import count, figure, figure_2, mib, p_value, percent

LANGUAGES = ("en", "zh")
"""In the order of the texts of a key."""

TABLES: dict[str, dict[str, list[str]]] = tomllib.loads(
    (files("trainlab.words") / "words.toml").read_text(encoding="utf-8")
)
"""Texts by part of the report; a key is in one of them."""
WORDS = {key: texts for table in TABLES.values() for key, texts in table.items()}

READINGS: Mapping[str, Callable[[float], str]] = {
    "count": count,
    "figure": figure,
    "figure_2": figure_2,
    "mib": mib,
    "percent": percent,
    "p": p_value,
}
"""How a number reads, by what stands after the colon of its name in a text."""


def check_language(lang: str) -> None:
    """SpecError, naming those there are, for any other."""
    if lang not in LANGUAGES:
        raise SpecError([f"--lang: got {lang!r}, must be one of {', '.join(LANGUAGES)}"])


class _Filling(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        reading = READINGS.get(format_spec)
        return reading(value) if reading else format(value, format_spec)


class Words:
    """The words of one language."""

    def __init__(self, lang: str) -> None:
        check_language(lang)
        self.lang = lang
        self._index = LANGUAGES.index(lang)

    def __call__(self, key: str, **values: object) -> str:
        """The text of a key with its names filled in."""
        return _Filling().vformat(self.template(key), (), values)

    def template(self, key: str) -> str:
        """The text of a key as it is."""
        return WORDS[key][self._index]

    def knows(self, key: str) -> bool:
        """Whether there is such a text."""
        return key in WORDS

    def sentences(self, *texts: str) -> str:
        """Sentences one after the other, as the language puts them."""
        return (" " if self.lang == "en" else "").join(texts)

    def capital(self, text: str) -> str:
        """As a sentence begins."""
        return text[:1].upper() + text[1:]

    def listed(self, names: Iterable[str]) -> str:
        """`a, b, c`."""
        return self("list_comma").join(names)

    def named(self, kind: str, name: str) -> str:
        """The word for a name of some kind (`phase`, `mode`, `state`, …); one not known stays as it is."""
        key = f"{kind}_{name}"
        return self(key) if key in WORDS else name

    def phase(self, name: str) -> str:
        """A phase of the step."""
        return self.named("phase", name)

    def mode(self, name: str) -> str:
        """Training or inference."""
        return self.named("mode", name)

    def step(self, mode: str) -> str:
        """A training step or an inference step."""
        return self.named("step", mode)

    def memory(self, name: str) -> str:
        """A kind of memory."""
        return self.named("memory", name)

    def differing(self, name: str) -> str:
        """Something that differs between trials or machines; one of our words, where there is one."""
        outer, dot, inner = name.partition(".")
        if f"differs_{name}" in WORDS or not dot or f"differs_{outer}" not in WORDS:
            return self.named("differs", name)
        return self("confound_inner", outer=self(f"differs_{outer}"), inner=inner)

    def level(self, value: object) -> str:
        """A recorded value as text; a name or number stays as it is."""
        if value is None or isinstance(value, bool):
            return self(f"level_{str(value).lower()}")
        return str(value)

    def warning(self, code: str, value: float) -> str:
        """What a measurement says about its own stability; cores, or a share."""
        text = f"{value:.1f}" if code in ("others_busy", "stolen") else f"{100 * value:.0f} %"
        sign = "+" if code == "steps_drift" and value > 0 else ""
        return self(f"warning_{code}", value=sign + text)

    def probe_meaning(self, quantity: str, reducer: str, every: str) -> str:
        """What a value of a probe is, in a sentence; a reducer of the user's own is named."""
        known = f"every_{every}" in WORDS
        period = self(f"every_{every}") if known else self("every_steps", number=every)
        if quantity == "weight":
            period = self("every_end")
        if quantity == "local_grad" and reducer in ("sum", "sq_sum"):
            return self.capital(self("meaning_relu", period=period))
        what, kind = self(f"quantity_{quantity}"), f"reducer_{reducer.partition('(')[0]}"
        if kind in WORDS:
            text = self("meaning", quantity=what, reducer=self(kind), period=period)
        else:
            name = reducer.rpartition(":")[2]
            text = self("meaning_own", quantity=what, name=name, period=period)
        return self.capital(text)

    def note(self, code: str, values: Mapping[str, object]) -> str:
        """A note of a trial; one that a later version wrote is told by its code."""
        if "why" in values:
            values = {**values, "why": self(f"silent_{values['why']}")}
        key = f"note_{code}"
        return self(key, **values) if key in WORDS else f"{code} {dict(values)}"
