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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
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

MOST_DRAWS, FEWEST_DRAWS = 20_000, 4_000
VALUES_AT_ONCE = 2**21
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
        """Of simultaneous 95 % intervals: all of them hold the truth in 95 % of studies."""
        return self.estimates.half_width(self.critical.two_sided)

    @property
    def half_width_90(self) -> Floats:
        """Of simultaneous 90 % intervals: no more than 5 % of studies have one that ends short of the truth
        on a given side. One that lies within a margin shows equivalence."""
        return self.estimates.half_width(self.critical.one_sided)


@dataclass(frozen=True)
class Critical:
    """The largest scores of simulated studies of a design, in ascending order."""

    largest: Floats
    """On either side."""
    largest_above: Floats
    """On one side."""
    shift: Floats
    """By contrast: the difference found with 80 % power, in standard deviations of a cell."""

    @property
    def two_sided(self) -> float:
        """Exceeded in 5 % of studies."""
        return float(np.quantile(self.largest, 1 - LEVEL))

    @property
    def one_sided(self) -> float:
        """Exceeded on a given side in 5 % of studies."""
        return float(np.quantile(self.largest_above, 1 - LEVEL))

    def share_beyond(self, scores: Floats) -> Floats:
        """The adjusted p of these scores; never zero, since a simulation cannot show that."""
        beyond = len(self.largest) - np.searchsorted(self.largest, scores, side="left")
        return np.where(np.isnan(scores), np.nan, (beyond + 1.0) / (len(self.largest) + 1.0))


def compare_cells(
    values: Floats, weights: Floats, looks: tuple[int, ...] = (), resolution: float = 0.0
) -> Family:
    """The contrasts of values [cells, seeds], NaN where there is none, as one family.

    `resolution`: the step in which values come, as 1 / 10,000 for an accuracy on so many samples.
    """
    design = Design(
        weights=tuple(map(tuple, weights.tolist())),
        present=tuple(map(tuple, np.isfinite(values).tolist())),
        looks=looks,
    )
    return Family(estimate(values, weights, resolution), critical_of(design))


def estimate(values: Floats, weights: Floats, resolution: float = 0.0) -> Estimates:
    """The contrasts of values [..., cells, seeds]; which are NaN is the same in every study."""
    present = np.isfinite(values.reshape(-1, *values.shape[-2:])[0])
    known = np.where(present, values, 0.0)
    pairs = _Spread.of(known, present, _pair_rows(len(present)))
    own = _Spread.of(known, present, weights)
    freedom = np.maximum(own.count - 1.0, 1.0)
    typical, typical_freedom = _typical(known, present, pairs, freedom)
    variance = np.fmax(own.variance, _of_cells(pairs, weights))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(typical > 0, variance / typical, 1.0)
    # Few differences can all be equal by chance: that alone does not make a contrast a quiet one.
    below = special.fdtr(freedom, typical_freedom, ratio) + 0.5 ** (own.count - 1)
    above = special.fdtrc(freedom, typical_freedom, ratio)
    borrowed = typical_freedom * np.minimum(1.0, np.minimum(above, below) / AGREES)
    together = (borrowed * typical + freedom * variance) / (borrowed + freedom)
    # Values that are equal after rounding vary by no more than about half a step.
    variance = np.maximum(np.maximum(together, variance), (resolution / 2) ** 2)
    scale = (weights**2).sum(axis=1) / np.maximum(own.count, 1)
    is_tested = own.count >= 2
    return Estimates(
        value=np.where(is_tested, own.mean, np.nan),
        error=np.where(is_tested, np.sqrt(variance * scale), np.nan),
        degrees_of_freedom=np.where(is_tested, freedom + borrowed, np.nan),
    )


