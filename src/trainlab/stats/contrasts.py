"""Contrasts of cells over the same seeds (or processes), their noise estimated from all cells together.

Few seeds know little of their own noise, but the cells of a study may share it. The variance of a contrast
is that of its own values, pooled with that of its cells apart and of every other cell, each as far as the
two agree; it is never below its own. What is far noisier, or far quieter, is left out, and its degrees of
freedom with it: one noisy cell does not blur the others. The t statistics, as normal scores, are held
against the largest score of a whole family in simulated studies of the same shape without any difference:
what is called different and the simultaneous interval beside it follow from one critical value and never
contradict each other. Looks at fewer seeds before the last count as part of the family.

What this achieves on studies whose truth is known is in `benchmarks.verdicts`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from trainlab.stats import special

Floats = NDArray[np.float64]
Rows = tuple[tuple[float, ...], ...]

LEVEL = 0.05
"""The chance, over a whole family, of one or more wrong "different"; likewise for "equivalent"."""

AGREES, DIFFERS = 0.25, 0.15
"""Another variance counts in full up to the ratio that chance exceeds this often, and not at all beyond the
one that it exceeds so seldom; in between by the log of the ratio."""

UNEQUAL = 0.3
"""Spread of the log of the cells' standard deviations in the simulated studies: real cells differ."""

MOST_DRAWS, FEWEST_DRAWS = 40_000, 1_000
VALUES_AT_ONCE, VALUES_IN_ALL = 2**18, 2**24
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


def _upper(scores: Floats) -> float:
    return math.inf if np.isneginf(scores[-1]) else float(np.quantile(scores, 1 - LEVEL))


@dataclass(frozen=True)
class Family:
    """Contrasts decided together."""

    estimates: Estimates
    critical: Critical

    @property
    def p(self) -> Floats:
        """The share of studies without any difference in which some score is as large; never zero."""
        largest = self.critical.largest
        scores = np.abs(self.estimates.scores(self.estimates.value))
        beyond = len(largest) - np.searchsorted(largest, scores, side="left")
        return np.where(np.isnan(scores), np.nan, (beyond + 1.0) / (len(largest) + 1.0))

    @property
    def half_width(self) -> Floats:
        """Of simultaneous 95% intervals: all of them hold the truth in 95% of studies."""
        return self.estimates.half_width(self.critical.two_sided)

    @property
    def half_width_90(self) -> Floats:
        """Of simultaneous 90% intervals: one that lies within a margin shows equivalence."""
        return self.estimates.half_width(self.critical.one_sided)


def compare_cells(
    values: Floats, weights: Floats, looks: tuple[int, ...] = (), resolution: float = 0.0
) -> Family:
    """The contrasts of values [cells, seeds], NaN where there is none, as one family.

    `resolution`: the step in which values come, as 1 / 10,000 for an accuracy on so many samples.
    """
    present = tuple(map(tuple, np.isfinite(values).tolist()))
    design = Design(rows_of(weights), present, looks)
    return Family(estimate(values, weights, resolution), critical_of(design))


def estimate(values: Floats, weights: Floats, resolution: float = 0.0) -> Estimates:
    """The contrasts of values [..., cells, seeds]; which are NaN is the same in every study."""
    present = np.isfinite(values.reshape(-1, *values.shape[-2:])[0])
    count, mean, variance = _over_seeds(values, present, weights)
    own, freedom = variance[..., np.newaxis], np.maximum(count - 1.0, 1.0)[:, np.newaxis]
    known, known_freedom = _known_elsewhere(values, present, weights, freedom)
    full, none = (np.log(special.fdtri(freedom, freedom, 1 - rare)) for rare in (AGREES, DIFFERS))
    with np.errstate(divide="ignore", invalid="ignore"):
        agreement = np.clip((none - np.abs(np.log(known / own))) / (none - full), 0.0, 1.0)
    # Few differences can all be equal by chance: that alone does not make a contrast a quiet one.
    by_chance = np.minimum(1.0, 0.5**freedom / AGREES)
    borrowed = np.nan_to_num(np.where(own == 0, by_chance, agreement)) * known_freedom
    squares = (borrowed * known).sum(axis=-1) + freedom[:, 0] * variance
    all_freedom = borrowed.sum(axis=-1) + freedom[:, 0]
    # Values that are equal after rounding vary by no more than about half a step.
    variance = np.maximum(np.maximum(squares / all_freedom, variance), (resolution / 2) ** 2)
    scale = (weights**2).sum(axis=1) / np.maximum(count, 1)
    is_tested = count >= 2
    return Estimates(
        value=np.where(is_tested, mean, np.nan),
        error=np.where(is_tested, np.sqrt(variance * scale), np.nan),
        std=np.where(is_tested, np.sqrt(variance), np.nan),
        degrees_of_freedom=np.where(is_tested, all_freedom, np.nan),
    )


