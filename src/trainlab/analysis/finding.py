"""Finding: one thing a study has shown, or could not show, as a value with its sentence.

There is one record. What findings of a kind share (section, rank, how they are worded) is a `Kind`, beside
the function that finds them; the texts in `trainlab.words` refer to the values by name.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from trainlab.analysis.document import figure_id
from trainlab.analysis.evidence import Confound, Evidence, Line, TrialRecords
from trainlab.analysis.measurement import Measurement
from trainlab.analysis.metrics import compared_metrics
from trainlab.spec import Cell
from trainlab.spec.settings import Scalar
from trainlab.spec.study import BASE, level_text, short_name
from trainlab.stats.means import Interval, mean_of
from trainlab.stats.verdict import Verdict
from trainlab.words import WORDS, Words
from trainlab.words.numbers import figure, metric_difference

Section = Literal[
    "run",
    "script",
    "search",
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


@dataclass(frozen=True)
class Kind:
    """What findings of a kind share. Calling it makes one; what is no field is one of its numbers."""

    name: str
    section: Section
    rank: int = 99
    """Among the kinds, the most important first."""
    test: Literal["learning", "cost", "failures", "times"] | None = None
    """The test that decided it, where two cells are compared."""
    text: str = ""
    """The key of its sentence in the words, where it is not the name."""
    statement: Callable[["Finding", Words], str] | None = None
    """Its sentences, where they are more than that text filled in."""
    phrases: Callable[["Finding", Words], dict[str, object]] | None = None
    """Parts of its sentence that are no numbers, or not as they are."""
    brief: Callable[["Finding"], str | None] = lambda found: None
    """The key of a short form of it for the answer; None where it is not worth telling there."""
    weight: Callable[["Finding"], float] | None = None
    """How much one matters among those of its kind; else training before inference."""
    open_because: Callable[["Finding"], Cause] = lambda one: "noise" if one.n > 1 else "single"
    """Why one was not decided."""
    repeats_row: Callable[["Finding"], bool] = lambda found: False
    """Whether the table of its factor has a row that says all of it."""

    def __call__(self, **given: Any) -> "Finding":
        shared = {name: given.pop(name) for name in SHARED if name in given}
        return Finding(of_kind=self, numbers=given, **shared)


SHARED = ("subject", "cells", "n", "factor", "levels", "interval", "verdict", "confounds")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing a study has shown, or could not. Its numbers, and what its kind says, are attributes."""

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
    numbers: dict[str, Any] = field(default_factory=dict, hash=False)
    """All else in its sentence, by the names that its text has for them."""

    def __getattr__(self, name: str) -> Any:
        # Neither is there yet while a finding is unpickled or copied.
        numbers = self.__dict__.get("numbers", {})
        return numbers[name] if name in numbers else getattr(self.__dict__.get("of_kind"), name)

    def __repr__(self) -> str:
        return f"<Finding {self.kind}: {self.sentence(Words('en'))}>"

    @property
    def kind(self) -> str:
        """The name of its kind."""
        return self.of_kind.name

    @property
    def row(self) -> str:
        """The id of the row of a table that shows it."""
        return figure_id("row", "/".join((self.kind, self.subject, *self.cells)))

    @property
    def mode(self) -> str:
        """Of a cost: `train` or `inference`."""
        return self.subject.partition("/")[0]

    @property
    def open_because(self) -> Cause | None:
        """Why a comparison could not be decided; None where it was."""
        return self.of_kind.open_because(self) if self.verdict == "cannot tell" else None

    @property
    def weight(self) -> float:
        """How much it matters among those of its kind."""
        return self.of_kind.weight(self) if self.of_kind.weight else float(self.mode == "train")

    def sentence(self, words: Words) -> str:
        """One sentence or more; what else differed between the cells is named at the end."""
        statement, key = self.of_kind.statement, self.of_kind.text or self.kind
        text = statement(self, words) if statement else self.fill(words, key)
        confounds = confounds_text([self], words)
        also = words("also_differ", confounds=confounds) if confounds else ""
        return words.sentences(words.tidy(text), also)

    def fill(self, words: Words, key: str, **more: object) -> str:
        """A text, filled in with the fields, numbers and phrases of this finding and with `more`."""
        return words(key, **{**vars(self), **self.numbers, **self.phrases(words), **more})

    def phrases(self, words: Words) -> dict[str, object]:
        """The parts of its sentence that are not fields, in the words of the language."""
        first, second = self.levels
        shared = {
            "subject": words.metric(self.subject),
            "cell": self.cells[0] if self.cells else "",
            "all_cells": words.listed(self.cells),
            "change": self.change_text(words),
            "at": self.shared_text(words),
            "first": words.setting(first),
            "second": words.setting(second),
            "first_level": level_name(self.factor or "", first, words),
            "second_level": level_name(self.factor or "", second, words),
            "step": words.step(self.mode),
            "mode_word": words.mode(self.mode),
            "seeds": num_seeds(self.n, words),
            "within": self.interval_text(words),
            "why": "",
            "on": "",
        }
        return shared | (self.of_kind.phrases(self, words) if self.of_kind.phrases else {})

    def change_text(self, words: Words) -> str:
        """`batch_size 1 → 64`, or the cells' own names."""
        if self.levels == (None, None):
            return arrow(self.cells)
        name = short_name(self.factor or "")
        return f"{name} {arrow(map(words.setting, self.levels))}{self.shared_text(words)}"

    def shared_text(self, words: Words) -> str:
        """` (at lr=0.1)`: the levels that the cells of a grid share; tells similar findings apart."""
        shared = shared_levels(self.cells) if len(self.cells) > 1 else []
        return words("at", rest=words.listed(shared)) if shared else ""

    def interval_text(
        self,
        words: Words,
        text: Callable[[float], str] = figure,
        interval: Interval | None = None,
    ) -> str:
        """The interval, of 95% or of 90% where that decided; `interval` stands for it in another unit."""
        shown = interval or self.interval
        if shown is None:
            return ""
        key = "within_90" if self.verdict == "equivalent" else "within"
        return words(key, low=text(shown.low), high=text(shown.high))

    def difference_text(self, words: Words, value: float | None, beside: float = 0.0) -> str:
        """A difference of the metric it is about: `+0.41 points`, `+0.0123`."""
        return metric_difference(self.subject, value or 0.0, words("points"), beside)


