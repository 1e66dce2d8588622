"""Contrasts of cells over the same seeds (or processes), their noise estimated from all cells together.

Few seeds know little of their own noise, but the cells of a study share it. The variance of a contrast is
that of its own values and of its cells, moved towards the typical variance of any two cells, as far as the
two agree: a contrast that is far noisier, or far quieter, than is usual keeps its own, and its degrees of
freedom. The t statistics, as normal scores, are held against the largest score of a whole family in
simulated studies of the same shape without any difference: what is called different and the simultaneous
interval beside it follow from one critical value and never contradict each other. Looks at fewer seeds
before the last count as part of the family.

What this achieves on studies whose truth is known is in `benchmarks.verdicts`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Rows = tuple[tuple[float, ...], ...]

LEVEL = 0.05
"""The chance, over a whole family, of one or more wrong "different"; likewise for "equivalent"."""

AGREES = 0.3
"""The typical variance counts in full unless a ratio as far from 1 comes up by chance this rarely."""

UNEQUAL = 0.3
"""Spread of the log of the cells' standard deviations in the simulated studies: real cells differ."""

MOST_DRAWS, FEWEST_DRAWS = 40_000, 1_000
VALUES_AT_ONCE, VALUES_IN_ALL = 2**18, 2**24
EXPLODED = 1e6
"""Times the typical variance: a pair that varies more counts as so much, where other pairs are judged."""
ALL_PAIRS_UP_TO = 12
"""Cells; with more, each is paired with its six neighbours on either side."""
NUM_NEIGHBOURS = 6