def _over_seeds(
    values: Floats, present: NDArray[np.bool_], rows: Floats
) -> tuple[Floats, Floats, Floats]:
    """Of every row of weights, over the seeds that have all its cells: their number, its mean, and its
    variance in units of that of a cell; NaN below two seeds."""
    has_all = ((rows != 0).astype(float) @ ~present) == 0
    count = has_all.sum(axis=-1).astype(float)
    known = np.where(present, values, 0.0)
    by_seed = (rows @ known) * has_all
    mean = by_seed.sum(axis=-1) / np.maximum(count, 1)
    by_seed -= mean[..., np.newaxis] * has_all
    squares = np.einsum("...i,...i->...", by_seed, by_seed)
    # Values that are equal must not vary by what rounding leaves of them.
    rounding = 1e-14 * (np.abs(known).max(axis=-1, initial=0.0) @ np.abs(rows).T)
    squares = np.where(squares < rounding**2, 0.0, squares)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (
            count,
            mean,
            np.where(count >= 2, squares / (count - 1), np.nan) / (rows**2).sum(axis=1),
        )


def _known_elsewhere(
    values: Floats, present: NDArray[np.bool_], weights: Floats, freedom: Floats
) -> tuple[Floats, Floats]:
    """What else tells the noise of each contrast: the variances of all cells, and at last that of its own
    cells apart, where what seeds do to both does not cancel; and the degrees of freedom of each."""
    num_cells = weights.shape[1]
    count, _, of_cells = _over_seeds(values, present, np.eye(num_cells))
    _, _, of_pairs = _over_seeds(values, present, _pair_rows(num_cells))
    cell_freedom = np.maximum(count - 1.0, 1.0)
    # By cell, the pairs that it is in; every cell is in equally many. Unknown ones come last.
    _, pairs_of_cell = np.nonzero(_pair_rows(num_cells).T)
    ordered = np.sort(of_pairs[..., pairs_of_cell.reshape(num_cells, -1)], axis=-1)
    num_pairs = np.isfinite(ordered.reshape(-1, *ordered.shape[-2:])[0]).sum(axis=-1)
    # A cell is as noisy as it is beside the third of the others nearest to it, since the rest may be noisy;
    # in units of what that place has where all are alike.
    place = np.maximum(num_pairs - 1, 0) // 3
    usual = special.chdtri(cell_freedom, 1 - (place + 0.7) / (num_pairs + 0.4)) / cell_freedom
    near = ordered[..., np.arange(num_cells), place] / usual
    parts = weights**2 / (weights**2).sum(axis=1, keepdims=True)
    of_cells = np.nan_to_num(of_cells)
    apart = of_cells @ parts.T
    # Beside a pair every other cell counts as much as it, and so do its own two where they vary alike: by
    # Satterthwaite, since where one is far noisier they tell no more than the pair does.
    with np.errstate(invalid="ignore"):
        beyond = np.nan_to_num(apart**2 / (of_cells**2 @ (parts**2).T), nan=1.0) - 1.0
    beside = np.maximum(1 - 2 * parts, 0.0) * cell_freedom
    near, beside = (
        np.broadcast_to(one, (*apart.shape, num_cells))
        for one in (near[..., np.newaxis, :], beside)
    )
    known = np.concatenate((near, apart[..., np.newaxis]), axis=-1)
    known_freedom = np.concatenate((beside, (beyond * freedom[:, 0])[..., np.newaxis]), axis=-1)
    return np.nan_to_num(known), known_freedom


