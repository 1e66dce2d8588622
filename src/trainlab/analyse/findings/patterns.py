"""What several cells show together: the best setting, a trend over levels, the interaction of factors.

Each is a family of contrasts of its own, decided like the effects, with the noise of all cells.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from trainlab.stats.contrasts import (
    LEVEL,
    Family,
    Floats,
    all_pairs,
    compare_cells,
    complete,
    critical_of,
    estimate,
)
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
    num_diverging: int
    """Cells left out because seeds of theirs diverged, or none ended."""

    def statement(self, words: Words) -> str:
        key = (
            "best_tied" if self.num_tied else "best_alone" if self.num_worse > 1 else "best_of_two"
        )
        if self.num_tied == self.num_cells - 1:
            key = "best_unknown"
        named = self.cells[1 : 1 + MOST_NAMED]
        others = words.listed(named)
        if self.num_tied > len(named):
            others = words("and_others", listed=others, number=self.num_tied - len(named))
        mean = metric_value(self.subject, self.mean)
        text = self.fill(words, key, mean_text=mean, others=others)
        left_out = [self.fill(words, "best_left_out")] if self.num_diverging else []
        return words.sentences(text, *left_out)

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
    """Per doubling of the level, or from the lowest to the highest where they do not span enough."""
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
            yield from _best(evidence, values, metric)
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


def _found_worse(evidence: Evidence, metric: str, sign: float) -> set[tuple[str, str]]:
    """Worse and better cell of the pairs that the effects call different: the best must agree with them."""
    pairs = [pair for pair in contrasts(evidence.cells) if {*pair.ids} <= evidence.learned.keys()]
    worse = set()
    for pair, made in zip(pairs, compared(evidence, metric, pairs), strict=True):
        if made.verdict == "different" and made.difference is not None:
            first, second = pair.ids
            worse.add((first, second) if sign * made.difference > 0 else (second, first))
    return worse


def _best(evidence: Evidence, values: _Values, metric: str) -> Iterator[Finding]:
    """Of the cells none of whose seeds diverged, all compared with each other as one family."""
    steady = [
        index
        for index, cell in enumerate(values.cells)
        if all(map(math.isfinite, evidence.values(cell.id, metric).values()))
    ]
    if len(steady) < 2:
        return
    cells = [values.cells[index].id for index in steady]
    kept = replace(values, cells=tuple(values.cells[i] for i in steady), table=values.table[steady])
    sign = -1.0 if lower_is_better(metric) else 1.0
    lead = sign * _leads(kept)
    best = int(np.argmax(lead))
    known = _found_worse(evidence, metric, sign)
    others = [index for index in range(len(cells)) if index != best]
    differs = _worse_than(kept, best, others, sign)
    worse = {
        other
        for other, is_worse in zip(others, differs, strict=True)
        if (is_worse or (cells[other], cells[best]) in known)
        and (cells[best], cells[other]) not in known
    }
    tied = [int(index) for index in np.argsort(-lead) if index != best and index not in worse]
    yield BestCells(
        subject=metric,
        cells=(cells[best], *(cells[index] for index in tied)),
        mean=float(kept.means[best]),
        num_cells=len(cells),
        num_tied=len(tied),
        num_worse=len(worse),
        num_diverging=len(evidence.learned) - len(cells),
        n=int(np.isfinite(kept.table[best]).sum()),
    )


def _leads(values: _Values) -> Floats:
    """By how much each cell exceeds the others on average, seed by seed: seeds that a cell lacks are no
    advantage to it."""
    rows = all_pairs(len(values.cells))
    difference = estimate(values.table, rows).value
    counted = np.isfinite(difference)
    total = np.where(counted, difference, 0.0) @ rows
    count = counted.astype(float) @ np.abs(rows)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), -np.inf))


def _worse_than(values: _Values, best: int, others: Sequence[int], sign: float) -> list[bool]:
    """Which of the others are worse than the best, all pairs of cells being one family."""
    num_cells, num_seeds = values.table.shape
    rows = np.zeros((len(others), num_cells))
    rows[:, best], rows[np.arange(len(others)), others] = 1.0, -1.0
    estimates = estimate(values.table, rows, values.resolution)
    if num_cells <= MANY_CELLS:
        limit = values.compared(all_pairs(num_cells)).critical.two_sided
    else:
        # Of so many pairs a simulation would take long: that of fewer, raised as Bonferroni's bound is.
        some = all_pairs(MANY_CELLS)
        limit = critical_of(complete(some, num_seeds, values.looks)).two_sided
        num_pairs = num_cells * (num_cells - 1) / 2
        limit *= float(special.ndtri(LEVEL / 2 / num_pairs) / special.ndtri(LEVEL / 2 / len(some)))
    return [bool(d) for d in sign * estimates.value > estimates.half_width(limit)]


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
        span = max(numbers) - min(numbers)
        x = np.log2(numbers) if doubles else np.array(numbers) / span
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
    # Two right and two wrong more: without them nothing would be left to chance at 100 %.
    share = (value * num_samples + 2) / (num_samples + 4)
    # Both test sets are drawn: this one and the other.
    half_width = 1.96 * math.sqrt(2 * share * (1 - share) / num_samples)
    yield SamplingError(
        subject=metric,
        cells=(),
        num_samples=num_samples,
        value=value,
        half_width=half_width,
        half_width_difference=math.sqrt(2) * half_width,
        n=num_samples,
    )