@lru_cache(maxsize=64)
def critical_of(design: Design) -> Critical:
    """By simulation of studies with normal noise in which nothing differs; the same at every call."""
    weights, present = np.array(design.weights), np.array(design.present)
    looks = sorted({*design.looks, design.num_seeds})
    size = present.size * max(1, len(_pair_rows(len(present)))) // len(present) * len(looks)
    num_draws = int(np.clip(2**23 // max(size, 1), FEWEST_DRAWS, MOST_DRAWS))
    largest, largest_above, needed = [], [], []
    for noise in _noise(present, max(looks), num_draws, max(1, VALUES_AT_ONCE // max(size, 1))):
        both = above = np.full(len(noise), -np.inf)
        for count in looks:
            estimates = estimate(noise[..., :count], weights)
            scores = estimates.scores(estimates.value)
            above = np.fmax(above, np.fmax.reduce(scores, axis=-1))
            both = np.fmax(both, np.fmax.reduce(np.abs(scores), axis=-1))
        largest.append(both)
        largest_above.append(above)
        needed.append(estimate(noise[..., : design.num_seeds], weights))
    critical = Critical(
        np.sort(np.concatenate(largest)), np.sort(np.concatenate(largest_above)), np.zeros(0)
    )
    shifts = [part.half_width(critical.two_sided) - part.value for part in needed]
    shift = np.quantile(np.concatenate(shifts), 0.8, axis=0)
    return Critical(critical.largest, critical.largest_above, shift)


def against_first(num_cells: int) -> Floats:
    """Every cell less the first."""
    return np.hstack((-np.ones((num_cells - 1, 1)), np.eye(num_cells - 1)))


def all_pairs(num_cells: int) -> Floats:
    """Every cell less every one before it."""
    return _rows(combinations(range(num_cells), 2), num_cells)


def _noise(present: NDArray[np.bool_], num_seeds: int, draws: int, chunk: int) -> Iterator[Floats]:
    """Studies without differences; seeds beyond those present have every cell."""
    rng = np.random.default_rng(20261115)
    mask = np.ones((len(present), num_seeds), dtype=bool)
    width = min(num_seeds, present.shape[1])
    mask[:, :width] = present[:, :width]
    for start in range(0, draws, chunk):
        shape = (min(chunk, draws - start), *mask.shape)
        stds = np.exp(UNEQUAL * rng.standard_normal((*shape[:2], 1)))
        yield np.where(mask, stds * rng.standard_normal(shape), np.nan)


@dataclass(frozen=True)
class _Spread:
    """Rows of weights applied to every seed: how their values vary over the seeds that have all cells."""

    rows: Floats
    count: Floats
    mean: Floats
    variance: Floats
    """In units of the variance of a cell; NaN below two seeds."""

    @classmethod
    def of(cls, known: Floats, present: NDArray[np.bool_], rows: Floats) -> "_Spread":
        is_used = rows != 0
        has_all = (is_used.astype(float) @ ~present) == 0
        count = has_all.sum(axis=-1).astype(float)
        by_seed = np.where(has_all, rows @ known, 0.0)
        mean = by_seed.sum(axis=-1) / np.maximum(count, 1)
        squares = (np.where(has_all, by_seed - mean[..., np.newaxis], 0.0) ** 2).sum(axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = np.where(count >= 2, squares / (count - 1), np.nan) / (rows**2).sum(axis=1)
        return cls(rows, count, mean, variance)


def _typical(
    known: Floats, present: NDArray[np.bool_], pairs: _Spread, freedom: Floats
) -> tuple[Floats, Floats]:
    """The variance of a typical cell, and how many degrees of freedom the other contrasts lend it."""
    num_cells = len(present)
    if num_cells == 2:
        # There is no other pair: what the two cells show apart, which is more where seeds matter.
        cells = _Spread.of(known, present, np.eye(2))
        return np.mean(cells.variance, axis=-1, keepdims=True), freedom
    usable = pairs.count >= 2
    if not usable.any():
        return np.zeros((*known.shape[:-2], 1)), freedom
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
    usable = (pairs.count >= 2).astype(float)
    member = (pairs.rows != 0).astype(float) * usable[:, np.newaxis]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (np.nan_to_num(pairs.variance) @ member) / member.sum(axis=0)
    total = num_cells * np.nanmean(mean, axis=-1, keepdims=True) if usable.any() else np.nan
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
    return _rows(ring, num_cells)


def _rows(pairs: Iterable[tuple[int, int]], cells: int) -> Floats:
    chosen = np.array(list(pairs), dtype=int).reshape(-1, 2)
    rows = np.zeros((len(chosen), cells))
    rows[np.arange(len(chosen)), chosen[:, 0]] = -1.0
    rows[np.arange(len(chosen)), chosen[:, 1]] = 1.0
    return rows
