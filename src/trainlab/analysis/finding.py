"""Finding: one thing a study has shown, or could not show, as a value with its sentence.

Each kind is a small class. Its fields are all the numbers in its sentence; its text in `trainlab.words`
refers to them by name. What a report needs (section, rank, weight) is on the class too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar, Literal, get_args

from trainlab.analysis.confounds import Confound
from trainlab.spec.cell import short_name
from trainlab.spec.settings import Scalar
from trainlab.stats.means import Interval
from trainlab.stats.verdict import Verdict
from trainlab.words import Words
from trainlab.words.numbers import figure, metric_difference

Section = Literal[
    "run",
    "script",
    "factors",
    "learning",
    "classes",
    "probes",
    "operators",
    "phases",
    "scaling",
    "parallel",
    "method",
]
"""The section of a report that shows findings of a kind; `run`: only the top of the report."""

Cause = Literal["noise", "single", "diverged", "rates", "failed"]
"""Why a comparison stays open: noise, one seed or process, no two seeds that did not diverge, unequal rates
of divergence, trials that failed or did not run."""
CAUSES: tuple[Cause, ...] = get_args(Cause)
HOPELESS: frozenset[Cause] = frozenset({"diverged", "rates", "failed"})
"""Causes for which no number of further seeds can be named."""

UNRANKED = 99
"""The rank of a kind that comes after all others."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The fields and behaviour that all kinds share."""

    subject: str
    """A metric (`test/accuracy`), a cost (`train/sample_us`), an operator, a layer."""
    cells: tuple[str, ...]
    """The cells it is about; of a comparison, the reference first."""
    n: int
    """Seeds or processes behind it."""
    factor: str | None = None
    levels: tuple[Scalar | None, Scalar | None] = (None, None)
    interval: Interval | None = None
    """Of the difference or ratio: of 95%, of 90% beside the verdict "equivalent"."""
    verdict: Verdict | None = None
    """None where nothing was tested: a count, or a figure that does not vary."""
    confounds: tuple[Confound, ...] = ()
    """What else differs between the cells."""

    kind: ClassVar[str]
    text: ClassVar[str]
    """The key of its sentence in the words."""
    section: ClassVar[Section]
    rank: ClassVar[int] = UNRANKED
    """Among the kinds, the most important first."""
    test: ClassVar[Literal["learning", "cost", "failures", "times"] | None] = None
    """The test that decided it, where two cells are compared."""

    def statement(self, words: Words) -> str:
        """One or two sentences."""
        return self.fill(words, self.text)

    def fill(self, words: Words, key: str, **more: object) -> str:
        """A text, filled in with the fields and phrases of this finding and with `more`."""
        return words(key, **{**vars(self), **self.phrases(words), **more})

    def phrases(self, words: Words) -> dict[str, object]:
        """The parts of its sentence that are not fields, in the words of the language."""
        first, second = map(words.setting, self.levels)
        subject = words.metric(self.subject)
        return {
            "subject": subject,
            "capital_subject": words.capital(subject),
            "cell": self.cells[0] if self.cells else "",
            "all_cells": words.listed(self.cells),
            "change": self.change_text(words),
            "at": self.shared_text(words),
            "first": first,
            "second": second,
            "step": words.step(self.mode),
            "mode_word": words.mode(self.mode),
            "seeds": num_seeds(self.n, words),
            "within": self.interval_text(words),
        }

    def sentence(self, words: Words) -> str:
        """The whole sentence; what else differed between the cells is named at the end."""
        text = words.tidy(self.statement(words))
        if not self.confounds:
            return text
        also = words("also_differ", confounds=confounds_text([self], words))
        return words.sentences(text, also)

    @property
    def numbers(self) -> dict[str, float | int | str | None]:
        """The fields of its own kind, by name: for programs."""
        names = (field.name for field in fields(self))
        return {name: getattr(self, name) for name in names if name not in SHARED_FIELDS}

    @property
    def mode(self) -> str:
        """Of a cost: `train` or `inference`."""
        return self.subject.partition("/")[0]

    @property
    def says_something(self) -> bool:
        """Whether it can stand in the answer; findings that could not be decided are only counted there."""
        return self.verdict != "cannot tell"

    @property
    def open_because(self) -> Cause | None:
        """Why a comparison could not be decided; None where it was."""
        if self.verdict != "cannot tell":
            return None
        return "noise" if self.n > 1 else "single"

    @property
    def repeats_row(self) -> bool:
        """Whether the table of its factor has a row that says all of it."""
        return False

    @property
    def weight(self) -> float:
        """How much it matters among those of its kind."""
        return float(self.mode == "train")

    def change_text(self, words: Words) -> str:
        """`batch_size 1 → 64`, or the cells' own names."""
        if self.levels == (None, None):
            return arrow(self.cells)
        return f"{self._factor} {arrow(map(words.setting, self.levels))}{self.shared_text(words)}"

    def shared_text(self, words: Words) -> str:
        """` (at lr=0.1)`: the levels that the cells of a grid share; tells similar findings apart."""
        own = tuple(f"{short_name(name)}=" for name in (self.factor or "").split(","))
        levels = self.cells[-1].split(",") if len(self.cells) > 1 else []
        shared = [text for text in levels if text != "base" and not text.startswith(own)]
        return words("at", rest=words.listed(shared)) if shared else ""

    def difference_interval(self, words: Words) -> str:
        """The interval of a difference of the metric it is about, both ends to the same place."""
        if self.interval is None:
            return ""
        widest = max(abs(self.interval.low), abs(self.interval.high))
        points = words("points")
        text = partial(metric_difference, self.subject, points=points, beside=widest)
        return self.interval_text(words, text)

    def interval_text(
        self,
        words: Words,
        text: Callable[[float], str] = figure,
        interval: Interval | None = None,
    ) -> str:
        """The interval, where there is one: of 95%, or of 90% where that decided; `interval` stands for
        it in another unit."""
        shown = interval or self.interval
        if shown is None:
            return ""
        key = "within_90" if self.verdict == "equivalent" else "within"
        return words(key, low=text(shown.low), high=text(shown.high))

    def difference_text(self, words: Words, value: float | None) -> str:
        """A difference of the metric it is about: `+0.41 points`, `+0.0123`."""
        return metric_difference(self.subject, value or 0.0, words("points"))

    @property
    def _factor(self) -> str:
        return short_name(self.factor or "")


SHARED_FIELDS = frozenset(field.name for field in fields(Finding))


def by_importance(findings: Iterable[Finding]) -> list[Finding]:
    """What was decided before what was not; then by kind, the largest first."""
    return sorted(findings, key=lambda one: (one.verdict == "cannot tell", one.rank, -one.weight))


def confounds_text(findings: Iterable[Finding], words: Words) -> str:
    """What else differed between the cells of some findings, each named once; empty for nothing."""
    texts = (
        words(
            "confound",
            what=words.differing(confound.what),
            first=words.level(confound.first),
            second=words.level(confound.second),
        )
        for confound in dict.fromkeys(other for finding in findings for other in finding.confounds)
    )
    return words("list_semicolon").join(texts)


def num_seeds(number: int, words: Words) -> str:
    """`1 seed`, `8 seeds`."""
    return words.counted("one_seed", "num_seeds", number)


def arrow(parts: Iterable[str]) -> str:
    """`1 → 64`."""
    return " → ".join(parts)