@lru_cache(maxsize=64)
def critical_of(design: Design, most_draws: int = MOST_DRAWS) -> Critical:
    """By simulation of studies with normal noise in which nothing differs; the same at every call."""
    weights, num_seeds = np.array(design.weights), len(design.present[0])
    looks = sorted({*design.looks, num_seeds})
    parts = []
    for noise in null_studies(design, most_draws):
        # Over all contrasts and looks, of every study: on either side, and on one.
        largest = np.full((2, len(noise)), -np.inf)
        for count in looks:
            estimates = estimate(noise[..., :count], weights)
            # An early look asks for scores that are a little higher than at the last one, so that large
            # differences are found early, but the last, which most studies reach, pays less for it.
            caution = (looks[-1] / count) ** 0.25
            scores = estimates.scores(estimates.value) / caution
            highest, lowest = np.fmax.reduce(scores, axis=-1), np.fmin.reduce(scores, axis=-1)
            largest = np.fmax(largest, [np.fmax(highest, -lowest), highest])
        parts.append(largest)
    scores = np.concatenate(parts, axis=1) * (looks[-1] / num_seeds) ** 0.25
    return Critical(*np.sort(scores, axis=1))


def null_studies(
    design: Design, most_draws: int = MOST_DRAWS, unequal: float = UNEQUAL
) -> Iterator[Floats]:
    """Values [studies, cells, seeds] without any difference, some studies at a time.

    Seeds beyond those of the design, for later looks, have every cell. `unequal` is the spread of the log
    of the cells' standard deviations.
    """
    rng = np.random.default_rng(20261115)
    num_cells, num_seeds = len(design.present), len(design.present[0])
    mask = np.ones((num_cells, max(num_seeds, *design.looks, 0)), dtype=bool)
    mask[:, :num_seeds] = design.present
    size = num_cells * max(mask.shape)
    most = VALUES_IN_ALL // (size * (1 + len(design.looks)))
    draws = int(np.clip(most, FEWEST_DRAWS, most_draws))
    chunk = max(1, VALUES_AT_ONCE // size)
    for start in range(0, draws, chunk):
        shape = (min(chunk, draws - start), *mask.shape)
        stds = np.exp(unequal * rng.standard_normal((*shape[:2], 1)))
        yield np.where(mask, stds * rng.standard_normal(shape), np.nan)


def complete(weights: Floats, num_seeds: int, looks: tuple[int, ...] = ()) -> Design:
    """The design of a study in which no value is missing."""
    return Design(rows_of(weights), ((True,) * num_seeds,) * weights.shape[1], looks)


def rows_of(weights: Floats) -> Rows:
    """The weights as a value that can be told apart and remembered."""
    return tuple(map(tuple, weights.tolist()))


def pair_rows(pairs: Iterable[tuple[int, int]], num_cells: int) -> Floats:
    """For each pair of cells the second less the first."""
    cells = np.eye(num_cells)
    return np.array([cells[b] - cells[a] for a, b in pairs]).reshape(-1, num_cells)


def all_pairs(num_cells: int) -> Floats:
    """Every cell less every one before it."""
    return pair_rows(combinations(range(num_cells), 2), num_cells)


@lru_cache(maxsize=64)
def _pair_rows(num_cells: int) -> Floats:
    """The pairs of cells that noise is estimated from."""
    if num_cells <= ALL_PAIRS_UP_TO:
        return all_pairs(num_cells)
    near = range(1, NUM_NEIGHBOURS + 1)
    ring = ((cell, (cell + step) % num_cells) for cell in range(num_cells) for step in near)
    return pair_rows(ring, num_cells)


def table_of(values: Mapping[str, Mapping[int, float]]) -> tuple[tuple[str, ...], Floats]:
    """The cells that have a finite value, and their values by seed, NaN where there is none."""
    known = {cell: one for cell, one in values.items() if any(map(math.isfinite, one.values()))}
    seeds = sorted({seed for by_seed in values.values() for seed in by_seed})
    rows = [[by_seed.get(seed, math.nan) for seed in seeds] for by_seed in known.values()]
    table = np.array(rows).reshape(len(known), len(seeds))
    return tuple(known), np.where(np.isfinite(table), table, math.nan)
