"""What several cells show together: a trend over levels, the interaction of two factors.

Each is a family of contrasts of its own, decided like the effects, with the noise of all cells.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from trainlab.analyse.contrast import Contrast, against_references, level_of
from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.metric_table import MetricTable
from trainlab.spec import Cell
from trainlab.stats.contrasts import Floats
from trainlab.stats.means import Interval
from trainlab.words import Words

WIDE_RANGE = 4
"""Positive levels whose largest is so many times the smallest are taken on a scale of doublings."""


@dataclass(frozen=True, kw_only=True)
class Trend(Finding):
    """How a metric changes along the ordered levels of a factor."""

    kind = "trend"
    section = "factors"
    rank = 11

    slope: float
    """Per doubling of the level, or from the lowest to the highest where they do not span enough."""
    is_per_doubling: bool
    lowest: float
    highest: float
    num_levels: int
    p: float

    def phrases(self, words: Words) -> dict[str, object]:
        slope = partial(self.difference_text, words)
        return super().phrases(words) | {
            "slope": slope(self.slope),
            "within": self.interval_text(words, slope),
            "per": words("per_doubling" if self.is_per_doubling else "per_unit"),
            "factor_name": self._factor,
        }

    def statement(self, words: Words) -> str:
        return self.fill(words, "trend" if self.verdict == "different" else "trend_open")


@dataclass(frozen=True, kw_only=True)
class Interaction(Finding):
    """Whether the effect of one factor depends on the level of another."""

    kind = "interaction"
    section = "factors"
    rank = 5

    other_factor: str
    change_a: str
    """The first factor's levels, from the reference."""
    change_b: str
    difference: float
    """The effect of the first change at the second factor's other level, less that at its reference."""
    p: float

    def phrases(self, words: Words) -> dict[str, object]:
        difference = partial(self.difference_text, words)
        return super().phrases(words) | {
            "difference": difference(self.difference),
            "within": self.interval_text(words, difference),
        }

    def statement(self, words: Words) -> str:
        return self.fill(
            words, "interaction" if self.verdict == "different" else "interaction_open"
        )

    @property
    def group(self) -> tuple[str, ...]:
        return self.kind, self.factor or "", self.other_factor


def pattern_findings(table: MetricTable) -> Iterator[Finding]:
    """Trends, then interactions."""
    yield from _trends(table)
    yield from _interactions(table)


def _trends(table: MetricTable) -> Iterator[Finding]:
    """Of every factor with three or more levels that are numbers, with all else equal."""
    index_of, means = table.index_of, table.means
    rows: list[Floats] = []
    found: list[tuple[str, tuple[Cell, ...], list[float], bool]] = []
    for factor, cells in _series(table.cells):
        levels = [level_of(cell, factor) for cell in cells]
        numbers = [float(x) for x in levels if isinstance(x, int | float) and type(x) is not bool]
        if len(numbers) < len(levels) or len(set(numbers)) < 3:
            continue
        by_level = [means[index_of[cell.id]] for cell in _in_order(cells, numbers)]
        if len({*np.sign(np.diff(by_level)).tolist()} - {0.0}) > 1:
            # Up and down again is no trend, whatever the slope of a line through it.
            continue
        doubles = min(numbers) > 0 and max(numbers) >= WIDE_RANGE * min(numbers)
        span = max(numbers) - min(numbers)
        x = np.log2(numbers) if doubles else np.array(numbers) / span
        x = x - x.mean()
        row = np.zeros(len(table.cells))
        row[[index_of[cell.id] for cell in cells]] = x / (x**2).sum()
        rows.append(row)
        found.append((factor, cells, numbers, doubles))
    for (factor, cells, numbers, doubles), entry in zip(found, _decided(table, rows), strict=True):
        if entry is None:
            continue
        yield Trend(
            subject=table.metric,
            factor=factor,
            cells=tuple(cell.id for cell in cells),
            slope=entry.value,
            is_per_doubling=doubles,
            lowest=min(numbers),
            highest=max(numbers),
            num_levels=len(numbers),
            p=entry.p,
            interval=entry.interval,
            verdict="different" if entry.is_different else "cannot tell",
            n=entry.n,
        )


def _in_order(cells: Sequence[Cell], levels: Sequence[float]) -> list[Cell]:
    return [cells[index] for index in np.argsort(levels)]


def _series(cells: Sequence[Cell]) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """By factor and reference: the reference and all that differ from it by the factor alone."""
    grouped: dict[tuple[str, str], list[Contrast]] = {}
    for pair in against_references(cells):
        if pair.levels != (None, None):
            grouped.setdefault((pair.factor, pair.reference.id), []).append(pair)
    for (factor, _), pairs in grouped.items():
        yield factor, (pairs[0].reference, *(pair.other for pair in pairs))


def _interactions(table: MetricTable) -> Iterator[Finding]:
    """Of every two factors of a grid: each combination against the references of both."""
    index_of = table.index_of
    changes = [pair for pair in against_references(table.cells) if pair.levels != (None, None)]
    changed_from = {(pair.factor, pair.reference.id, pair.levels[1]): pair for pair in changes}
    first = table.cells[0].id
    rows: list[Floats] = []
    found: list[tuple[Contrast, Contrast, Cell]] = []
    for one, other in combinations([p for p in changes if p.reference.id == first], 2):
        if one.factor == other.factor:
            continue
        both = changed_from.get((other.factor, one.other.id, other.levels[1]))
        if both is None:
            continue
        row = np.zeros(len(table.cells))
        row[[index_of[both.other.id], index_of[first]]] = 1.0
        row[[index_of[one.other.id], index_of[other.other.id]]] = -1.0
        rows.append(row)
        found.append((one, other, both.other))
    for (one, other, last), entry in zip(found, _decided(table, rows), strict=True):
        if entry is None:
            continue
        yield Interaction(
            subject=table.metric,
            factor=one.factor,
            other_factor=other.factor.removeprefix("model."),
            change_a=_change(one),
            change_b=_change(other),
            cells=(one.reference.id, last.id),
            difference=entry.value,
            p=entry.p,
            interval=entry.interval,
            verdict="different" if entry.is_different else "cannot tell",
            n=entry.n,
        )


def _change(pair: Contrast) -> str:
    return f"{pair.factor.removeprefix('model.')} {pair.levels[0]} → {pair.levels[1]}"


@dataclass(frozen=True)
class _Entry:
    """One contrast of a family, decided."""

    value: float
    interval: Interval
    p: float
    n: int
    is_different: bool


def _decided(table: MetricTable, rows: Sequence[Floats]) -> list[_Entry | None]:
    """`None` where too few seeds have all cells."""
    if not rows:
        return []
    weights = np.array(rows)
    family = table.compared(weights)
    estimates, half_width, p = family.estimates, family.half_width, family.p
    has_all = ((weights != 0).astype(float) @ ~np.isfinite(table.values)) == 0
    entries: list[_Entry | None] = []
    for index, value in enumerate(estimates.value.tolist()):
        if math.isnan(value):
            entries.append(None)
            continue
        width = float(half_width[index])
        interval = Interval(value - width, value + width)
        n = int(has_all[index].sum())
        entries.append(_Entry(value, interval, float(p[index]), n, abs(value) > width))
    return entries