def by_importance(findings: Iterable[Finding]) -> list[Finding]:
    """What was decided before what was not; then by kind, the largest first."""
    return sorted(findings, key=lambda one: (one.verdict == "cannot tell", one.rank, -one.weight))


def confounds_text(findings: Iterable[Finding], words: Words) -> str:
    """What else differed between the cells of some findings, each named once; empty for nothing."""
    differing = dict.fromkeys(other for finding in findings for other in finding.confounds)
    return words("list_semicolon").join(
        words(
            "confound",
            what=words.differing(one.what),
            first=words.level(one.first),
            second=words.level(one.second),
        )
        for one in differing
    )


def num_seeds(number: int, words: Words) -> str:
    """`1 seed`, `8 seeds`."""
    return words.counted("one_seed", "num_seeds", number)


def shared_levels(cells: Sequence[str]) -> list[str]:
    """The levels, as `lr=0.1`, that all of the cells have."""
    first, *others = (cell.split(",") for cell in cells)
    return [text for text in first if text != BASE and all(text in one for one in others)]


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
    def _trained(self) -> dict[str, dict[int, TrialRecords]]:
        """Learn trials that have ended or are under way, by cell and seed."""
        trained = {cell: {**by_seed} for cell, by_seed in self.evidence.learned.items()}
        for one in self.evidence.begun.values():
            trained.setdefault(one.trial.cell, {})[one.trial.seed] = one
        return trained

    @cached_property
    def drawn(self) -> dict[str, dict[int, TrialRecords]]:
        """Those of them whose curves are drawn."""
        return {cell: self._trained[cell] for cell in self.drawn_cells}

    @cached_property
    def drawn_cells(self) -> tuple[str, ...]:
        """The cells that are drawn: all, or the reference and those that ended highest and lowest."""
        cells = [cell.id for cell in self.evidence.cells if cell.id in self._trained]
        metrics = compared_metrics(self.evidence)
        if len(cells) <= MOST_LINES or not metrics:
            return tuple(cells[:MOST_LINES])

        def mean(cell: str) -> float:
            over = mean_of([*self.evidence.values(cell, metrics[0]).values()])
            return -math.inf if over is None else over.value

        by_mean, half = sorted(cells, key=mean), (MOST_LINES - 1) // 2
        drawn = {cells[0], *by_mean[:half], *by_mean[-half:]}
        return tuple(cell for cell in cells if cell in drawn)

    @cached_property
    def step_lines(self) -> dict[str, dict[int, tuple[Line, ...]]]:
        """The curves' lines of kind `step`, by cell and seed, of the cells that are drawn."""
        return {
            cell: {
                seed: tuple(line for line in one.files.curve() if line["kind"] == "step")
                for seed, one in by_seed.items()
            }
            for cell, by_seed in self.drawn.items()
        }


SPEAKING = ("optimizer", "precision", "device", "schedule")
"""Factors whose levels are names that need no factor beside them."""


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
    names = [level_name(name, level, words) for name, level in cell.levels.items()]
    return words.listed(names) or words("name_base")


def factor_name(factor: str, words: Words) -> str:
    """`learning rate`; settings without a word of their own by their names."""
    return words.named("factor_name", short_name(factor))


def joined(names: Iterable[str], words: Words) -> str:
    """`a, b and c`."""
    *most, last = [*names] or [""]
    return words("name_and", first=words("list_names").join(most), last=last) if most else last


def section_of(factor: str | None) -> str:
    """The section of the report about a factor."""
    slug = "".join(c if c.isalnum() and c.isascii() else "-" for c in factor or "")
    return f"factor-{slug}"
