"""What several cells show together: the best setting, a trend over levels, the interaction of factors.

Each is a family of contrasts of its own, decided like the effects, with the noise of all cells.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import special

from trainlab.analyse.contrast import Contrast, contrasts, level_of
from trainlab.analyse.evidence import Evidence
from trainlab.analyse.findings.effects import compared
from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.metrics import compared_metrics, num_test_samples, resolution_of
from trainlab.spec import Cell
from trainlab.spec.target import lower_is_better
from trainlab.stats.contrasts import LEVEL, Family, Floats, all_pairs, compare_cells, estimate
from trainlab.stats.means import Interval
from trainlab.words import Words
from trainlab.words.numbers import is_share, metric_difference, metric_value

WIDE_RANGE = 4
"""Positive levels whose largest is so many times the smallest are taken on a scale of doublings."""
MOST_NAMED = 6
MANY_CELLS = 16


@dataclass(frozen=True, kw_only=True)
class BestCells(Finding):
    """The best cell of a metric, and those that cannot be told from it."""

    kind = "best"
    section = "learning"
    rank = 8

    mean: float
    num_cells: int
    num_tied: int
    """Others that cannot be told from the best; they follow it in `cells`."""
    num_worse: int
    """Others that are worse than the best beyond noise."""

    def statement(self, words: Words) -> str:
        key = "best_alone" if not self.num_tied else "best_tied"
        if self.num_tied == self.num_cells - 1:
            key = "best_unknown"
        named = self.cells[1 : 1 + MOST_NAMED]
        others = words.listed(named)
        if self.num_tied > len(named):
            others = words("and_others", listed=others, number=self.num_tied - len(named))
        mean = metric_value(self.subject, self.mean)
        return self.fill(words, key, mean_text=mean, others=others)

    @property
    def says_something(self) -> bool:
        return self.num_worse > 0


@dataclass(frozen=True, kw_only=True)
class Trend(Finding):
    """How a metric changes along the ordered levels of a factor."""

    kind = "trend"
    section = "factors"
    rank = 11

    slope: float
    """Per doubling of the level, or per unit where the levels do not span enough."""
    is_per_doubling: bool
    lowest: float
    highest: float
    num_levels: int
    p: float

    def phrases(self, words: Words) -> dict[str, object]:
        def slope(value: float) -> str:
            return metric_difference(self.subject, value, words("points"))

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
        def difference(value: float) -> str:
            return metric_difference(self.subject, value, words("points"))

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


@dataclass(frozen=True, kw_only=True)
class SamplingError(Finding):
    """How well an accuracy is known from the number of test samples alone."""

    kind = "test_set"
    text = "test_set"
    section = "method"

    num_samples: int
    value: float
    """The accuracy it is computed for, that of the best cell."""
    half_width: float
    """Of its 95 % interval over test sets of this size."""
    half_width_difference: float
    """Of the difference of two such accuracies; less where both settings fail on the same samples."""

    def phrases(self, words: Words) -> dict[str, object]:
        def points(value: float) -> str:
            return metric_difference(self.subject, value, words("points")).lstrip("+")

        return super().phrases(words) | {
            "value_text": metric_value(self.subject, self.value),
            "error_text": points(self.half_width),
            "difference_text": points(self.half_width_difference),
        }


@dataclass(frozen=True)
class _Values:
    """A metric of all cells that have one."""

    cells: tuple[Cell, ...]
    table: Floats
    """Cells by seeds, NaN where there is no value."""
    looks: tuple[int, ...]
    resolution: float

    @property
    def means(self) -> Floats:
        """Over the seeds of each cell."""
        return np.asarray(np.nanmean(self.table, axis=1))

    def compared(self, rows: Floats) -> Family:
        """The contrasts as one family."""
        return compare_cells(self.table, rows, self.looks, self.resolution)


def pattern_findings(evidence: Evidence) -> Iterator[Finding]:
    """For the metric that people ask about first; the tables have the others."""
    for metric in compared_metrics(evidence)[:1]:
        values = _values(evidence, metric)
        if values is None:
            continue
        if len(values.cells) > 1 and values.table.shape[1] > 1:
            yield from _best(values, metric, _found_different(evidence, metric))
            yield from _trends(values, metric)
            yield from _interactions(values, metric)
        yield from _test_set(evidence, values, metric)


def _values(evidence: Evidence, metric: str) -> _Values | None:
    by_cell = [(cell, evidence.values(cell.id, metric)) for cell in evidence.cells]
    known = [(c, v) for c, v in by_cell if any(map(math.isfinite, v.values()))]
    seeds = sorted({seed for _, values in known for seed in values})
    if not known:
        return None
    table = np.array([[values.get(s, math.nan) for s in seeds] for _, values in known])
    table[~np.isfinite(table)] = np.nan
    resolution = resolution_of(evidence, metric)
    return _Values(tuple(cell for cell, _ in known), table, evidence.study.looks, resolution)


def _found_different(evidence: Evidence, metric: str) -> set[frozenset[str]]:
    """Pairs of cells that the effects call different: the best cells must not say otherwise."""
    pairs = [pair for pair in contrasts(evidence.cells) if {*pair.ids} <= evidence.learned.keys()]
    comparisons = compared(evidence, metric, pairs)
    decided = zip(pairs, comparisons, strict=True)
    return {frozenset(pair.ids) for pair, made in decided if made.verdict == "different"}


def _best(values: _Values, metric: str, known: set[frozenset[str]]) -> Iterator[Finding]:
    """With all cells compared with each other, as one family: the truly best is among those named."""
    sign = -1.0 if lower_is_better(metric) else 1.0
    means = sign * values.means
    best = int(np.argmax(means))
    others = [index for index in range(len(values.cells)) if index != best]
    differs = _differ_from(values, best, others)
    worse = {
        other
        for other, different in zip(others, differs, strict=True)
        if different or {values.cells[best].id, values.cells[other].id} in known
    }
    tied = [index for index in np.argsort(-means) if index != best and index not in worse]
    yield BestCells(
        subject=metric,
        cells=(values.cells[best].id, *(values.cells[index].id for index in tied)),
        mean=float(values.means[best]),
        num_cells=len(values.cells),
        num_tied=len(tied),
        num_worse=len(others) - len(tied),
        n=int(np.isfinite(values.table[best]).sum()),
    )


def _differ_from(values: _Values, best: int, others: Sequence[int]) -> list[bool]:
    """Which of the others differ from the best, all pairs of cells being one family."""
    num_cells = len(values.cells)
    rows = np.zeros((len(others), num_cells))
    rows[:, best], rows[np.arange(len(others)), others] = 1.0, -1.0
    estimates = estimate(values.table, rows, values.resolution)
    pairs = all_pairs(num_cells)
    if num_cells <= MANY_CELLS:
        limit = values.compared(pairs).critical.two_sided
    else:
        # Of so many pairs the simulation would take long; Bonferroni's bound asks for a little more.
        limit = float(-special.ndtri(LEVEL / 2 / len(pairs)))
    return [bool(d) for d in np.abs(estimates.value) > estimates.half_width(limit)]


def _trends(values: _Values, metric: str) -> Iterator[Finding]:
    """Of every factor with three or more levels that are numbers, with all else equal."""
    index_of = {cell.id: index for index, cell in enumerate(values.cells)}
    rows: list[Floats] = []
    found: list[tuple[str, tuple[Cell, ...], list[float], bool]] = []
    for factor, cells in _series(values.cells):
        levels = [level_of(cell, factor) for cell in cells]
        numbers = [float(x) for x in levels if isinstance(x, int | float) and type(x) is not bool]
        if len(numbers) < len(levels) or len(set(numbers)) < 3:
            continue
        by_level = [values.means[index_of[cell.id]] for cell in _in_order(cells, numbers)]
        if len({*np.sign(np.diff(by_level)).tolist()} - {0.0}) > 1:
            # Up and down again is no trend, whatever the slope of a line through it.
            continue
        doubles = min(numbers) > 0 and max(numbers) >= WIDE_RANGE * min(numbers)
        x = np.log2(numbers) if doubles else np.array(numbers)
        x = x - x.mean()
        row = np.zeros(len(values.cells))
        row[[index_of[cell.id] for cell in cells]] = x / (x**2).sum()
        rows.append(row)
        found.append((factor, cells, numbers, doubles))
    for (factor, cells, numbers, doubles), entry in zip(found, _decided(values, rows), strict=True):
        if entry is None:
            continue
        yield Trend(
            subject=metric,
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
    for pair in contrasts(cells):
        if pair.levels != (None, None):
            grouped.setdefault((pair.factor, pair.reference.id), []).append(pair)
    for (factor, _), pairs in grouped.items():
        yield factor, (pairs[0].reference, *(pair.other for pair in pairs))


def _interactions(values: _Values, metric: str) -> Iterator[Finding]:
    """Of every two factors of a grid: each combination against the references of both."""
    known = {cell.id: index for index, cell in enumerate(values.cells)}
    changes = [pair for pair in contrasts(values.cells) if pair.levels != (None, None)]
    by_reference: dict[tuple[str, str], Mapping[object, Contrast]] = {}
    for pair in changes:
        key = pair.factor, pair.reference.id
        by_reference[key] = {**by_reference.get(key, {}), pair.levels[1]: pair}
    first = values.cells[0].id
    rows: list[Floats] = []
    found: list[tuple[Contrast, Contrast, Cell]] = []
    for one, other in combinations([p for p in changes if p.reference.id == first], 2):
        if one.factor == other.factor:
            continue
        both = by_reference.get((other.factor, one.other.id), {}).get(other.levels[1])
        if both is None:
            continue
        row = np.zeros(len(values.cells))
        for cell, weight in (
            (both.other, 1),
            (one.other, -1),
            (other.other, -1),
            (one.reference, 1),
        ):
            row[known[cell.id]] += weight
        rows.append(row)
        found.append((one, other, both.other))
    for (one, other, last), entry in zip(found, _decided(values, rows), strict=True):
        if entry is None:
            continue
        yield Interaction(
            subject=metric,
            factor=one.factor,
            other_factor=other.factor,
            change_a=f"{one.factor} {one.levels[0]} → {one.levels[1]}",
            change_b=f"{other.factor} {other.levels[0]} → {other.levels[1]}",
            cells=(one.reference.id, last.id),
            difference=entry.value,
            p=entry.p,
            interval=entry.interval,
            verdict="different" if entry.is_different else "cannot tell",
            n=entry.n,
        )


@dataclass(frozen=True)
class _Entry:
    """One contrast of a family, decided."""

    value: float
    interval: Interval
    p: float
    n: int
    is_different: bool


def _decided(values: _Values, rows: Sequence[Floats]) -> list[_Entry | None]:
    """`None` where too few seeds have all cells."""
    if not rows:
        return []
    weights = np.array(rows)
    family = values.compared(weights)
    estimates, half_width, p = family.estimates, family.half_width, family.p
    has_all = ((weights != 0).astype(float) @ ~np.isfinite(values.table)) == 0
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


def _test_set(evidence: Evidence, values: _Values, metric: str) -> Iterator[Finding]:
    """Test samples are drawn too: what is known of an accuracy from their number alone."""
    num_samples = num_test_samples(evidence)
    if not is_share(metric) or not num_samples:
        return
    value = float(np.nanmax(values.means))
    half_width = 1.96 * math.sqrt(max(value * (1 - value), 0.0) / num_samples)
    yield SamplingError(
        subject=metric,
        cells=(),
        num_samples=num_samples,
        value=value,
        half_width=half_width,
        half_width_difference=math.sqrt(2) * half_width,
        n=num_samples,
    )
