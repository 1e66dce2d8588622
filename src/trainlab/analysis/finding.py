"""Finding: one thing a study has shown, or could not show, as a value with its sentence.

There is one record. What findings of a kind share (section, rank, how they are worded) is a `Kind`, beside
the function that finds them; the texts in `trainlab.words` refer to the values by name.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, get_args

from trainlab.analysis.evidence import Confound, Evidence, Line
from trainlab.analysis.measurement import Measurement
from trainlab.analysis.metrics import compared_metrics
from trainlab.spec import Cell
from trainlab.spec.settings import Scalar
from trainlab.spec.study import level_text, short_name
from trainlab.stats.means import Interval, mean_of
from trainlab.stats.verdict import Verdict
from trainlab.words import WORDS, Words
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


@dataclass(frozen=True)
class Kind:
    """What findings of one kind share: where they stand, how they are ranked and worded.

    Calling it makes a finding; what is not a field of `Finding` is one of its values.
    """

    name: str
    section: Section
    rank: int = UNRANKED
    """Among the kinds, the most important first."""
    test: Literal["learning", "cost", "failures", "times"] | None = None
    """The test that decided it, where two cells are compared."""
    text: str | None = None
    """The key of its sentence in the words, where it is not the name."""
    statement: Callable[["Finding", Words], str] | None = None
    """Its sentences, where they are more than that text filled in."""
    phrases: Callable[["Finding", Words], dict[str, object]] | None = None
    """Parts of its sentence that are no values, or not as they are."""
    weight: Callable[["Finding"], float] | None = None
    """How much one matters among those of its kind; else training before inference."""
    open_because: Callable[["Finding"], Cause | None] | None = None
    """Why one was not decided, where it is not the number of seeds alone."""
    repeats_row: Callable[["Finding"], bool] = lambda finding: False
    """Whether the table of its factor has a row that says all of it."""

    def __call__(self, **given: Any) -> "Finding":
        shared = {name: given.pop(name) for name in SHARED if name in given}
        return Finding(of_kind=self, values=given, **shared)


SHARED = (*("subject", "cells", "n", "factor", "levels", "interval", "verdict", "confounds"),)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing a study has shown, or could not show. Its values are read as attributes."""

    of_kind: Kind
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
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """All other numbers in its sentence, by the names that its text has for them."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(f"a finding has no {name}") from None

    @property
    def kind(self) -> str:
        return self.of_kind.name

    @property
    def section(self) -> str:
        return self.of_kind.section

    @property
    def rank(self) -> int:
        return self.of_kind.rank

    @property
    def test(self) -> str | None:
        return self.of_kind.test

    @property
    def text(self) -> str:
        return self.of_kind.text or self.of_kind.name

    def statement(self, words: Words) -> str:
        """One or two sentences."""
        return (
            self.of_kind.statement(self, words)
            if self.of_kind.statement
            else self.fill(words, self.text)
        )

    def fill(self, words: Words, key: str, **more: object) -> str:
        """A text, filled in with the fields, values and phrases of this finding and with `more`."""
        return words(key, **{**vars(self), **self.values, **self.phrases(words), **more})

    def phrases(self, words: Words) -> dict[str, object]:
        """The parts of its sentence that are not fields, in the words of the language."""
        first, second = map(words.setting, self.levels)
        subject = words.metric(self.subject)
        shared = {
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
        return shared | (self.of_kind.phrases(self, words) if self.of_kind.phrases else {})

    def sentence(self, words: Words) -> str:
        """The whole sentence; what else differed between the cells is named at the end."""
        text = words.tidy(self.statement(words))
        if not self.confounds:
            return text
        also = words("also_differ", confounds=confounds_text([self], words))
        return words.sentences(text, also)

    @property
    def numbers(self) -> dict[str, Any]:
        """Its values, by name: for programs."""
        return dict(self.values)

    @property
    def mode(self) -> str:
        """Of a cost: `train` or `inference`."""
        return self.subject.partition("/")[0]

    @property
    def open_because(self) -> Cause | None:
        """Why a comparison could not be decided; None where it was."""
        if self.verdict != "cannot tell":
            return None
        if self.of_kind.open_because:
            return self.of_kind.open_because(self)
        return "noise" if self.n > 1 else "single"

    @property
    def repeats_row(self) -> bool:
        """Whether the table of its factor has a row that says all of it."""
        return self.of_kind.repeats_row(self)

    @property
    def weight(self) -> float:
        """How much it matters among those of its kind."""
        return self.of_kind.weight(self) if self.of_kind.weight else float(self.mode == "train")

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


MOST_LINES = 10
"""Cells drawn in one chart of curves; more cannot be told apart."""
MOST_CELLS = 40
"""Rows of one chart by cell; the tables have them all."""


@dataclass(frozen=True)
class RunData:
    """What every section is written from."""

    evidence: Evidence

    findings: tuple[Finding, ...]
    """What the study shows, and at the end what it cannot tell."""

    def findings_in(self, section: Section) -> list[Finding]:
        """The findings that stand in one section."""
        return [finding for finding in self.findings if finding.section == section]

    def profiled(self, mode: str) -> list[Measurement]:
        """The measurements of a mode whose operators were recorded, one per cell."""
        return [m for m in self.evidence.measured_in(mode) if m.operators is not None]

    @cached_property
    def drawn_cells(self) -> tuple[str, ...]:
        """The cells whose curves are drawn, in the study's order: all that learned, or where these are
        too many, the first (the reference) and those with the best and worst final mean."""
        evidence = self.evidence
        cells = [cell.id for cell in evidence.cells if cell.id in evidence.learned]
        metrics = compared_metrics(evidence)
        if len(cells) <= MOST_LINES or not metrics:
            return tuple(cells[:MOST_LINES])

        def final_mean(cell: str) -> float:
            mean = mean_of(list(evidence.values(cell, metrics[0]).values()))
            return -math.inf if mean is None else mean.value

        by_mean = sorted(cells, key=final_mean)
        half = (MOST_LINES - 1) // 2
        drawn = {cells[0], *by_mean[:half], *by_mean[-half:]}
        return tuple(cell for cell in cells if cell in drawn)

    @cached_property
    def step_lines(self) -> dict[str, dict[int, tuple[Line, ...]]]:
        """The curves' lines of kind `step`, by cell and seed, of the cells that are drawn."""
        learned = self.evidence.learned
        return {
            cell: {seed: tuple(trial.read_steps()) for seed, trial in learned[cell].items()}
            for cell in self.drawn_cells
        }