@dataclass(frozen=True)
class Design:
    """What is compared, without the values: all that a critical value depends on."""

    weights: Rows
    """One row per contrast: what each cell counts for. A row adds up to zero."""
    present: tuple[tuple[bool, ...], ...]
    """By cell and seed: whether there is a value."""
    looks: tuple[int, ...] = ()
    """Numbers of seeds after which verdicts were or will be made, before or beyond those present."""

    @property
    def num_seeds(self) -> int:
        """Columns of the values."""
        return len(self.present[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Cells and seeds."""
        return len(self.present), self.num_seeds


@dataclass(frozen=True)
class Estimates:
    """One entry per contrast on the last axis; NaN where fewer than two seeds have all its cells."""

    value: Floats
    error: Floats
    degrees_of_freedom: Floats
    std: Floats
    """Of a run, as this contrast sees it: what the error follows from."""

    def scores(self, distance: Floats) -> Floats:
        """Distances in errors, as scores of a normal distribution with the same tail."""
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = np.where(distance == 0, 0.0, distance / self.error)
            # The smaller tail is exact where the larger is 1 but for rounding.
            tail = special.stdtr(self.degrees_of_freedom, -np.abs(statistic))
            return np.asarray(-np.sign(statistic) * special.ndtri(tail))

    def half_width(self, score: float) -> Floats:
        """Of an interval whose ends are this score away from the value."""
        quantile = special.stdtrit(self.degrees_of_freedom, special.ndtr(score))
        return np.asarray(quantile * self.error)


@dataclass(frozen=True)
class Family:
    """Contrasts decided together."""

    estimates: Estimates
    critical: "Critical"

    @property
    def p(self) -> Floats:
        """The share of studies without any difference in which some contrast has a score as large."""
        return self.critical.share_beyond(np.abs(self.estimates.scores(self.estimates.value)))

    @property
    def half_width(self) -> Floats:
        """Of simultaneous 95% intervals: all of them hold the truth in 95% of studies."""
        return self.estimates.half_width(self.critical.two_sided)

    @property
    def half_width_90(self) -> Floats:
        """Of simultaneous 90% intervals: no more than 5% of studies have one that ends short of the truth
        on a given side. One that lies within a margin shows equivalence."""
        return self.estimates.half_width(self.critical.one_sided)


@dataclass(frozen=True)
class Critical:
    """The largest scores of simulated studies of a design, in ascending order."""

    largest: Floats
    """On either side."""
    largest_above: Floats
    """On one side."""

    @cached_property
    def two_sided(self) -> float:
        """Exceeded in 5% of studies; infinite where nothing can be tested."""
        return _upper(self.largest)

    @cached_property
    def one_sided(self) -> float:
        """Exceeded on a given side in 5% of studies."""
        return _upper(self.largest_above)

    def share_beyond(self, scores: Floats) -> Floats:
        """The adjusted p of these scores; never zero, since a simulation cannot show that."""
        beyond = len(self.largest) - np.searchsorted(self.largest, scores, side="left")
        return np.where(np.isnan(scores), np.nan, (beyond + 1.0) / (len(self.largest) + 1.0))


def _upper(scores: Floats) -> float:
    return math.inf if np.isneginf(scores[-1]) else float(np.quantile(scores, 1 - LEVEL))


def compare_cells(
    values: Floats, weights: Floats, looks: tuple[int, ...] = (), resolution: float = 0.0
) -> Family:
    """The contrasts of values [cells, seeds], NaN where there is none, as one family.

    `resolution`: the step in which values come, as 1 / 10,000 for an accuracy on so many samples.
    """
    present = tuple(map(tuple, np.isfinite(values).tolist()))
    design = Design(weights=rows_of(weights), present=present, looks=looks)
    return Family(estimate(values, weights, resolution), critical_of(design))


def estimate(values: Floats, weights: Floats, resolution: float = 0.0) -> Estimates:
    """The contrasts of values [..., cells, seeds]; which are NaN is the same in every study."""
    present = np.isfinite(values.reshape(-1, *values.shape[-2:])[0])
    pairs = _Spread.of(values, present, _pair_rows(len(present)))
    own = _Spread.of(values, present, weights)
    freedom = np.maximum(own.count - 1.0, 1.0)
    typical, typical_freedom = _typical(values, present, pairs, freedom)
    variance = np.fmax(own.variance, _of_cells(pairs, weights))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(typical > 0, variance / typical, 1.0)
    # Few differences can all be equal by chance: that alone does not make a contrast a quiet one.
    tail = special.fdtr(freedom, typical_freedom, ratio)
    below = tail + 0.5 ** (own.count - 1)
    borrowed = typical_freedom * np.minimum(1.0, np.minimum(1.0 - tail, below) / AGREES)
    together = (borrowed * typical + freedom * variance) / (borrowed + freedom)
    # Values that are equal after rounding vary by no more than about half a step.
    variance = np.maximum(np.maximum(together, variance), (resolution / 2) ** 2)
    scale = (weights**2).sum(axis=1) / np.maximum(own.count, 1)
    is_tested = own.count >= 2
    return Estimates(
        value=np.where(is_tested, own.mean, np.nan),
        error=np.where(is_tested, np.sqrt(variance * scale), np.nan),
        std=np.where(is_tested, np.sqrt(variance), np.nan),
        degrees_of_freedom=np.where(is_tested, freedom + borrowed, np.nan),
    )


@lru_cache(maxsize=64)
def critical_of(design: Design, most_draws: int = MOST_DRAWS) -> Critical:
    """By simulation of studies with normal noise in which nothing differs; the same at every call."""
    weights = np.array(design.weights)
    looks = sorted({*design.looks, design.num_seeds})
    parts = [_largest_scores(noise, weights, looks) for noise in null_studies(design, most_draws)]
    # An earlier look asks for higher scores: see `_caution`.
    scores = np.concatenate(parts, axis=1) * _caution(design.num_seeds, looks)
    return Critical(*np.sort(scores, axis=1))


def null_studies(
    design: Design, most_draws: int = MOST_DRAWS, unequal: float = UNEQUAL
) -> Iterator[Floats]:
    """Values [studies, cells, seeds] without any difference, some studies at a time.

    Seeds beyond those of the design, for later looks, have every cell. `unequal` is the spread of the log
    of the cells' standard deviations.
    """
    rng = np.random.default_rng(20261115)
    num_cells, num_seeds = design.shape
    most_seeds = max(num_seeds, *design.looks) if design.looks else num_seeds
    mask = np.ones((num_cells, most_seeds), dtype=bool)
    mask[:, :num_seeds] = design.present
    size = num_cells * max(num_cells, most_seeds)
    draws = int(
        np.clip(VALUES_IN_ALL // (size * (1 + len(design.looks))), FEWEST_DRAWS, most_draws)
    )
    chunk = max(1, VALUES_AT_ONCE // size)
    for start in range(0, draws, chunk):
        shape = (min(chunk, draws - start), *mask.shape)
        stds = np.exp(unequal * rng.standard_normal((*shape[:2], 1)))
        yield np.where(mask, stds * rng.standard_normal(shape), np.nan)


def complete(weights: Floats, num_seeds: int, looks: tuple[int, ...] = ()) -> Design:
    """The design of a study in which no value is missing."""
    present = ((True,) * num_seeds,) * weights.shape[1]
    return Design(rows_of(weights), present, looks)


def rows_of(weights: Floats) -> Rows:
    """The weights as a value that can be told apart and remembered."""
    return tuple(map(tuple, weights.tolist()))


def pair_rows(pairs: Iterable[tuple[int, int]], num_cells: int) -> Floats:
    """For each pair of cells the second less the first."""
    chosen = np.array(list(pairs), dtype=int).reshape(-1, 2)
    rows = np.zeros((len(chosen), num_cells))
    rows[np.arange(len(chosen)), chosen[:, 0]] = -1.0
    rows[np.arange(len(chosen)), chosen[:, 1]] = 1.0
    return rows


def all_pairs(num_cells: int) -> Floats:
    """Every cell less every one before it."""
    return pair_rows(combinations(range(num_cells), 2), num_cells)


def table_of(values: Mapping[str, Mapping[int, float]]) -> tuple[tuple[str, ...], Floats]:
    """The cells that have a finite value, and their values by seed, NaN where there is none."""
    known = {
        cell: {seed: value for seed, value in by_seed.items() if math.isfinite(value)}
        for cell, by_seed in values.items()
    }
    cells = tuple(cell for cell, by_seed in known.items() if by_seed)
    seeds = sorted({seed for by_seed in values.values() for seed in by_seed})
    rows = [[known[cell].get(seed, math.nan) for seed in seeds] for cell in cells]
    return cells, np.array(rows).reshape(len(cells), len(seeds))


def _largest_scores(noise: Floats, weights: Floats, looks: list[int]) -> Floats:
    """Over all contrasts and looks, of every study: on either side, and on one."""
    largest = np.full((2, len(noise)), -np.inf)
    for count in looks:
        estimates = estimate(noise[..., :count], weights)
        scores = estimates.scores(estimates.value) / _caution(count, looks)
        highest, lowest = np.fmax.reduce(scores, axis=-1), np.fmin.reduce(scores, axis=-1)
        largest = np.fmax(largest, [np.fmax(highest, -lowest), highest])
    return largest


def _caution(num_seeds: int, looks: list[int]) -> float:
    """How much higher than at the last look scores must be: little, so that large differences are found
    early, but enough that the last look, which most studies reach, pays less for the early ones."""
    return math.sqrt(math.sqrt(max(looks) / num_seeds))


@dataclass(frozen=True)
class _Spread:
    """Rows of weights applied to every seed: how their values vary over the seeds that have all cells."""

    rows: Floats
    count: Floats
    mean: Floats
    variance: Floats
    """In units of the variance of a cell; NaN below two seeds."""

    @classmethod
    def of(cls, values: Floats, present: NDArray[np.bool_], rows: Floats) -> "_Spread":
        if present.all():
            count = np.full(len(rows), float(present.shape[1]))
            mean, squares = _complete(values, rows)
        else:
            count, mean, squares = _incomplete(values, present, rows)
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = np.where(count >= 2, squares / (count - 1), np.nan) / (rows**2).sum(axis=1)
        return cls(rows, count, mean, variance)


def _complete(values: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Mean and sum of squares of every row, by way of the cells' products: the fastest."""
    means = values.mean(axis=-1)
    centred = values - means[..., np.newaxis]
    products = centred @ np.swapaxes(centred, -1, -2)
    is_pair = ((rows != 0).sum(axis=1) == 2) & (np.abs(rows).sum(axis=1) == 2)
    own = np.diagonal(products, axis1=-2, axis2=-1)
    # What rounding leaves of squares that cancel out, and of values that are equal.
    rounding = 1e-13 * own + 1e-28 * means**2
    if is_pair.all() and (rows.sum(axis=1) == 0).all():
        first, second = np.argmin(rows, axis=1), np.argmax(rows, axis=1)
        squares = own[..., first] + own[..., second] - 2 * products[..., first, second]
        rounding = rounding[..., first] + rounding[..., second]
        mean = means[..., second] - means[..., first]
    else:
        squares = ((rows @ products) * rows).sum(axis=-1)
        rounding = rounding @ (rows**2).T
        mean = means @ rows.T
    return mean, np.where(squares < rounding, 0.0, squares)


def _incomplete(
    values: Floats, present: NDArray[np.bool_], rows: Floats
) -> tuple[Floats, Floats, Floats]:
    """Count, mean and sum of squares of every row over the seeds that have all its cells."""
    has_all = ((rows != 0).astype(float) @ ~present) == 0
    count = has_all.sum(axis=-1).astype(float)
    by_seed = np.where(has_all, rows @ np.where(present, values, 0.0), 0.0)
    mean = by_seed.sum(axis=-1) / np.maximum(count, 1)
    away = np.where(has_all, by_seed - mean[..., np.newaxis], 0.0)
    return count, mean, (away**2).sum(axis=-1)


def _typical(
    values: Floats, present: NDArray[np.bool_], pairs: _Spread, freedom: Floats
) -> tuple[Floats, Floats]:
    """The variance of a typical cell, and how many degrees of freedom the other contrasts lend it."""
    num_cells = len(present)
    if num_cells == 2:
        # There is no other pair: what the two cells show apart, which is more where seeds matter.
        cells = _Spread.of(values, present, np.eye(2))
        return np.mean(cells.variance, axis=-1, keepdims=True), freedom
    usable = pairs.count >= 2
    if not usable.any():
        return np.zeros((*values.shape[:-2], 1)), freedom
    middle = np.median(pairs.variance[..., usable], axis=-1, keepdims=True)
    residual = present.sum() - num_cells - (present.sum(axis=0) > 0).sum() + 1.0
    return middle, np.maximum(residual - freedom, 1.0)


def _of_cells(pairs: _Spread, weights: Floats) -> Floats:
    """The variance of every contrast from that of its cells, each known from all its pairs.

    A pair's variance is half the sum of its cells': solved for the cells, none below zero. A noisy
    reference is recognised from all that is compared with it.
    """
    num_cells = weights.shape[1]
    if num_cells == 2:
        return np.full((*pairs.variance.shape[:-1], len(weights)), np.nan)
    if not (pairs.count >= 2).any():
        return np.full((*pairs.variance.shape[:-1], len(weights)), np.nan)
    # One cell whose values exploded must not drown the others in its rounding.
    most = EXPLODED * np.nanmedian(pairs.variance, axis=-1, keepdims=True)
    of_cell = np.fmin(pairs.variance, most)[..., _pairs_of_cell(num_cells)]
    count = np.isfinite(of_cell).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.nan_to_num(of_cell).sum(axis=-1) / count
    total = num_cells * np.nanmean(mean, axis=-1, keepdims=True)
    share = (num_cells - 1) / (num_cells - 2)
    cells = np.maximum((2 * mean - total / (num_cells - 1)) * share, 0.0)
    parts = weights**2 / (weights**2).sum(axis=1, keepdims=True)
    # A cell without usable pairs counts in no contrast.
    return np.asarray(np.nan_to_num(cells) @ parts.T)


@lru_cache(maxsize=64)
def _pair_rows(num_cells: int) -> Floats:
    if num_cells <= ALL_PAIRS_UP_TO:
        return all_pairs(num_cells)
    near = range(1, NUM_NEIGHBOURS + 1)
    ring = ((cell, (cell + step) % num_cells) for cell in range(num_cells) for step in near)
    return pair_rows(ring, num_cells)


@lru_cache(maxsize=64)
def _pairs_of_cell(num_cells: int) -> NDArray[np.intp]:
    """By cell, the rows of `_pair_rows` that it is in; every cell is in equally many."""
    _, rows = np.nonzero(_pair_rows(num_cells).T)
    return rows.reshape(num_cells, -1)
