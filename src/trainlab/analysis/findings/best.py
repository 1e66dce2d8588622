"""The best setting, and those that cannot be told from it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from trainlab.analysis.contrast import with_like_seeds
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding
from trainlab.analysis.findings.effects import Effect
from trainlab.analysis.metric_table import MetricTable, never_diverged
from trainlab.stats.contrasts import (
    LEVEL,
    Floats,
    all_pairs,
    complete,
    critical_of,
    estimate,
    pair_rows,
)
from trainlab.stats.verdict import are_identical
from trainlab.words import Words
from trainlab.words.numbers import metric_value

MOST_NAMED = 6
MANY_CELLS = 16
"""With more, all pairs are too many to simulate."""


@dataclass(frozen=True, kw_only=True)
class BestCells(Finding):
    """The best cell of a metric, and those that cannot be told from it."""

    kind = "best"
    section = "learning"
    rank = 8

    mean: float
    num_cells: int
    num_identical: int
    """Others that gave the same as the best in every seed; they follow it in `cells`."""
    num_tied: int
    """Others that cannot be told from the best; they come last in `cells`."""
    num_worse: int
    """Others that are worse than the best beyond noise."""
    num_diverging: int
    """Cells left out because seeds of theirs diverged, or none ended."""

    def statement(self, words: Words) -> str:
        num_first = 1 + self.num_identical
        mean = metric_value(self.subject, self.mean)
        first = self.cells[0]
        if self.num_identical:
            first = words("best_equal", listed=_named(self.cells[:num_first], words))
        others = _named(self.cells[num_first:], words)
        text = self.fill(words, self._key, mean_text=mean, others=others, cell=first)
        worse = [self.fill(words, self._worse_key)] if self.num_tied and self.num_worse else []
        left_out = [self.fill(words, "best_left_out")] if self.num_diverging else []
        return words.sentences(text, *worse, *left_out)

    @property
    def _key(self) -> str:
        if self.num_identical + 1 == self.num_cells:
            return "best_identical"
        if not self.num_worse:
            return "best_unknown" if self.num_tied > 1 else "best_unknown_of_two"
        if self.num_tied:
            return "best_tied"
        return "best_alone" if self.num_worse > 1 else "best_of_two"

    @property
    def _worse_key(self) -> str:
        return "best_others_worse" if self.num_worse > 1 else "best_other_worse"

    @property
    def says_something(self) -> bool:
        return self.num_worse > 0 or self.verdict == "identical"


def _named(cells: Sequence[str], words: Words) -> str:
    """The first few by name, and how many more."""
    named = words.listed(cells[:MOST_NAMED])
    if len(cells) <= MOST_NAMED:
        return named
    return words("and_others", listed=named, number=len(cells) - MOST_NAMED)


def best_findings(
    evidence: Evidence, every: MetricTable, effects: Sequence[Effect]
) -> Iterator[Finding]:
    """Of the cells none of whose seeds diverged, all compared with each other as one family. What
    the effects on the metric call different is not called the same here."""
    table = every.of_rows(never_diverged(evidence, every))
    if len(table.cells) < 2:
        return
    cells = [cell.id for cell in table.cells]
    num_trained = sum(one.id in evidence.learned for one in with_like_seeds(evidence.cells))
    sign = -1.0 if evidence.study.is_better_lower(table.metric) else 1.0
    lead = sign * _leads(table)
    best = int(np.argmax(lead))
    others = [row for row in range(len(cells)) if row != best]
    known = _worse_and_better(effects, sign)
    worse = {
        other
        for other, is_worse in zip(others, _worse_than(table, best, others, sign), strict=True)
        if (is_worse or (cells[other], cells[best]) in known)
        and (cells[best], cells[other]) not in known
    }
    same = {other for other in others if are_identical(table.values[[best, other]])}
    tied = [int(row) for row in np.argsort(-lead) if row not in {best, *worse, *same}]
    yield BestCells(
        subject=table.metric,
        cells=tuple(cells[row] for row in (*sorted({best, *same}), *tied)),
        mean=float(table.means[best]),
        num_cells=len(cells),
        num_identical=len(same),
        num_tied=len(tied),
        num_worse=len(worse - same),
        num_diverging=num_trained - len(cells),
        n=int(np.isfinite(table.values[best]).sum()),
        verdict="identical" if len(same) == len(others) else None,
    )


def _worse_and_better(effects: Sequence[Effect], sign: float) -> set[tuple[str, ...]]:
    """The cells of every effect that is called different, the worse first."""
    return {
        effect.cells if sign * (effect.difference or 0.0) > 0 else effect.cells[::-1]
        for effect in effects
        if effect.verdict == "different"
    }


def _leads(table: MetricTable) -> Floats:
    """By how much each cell exceeds the others on average, seed by seed: seeds that a cell lacks are no
    advantage to it."""
    rows = all_pairs(len(table.cells))
    difference = estimate(table.values, rows).value
    counted = np.isfinite(difference)
    total = np.where(counted, difference, 0.0) @ rows
    count = counted.astype(float) @ np.abs(rows)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), -np.inf))


def _worse_than(table: MetricTable, best: int, others: Sequence[int], sign: float) -> list[bool]:
    """Which of the others are worse than the best, all pairs of cells being one family."""
    num_cells, num_seeds = table.values.shape
    rows = pair_rows(((other, best) for other in others), num_cells)
    estimates = estimate(table.values, rows, table.resolution)
    if num_cells <= MANY_CELLS:
        limit = table.compared(all_pairs(num_cells)).critical.two_sided
    else:
        # Of so many pairs a simulation would take long: that of fewer, raised as Bonferroni's bound is.
        some = all_pairs(MANY_CELLS)
        limit = critical_of(complete(some, num_seeds, table.looks)).two_sided
        num_pairs = num_cells * (num_cells - 1) / 2
        limit *= float(special.ndtri(LEVEL / 2 / num_pairs) / special.ndtri(LEVEL / 2 / len(some)))
    return [bool(d) for d in sign * estimates.value > estimates.half_width(limit)]
