"""Finding: one thing a study has shown, or could not show, as a value with its sentence.

Each kind is a small type: its fields are every number its sentence tells, its text in `trainlab.words`
names them, and what a report needs to know (where it stands, how much it says) is on it too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from trainlab.analyse.confounds import Confound
from trainlab.spec.settings import Scalar
from trainlab.stats.means import Interval
from trainlab.stats.verdict import Verdict
from trainlab.words import Words
from trainlab.words.numbers import figure, level

Section = Literal[
    "run", "factors", "learning", "probes", "operators", "phases", "scaling", "method"
]
"""The part of a report in which findings of a kind stand; `run`: at the top alone."""

NEVER = 99
"""The rank of a kind that does not answer a question by itself."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What all kinds share."""

    subject: str
    """A metric (`test/accuracy`), a cost (`train/sample_us`), an operator, a layer."""
    cells: tuple[str, ...]
    """The cells it is about; of a comparison, the reference first."""
    n: int
    """Seeds or processes behind it."""
    factor: str | None = None
    levels: tuple[Scalar | None, Scalar | None] = (None, None)
    interval: Interval | None = None
    """95 %, of the difference or ratio."""
    verdict: Verdict | None = None
    """None where nothing was tested: a count, or a figure that does not vary."""
    confounds: tuple[Confound, ...] = ()
    """What else differs between the cells."""

    kind: ClassVar[str]
    text: ClassVar[str]
    """The key of its sentence."""
    section: ClassVar[Section]
    rank: ClassVar[int] = NEVER
    """Among the kinds that can answer a question, the most telling first."""
    test: ClassVar[Literal["learning", "cost"] | None] = None
    """The test that decided it."""

    def tell(self, words: Words) -> str:
        """One or two sentences."""
        return self.fill(words, self.text)

    def fill(self, words: Words, key: str, **more: object) -> str:
        """A text with the fields and phrases of this finding, and what more it needs."""
        return words(key, **{**vars(self), **self.phrases(words), **more})

    def phrases(self, words: Words) -> dict[str, object]:
        """What its sentence needs beside its fields, in the words of the language."""
        first, second = (level(one) for one in self.levels)
        return {
            "cell": self.cells[0] if self.cells else "",
            "all_cells": words.listed(self.cells),
            "change": self.change(words),
            "at": self.at(words),
            "first": first,
            "second": second,
            "step": words.step(self.mode),
            "mode_word": words.mode(self.mode),
            "seeds": num_seeds(self.n, words),
            "within": self.within(words),
        }

    def sentence(self, words: Words) -> str:
        """The same, with what else differed between the cells named at the end."""
        text = self.tell(words)
        if not self.confounds:
            return text
        also = words("also_differ", confounds=confounds_text([self], words))
        return words.sentences(text, also)

    @property
    def numbers(self) -> dict[str, float | int | str | None]:
        """The fields of its own kind, by name: for programs."""
        own = [field.name for field in fields(self) if field.name not in COMMON]
        return {name: getattr(self, name) for name in own}

    @property
    def mode(self) -> str:
        """Of a cost: `train` or `inference`."""
        return self.subject.partition("/")[0]

    @property
    def says_something(self) -> bool:
        """Whether it can stand in the answer; what could not be decided is told by number there."""
        return True

    @property
    def group(self) -> tuple[str, ...]:
        """Findings of one group say much the same: an answer has one of them."""
        return self.kind, self.factor or ""

    @property
    def weight(self) -> float:
        """How much it says, among those of its group."""
        return float(self.mode == "train")

    def change(self, words: Words) -> str:
        """`batch_size 1 → 64`, or the cells' own names."""
        if self.levels == (None, None):
            return arrow(self.cells)
        return f"{self._factor} {arrow(level(one) for one in self.levels)}{self.at(words)}"

    def at(self, words: Words) -> str:
        """` (at lr=0.1)`: what the cells of a grid share, so which of several such findings it is."""
        own = f"{self._factor}="
        shared = self.cells[-1].split(",") if len(self.cells) > 1 else []
        rest = [part for part in shared if part != "base" and not part.startswith(own)]
        return words("at", rest=words.listed(rest)) if rest else ""

    def within(self, words: Words, text: Callable[[float], str] = figure) -> str:
        """The 95 % interval, where there is one."""
        if self.interval is None:
            return ""
        return words("within", low=text(self.interval.low), high=text(self.interval.high))

    @property
    def _factor(self) -> str:
        return (self.factor or "").removeprefix("model.")


COMMON = frozenset(field.name for field in fields(Finding))


def confounds_text(found: Iterable[Finding], words: Words) -> str:
    """What else differed between the cells of some findings, each named once; empty for nothing."""
    known = dict.fromkeys(other for one in found for other in one.confounds)
    named = (
        words(
            "confound",
            what=words.differing(one.what),
            first=words.level(one.first),
            second=words.level(one.second),
        )
        for one in known
    )
    return words("list_semicolon").join(named)


def num_seeds(number: int, words: Words) -> str:
    """`1 seed`, `8 seeds`."""
    return words("one_seed") if number == 1 else words("num_seeds", number=number)


def arrow(parts: Iterable[str]) -> str:
    """`1 → 64`."""
    return " → ".join(parts)