SPEAKING = ("optimizer", "precision", "device", "schedule")
"""Factors whose levels are names that need no factor beside them."""
IMAGES = ("mnist", "fashion-mnist")
"""Data sets whose samples are images."""


def level_name(factor: str, level: Scalar | None, words: Words) -> str:
    """A level of a factor: `batch 64`, `the GPU`, `adam`, `hidden 32`."""
    if level is None:
        return words("name_default", factor=factor_name(factor, words))
    text = level_text(level)
    kind = text.partition(":")[0] if factor == "device" else text
    for key in (f"name_{factor}_{kind}", f"name_{factor}"):
        if key in WORDS:
            return words(key, level=text)
    return text if factor in SPEAKING else f"{factor_name(factor, words)} {text}"


def cell_name(cell: Cell, words: Words) -> str:
    """All levels of a cell, or that it is the base."""
    if not cell.levels:
        return words("name_base")
    return words.listed(level_name(name, level, words) for name, level in cell.levels.items())


def factor_name(factor: str, words: Words) -> str:
    """`learning rate`; settings without a word of their own by their names."""
    return words.named("factor_name", short_name(factor))


def joined(names: Iterable[str], words: Words) -> str:
    """`a, b and c`."""
    *most, last = names
    return words("name_and", first=words("list_names").join(most), last=last) if most else last


def sample_word(evidence: Evidence, words: Words, *, many: bool = False) -> str:
    """What samples of the data set are called."""
    data = next((trial.data.name for trial in evidence.trials if trial.data is not None), None)
    return words(f"sample{'s' * many}_{'image' if data in IMAGES else 'any'}")


def section_of(factor: str | None) -> str:
    """The section of the report about a factor."""
    slug = "".join(c if c.isalnum() and c.isascii() else "-" for c in factor or "")
    return f"factor-{slug}"


def names_of(finding: Finding, cells: Sequence[Cell], words: Words) -> tuple[str, str]:
    """The two settings that a comparison is about."""
    if finding.levels != (None, None):
        first, second = (level_name(finding.factor or "", one, words) for one in finding.levels)
        return first, second
    by_id = {cell.id: cell for cell in cells}
    first, second = (cell_name(by_id[cell], words) for cell in finding.cells)
    return first, second
