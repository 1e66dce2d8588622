"""What several cells show together: a trend over levels, the interaction of two factors.

Each is a family of contrasts of its own, decided like the effects, with the noise of all cells.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from trainlab.analysis.contrast import Contrast, against_references
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding
from trainlab.analysis.metric_table import MetricTable
from trainlab.spec import Cell
from trainlab.spec.study import level_text, short_name
from trainlab.stats.contrasts import LEVEL, Floats
from trainlab.stats.means import Interval
from trainlab.stats.straight_line import lack_of_fit
from trainlab.stats.verdict import ROUNDING, Verdict, are_identical
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
    p: float | None
    """None where all levels gave the same."""
    fit_p: float | None
    """Of means as far from the line by noise alone; None where that cannot be told."""

    def phrases(self, words: Words) -> dict[str, object]:
        slope = partial(self.difference_text, words)
        return super().phrases(words) | {
            "slope": slope(self.slope),
            "within": self.difference_interval(words),
            "per": words("per_doubling" if self.is_per_doubling else "per_unit"),
            "factor_name": self._factor,
            "from_level": level_text(self.lowest),
            "to_level": level_text(self.highest),
        }

    def statement(self, words: Words) -> str:
        if self.verdict == "identical":
            return self.fill(words, "trend_identical")
        text = self.fill(words, "trend" if self.verdict == "different" else "trend_open")
        if self.fit_p is None:
            return text
        fit = "line_fits" if self.fit_p > LEVEL else "line_unfit"
        return words.sentences(text, self.fill(words, fit))


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
    p: float | None
    """None where the effect is the same in every seed."""

    def phrases(self, words: Words) -> dict[str, object]:
        difference = partial(self.difference_text, words)
        return super().phrases(words) | {
            "difference": difference(self.difference),
            "within": self.difference_interval(words),
        }

    def statement(self, words: Words) -> str:
        keys = {"different": "interaction", "identical": "interaction_identical"}
        return self.fill(words, keys.get(self.verdict or "", "interaction_open"))


def pattern_findings(evidence: Evidence, table: MetricTable) -> Iterator[Finding]:
    """Trends, then interactions."""
    yield from _trends(evidence, table)
    yield from _interactions(table)


@dataclass(frozen=True)
class _Series:
    """Cells along a factor, the lowest level that ran first, each level once."""

    factor: str
    cells: tuple[Cell, ...]
    levels: tuple[float, ...]

    @property
    def is_per_doubling(self) -> bool:
        return self.levels[0] > 0 and self.levels[-1] >= WIDE_RANGE * self.levels[0]

    @property
    def places(self) -> Floats:
        """Of the levels on the scale that a line is fitted over, about their mean."""
        levels = np.array(self.levels)
        x = np.log2(levels) if self.is_per_doubling else levels / (levels[-1] - levels[0])
        return np.asarray(x - x.mean())


def _trends(evidence: Evidence, table: MetricTable) -> Iterator[Finding]:
    """Of every factor with three or more levels that are numbers, with all else equal."""
    index_of = table.index_of
    rows: list[Floats] = []
    found: list[tuple[_Series, Floats]] = []
    for series in _series(evidence, table.cells):
        values = table.values[[index_of[cell.id] for cell in series.cells]]
        signs = {*np.sign(np.diff(np.nanmean(values, axis=1))).tolist()}
        if len(signs - {0.0}) > 1 and not are_identical(values):
            # Up and down again is no trend, whatever the slope of a line through it.
            continue
        x = series.places
        row = np.zeros(len(table.cells))
        row[[index_of[cell.id] for cell in series.cells]] = x / (x**2).sum()
        rows.append(row)
        found.append((series, values))
    for (series, values), entry in zip(found, _decided(table, rows), strict=True):
        if entry is None:
            continue
        same = are_identical(values)
        yield Trend(
            subject=table.metric,
            factor=series.factor,
            cells=tuple(cell.id for cell in series.cells),
            slope=0.0 if same else entry.value,
            is_per_doubling=series.is_per_doubling,
            lowest=series.levels[0],
            highest=series.levels[-1],
            num_levels=len(series.levels),
            p=None if same else entry.p,
            fit_p=None if same else lack_of_fit(series.places, values),
            interval=None if same else entry.interval,
            verdict="identical" if same else _verdict(entry),
            n=entry.n,
        )


def _verdict(entry: "_Entry") -> Verdict:
    return "different" if entry.is_different else "cannot tell"


def _series(evidence: Evidence, cells: Sequence[Cell]) -> Iterator[_Series]:
    """By factor and reference: the reference and all that differ from it by the factor alone."""
    grouped: dict[tuple[str, str], list[Contrast]] = {}
    for pair in against_references(cells):
        if pair.levels != (None, None):
            grouped.setdefault((pair.factor, pair.reference.id), []).append(pair)
    for (factor, _), pairs in grouped.items():
        by_level: dict[float, Cell] = {}
        for cell in (pairs[0].reference, *(pair.other for pair in pairs)):
            level = evidence.level_that_ran(cell, factor)
            if isinstance(level, bool) or not isinstance(level, int | float):
                break
            by_level.setdefault(float(level), cell)
        else:
            levels = sorted(by_level)
            if len(levels) >= 3:
                yield _Series(factor, tuple(by_level[one] for one in levels), tuple(levels))


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
            other_factor=short_name(other.factor),
            change_a=_change(one),
            change_b=_change(other),
            cells=(one.reference.id, last.id),
            difference=0.0 if entry.is_zero else entry.value,
            p=None if entry.is_zero else entry.p,
            interval=None if entry.is_zero else entry.interval,
            verdict="identical" if entry.is_zero else _verdict(entry),
            n=entry.n,
        )


def _change(pair: Contrast) -> str:
    return f"{short_name(pair.factor)} {pair.levels[0]} → {pair.levels[1]}"


@dataclass(frozen=True)
class _Entry:
    """One contrast of a family, decided."""

    value: float
    interval: Interval
    p: float
    n: int
    is_different: bool
    is_zero: bool
    """In every seed, but for rounding."""


def _decided(table: MetricTable, rows: Sequence[Floats]) -> list[_Entry | None]:
    """`None` where too few seeds have all cells."""
    if not rows:
        return []
    weights = np.array(rows)
    family = table.compared(weights)
    estimates, half_width, p = family.estimates, family.half_width, family.p
    has_all = ((weights != 0).astype(float) @ ~np.isfinite(table.values)) == 0
    values = np.nan_to_num(table.values)
    is_zero = np.abs(weights @ values) <= ROUNDING * (np.abs(weights) @ np.abs(values))
    entries: list[_Entry | None] = []
    for index, value in enumerate(estimates.value.tolist()):
        if math.isnan(value):
            entries.append(None)
            continue
        width = float(half_width[index])
        interval = Interval(value - width, value + width)
        n = int(has_all[index].sum())
        same = bool(is_zero[index][has_all[index]].all())
        entries.append(_Entry(value, interval, float(p[index]), n, abs(value) > width, same))
    return entries
