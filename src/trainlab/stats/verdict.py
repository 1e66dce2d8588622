"""Two cells over the same seeds: different, equivalent, identical, or cannot tell.

All comparisons of a metric are one family (`contrasts`): the interval that is shown is the one that
decides. "Different": the simultaneous 95% interval of the difference excludes zero. "Equivalent": the
simultaneous 90% interval lies within a margin stated beforehand, and as many seeds diverged in the one
cell as in the other. "Identical": every seed gave the same value in both.

How often each is right, on studies whose truth is known: `benchmarks.verdicts`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np

from trainlab.errors import SpecError
from trainlab.stats.contrasts import Floats, Rows, compare_cells, pair_rows, rows_of, table_of
from trainlab.stats.means import Interval
from trainlab.stats.power import MOST_SEEDS, ability, relative_stds, seeds_for

# How many runs failed to learn in two cells, and whether that differs beyond chance.


@dataclass(frozen=True)
class Failures:
    """Runs of two cells, and how many of each ended without a finite value."""

    num_a: int
    of_a: int
    num_b: int
    of_b: int
    num_left_out: int
    """Seeds that both cells have and of which at least one failed."""

    @classmethod
    def of(cls, a: Mapping[int, float], b: Mapping[int, float]) -> "Failures":
        """From the final values by seed."""
        failed_a, failed_b = ({s for s, v in x.items() if not math.isfinite(v)} for x in (a, b))
        left_out = (failed_a | failed_b) & a.keys() & b.keys()
        return cls(len(failed_a), len(a), len(failed_b), len(b), len(left_out))

    @property
    def differ(self) -> bool:
        """Whether the one cell failed more often than the other, be it by chance."""
        return self.num_a * self.of_b != self.num_b * self.of_a

    @property
    def p(self) -> float | None:
        """Fisher's exact test, two-sided; `None` where nothing failed or a cell has no runs."""
        failed = self.num_a + self.num_b
        if not failed or not (self.of_a and self.of_b):
            return None
        # In how many ways so many of the first cell fail; counts as unlikely as what was seen add up.
        ways = [
            math.comb(self.of_a, in_a) * math.comb(self.of_b, failed - in_a)
            for in_a in range(failed + 1)
        ]
        unlikely = sum(count for count in ways if count <= ways[self.num_a])
        return unlikely / math.comb(self.of_a + self.of_b, failed)


Verdict = Literal["different", "equivalent", "identical", "cannot tell"]
BySeed = Mapping[int, float]
"""The final value of each trial of a cell, by seed; not finite where it diverged."""

FEWEST_SEEDS = 2
"""One seed knows nothing of its noise."""
ROUNDING = 1e-12
"""Relative: values that differ by no more are the same."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The difference `b` minus `a` over seeds, and what may be said about it."""

    n: int
    """Pairs compared."""
    num_dropped: int
    """Seeds that only one of the cells has."""
    failures: Failures
    """Seeds left out because a value was not finite, by cell."""
    mean_a: float | None
    mean_b: float | None
    difference: float | None
    interval: Interval | None
    """The one that decides: simultaneous over the family, at `confidence`. `None` below two pairs."""
    confidence: float
    """0.90 beside "equivalent" and where that is withheld, otherwise 0.95."""
    p: float | None
    """Of a difference as large somewhere in the family where nothing differs; `None` below two pairs."""
    std: float | None
    """Of a run, as estimated for this comparison from all cells."""
    margin: float | None
    """Differences smaller than this do not matter; `None`: not stated, so never equivalent."""
    family: int
    """Comparisons decided together."""
    verdict: Verdict
    is_withheld: bool
    """Whether it would be equivalent or identical, had as many seeds diverged in both cells."""
    detectable: float | None
    """The smallest difference that so many seeds detect with power 0.8."""
    seeds_needed: int | None
    """To decide it with power 0.8 if the effect is as seen; `None`: decided, or not to be estimated."""

    @property
    def num_diverged(self) -> int:
        """Seeds of both cells of which at least one diverged."""
        return self.failures.num_left_out


def are_identical(values: Floats) -> bool:
    """Whether cells [cells, seeds] have the same value in every one of two seeds or more."""
    if values.shape[1] < FEWEST_SEEDS:
        return False
    spread, size = np.ptp(values, axis=0), np.abs(values).max(axis=0)
    return bool((spread <= ROUNDING * size).all())


def compare_all(
    values: Mapping[str, BySeed],
    pairs: Sequence[tuple[str, str]],
    margin: float | None = None,
    *,
    looks: tuple[int, ...] = (),
    resolution: float = 0.0,
    most: float = math.inf,
) -> tuple[Comparison, ...]:
    """One comparison per pair of cells, decided as one family; the noise of all cells is used.

    `looks`: after how many seeds verdicts are made; `resolution`: the step in which values come; `most`:
    the largest difference there can be. SpecError if the margin is not positive.
    """
    check_margin(margin)
    cells, table = table_of(values)
    tested = [pair for pair in pairs if {*pair} <= {*cells} and pair[0] != pair[1]]
    found: dict[tuple[str, str], _Found] = {}
    if tested:
        weights = pair_rows(((cells.index(a), cells.index(b)) for a, b in tested), len(cells))
        family, stds = compare_cells(table, weights, looks, resolution), relative_stds(table)
        of = family.estimates
        widths = family.half_width, family.half_width_90
        entries = np.stack([of.value, *widths, of.error, of.std, family.p], axis=1).tolist()
        for index, (pair, numbers) in enumerate(zip(tested, entries, strict=True)):
            if not math.isnan(of.value[index]):
                found[pair] = _Found(rows_of(weights), index, stds, bool(looks), *numbers)
    return tuple(
        _compared(values[a], values[b], found.get((a, b)), margin, len(tested), most)
        for a, b in pairs
    )


def check_margin(margin: float | None) -> None:
    """SpecError unless the margin is positive and finite, or not stated."""
    if margin is not None and not 0 < margin < math.inf:
        raise SpecError([f"margin: got {margin}, must be above 0 and finite"])


class _Found(NamedTuple):
    """What a family says about one of its contrasts, and what more seeds would."""

    weights: Rows
    place: int
    stds: tuple[float, ...]
    """How noisy cells are beside each other."""
    has_looks: bool
    value: float
    half_width: float
    half_width_90: float
    error: float
    std: float
    p: float

    @property
    def unit(self) -> float:
        """Of `stds`: this contrast is as noisy as was seen, also where seeds do alike to its cells."""
        parts = np.abs(self.weights[self.place]) / 2
        return self.std / math.sqrt(parts @ np.square(self.stds)) if self.stds else self.std

    def detectable(self, num_seeds: int) -> float:
        """The smallest difference that so many seeds find with power 0.8."""
        if self.has_looks:
            # Each look asks for more than a study of as many seeds: 0.84 errors beyond give power 0.8.
            return self.half_width + 0.8416 * self.error
        able = ability(self.weights, num_seeds, self.stds)
        # An interval that happens to be wider than usual leaves out no difference smaller than itself.
        return max(self.half_width, float(able.difference[self.place]) * self.unit)

    def seeds_needed(self, margin: float | None, num_seeds: int) -> int | None:
        """How many would decide it if the difference is as it was seen."""
        if not self.std:
            return None
        if self.has_looks:
            needed = math.inf
            if self.value:
                needed = num_seeds * (self.detectable(num_seeds) / self.value) ** 2
            return math.ceil(needed) if needed <= MOST_SEEDS else None
        in_units = None if margin is None else margin / self.unit
        effect = self.value / self.unit
        seeds = seeds_for(self.weights, self.place, effect, in_units, num_seeds, self.stds)
        return None if seeds is None else max(seeds, num_seeds + 1)


def _compared(
    a: BySeed, b: BySeed, found: _Found | None, margin: float | None, family: int, most: float
) -> Comparison:
    both = sorted(a.keys() & b.keys())
    seeds = [seed for seed in both if math.isfinite(a[seed]) and math.isfinite(b[seed])]
    failures = Failures.of(a, b)
    is_identical = are_identical(np.array([[cell[s] for s in seeds] for cell in (a, b)]))
    mean_a, mean_b = (fmean(cell[s] for s in seeds) if seeds else None for cell in (a, b))
    difference = None if mean_a is None or mean_b is None else mean_b - mean_a
    verdict: Verdict = "cannot tell"
    half_width = None if found is None else found.half_width
    if found is not None and difference is not None:
        if abs(difference) > found.half_width:
            verdict = "different"
        elif margin is not None and abs(difference) + found.half_width_90 < margin:
            verdict, half_width = "equivalent", found.half_width_90
    if is_identical:
        verdict, difference, half_width = "identical", 0.0, None
    is_withheld = verdict in ("equivalent", "identical") and failures.differ
    if is_withheld:
        # The interval of 90% may leave out zero, which must not stand beside "cannot tell".
        half_width = None if is_identical or found is None else found.half_width
        verdict = "cannot tell"
    interval = None
    if difference is not None and half_width is not None:
        interval = Interval(max(-most, difference - half_width), min(most, difference + half_width))
    is_open = verdict == "cannot tell" and not is_withheld
    return Comparison(
        n=len(seeds),
        num_dropped=len(a.keys() ^ b.keys()),
        failures=failures,
        mean_a=mean_a,
        mean_b=mean_b,
        difference=difference,
        interval=interval,
        confidence=0.90 if verdict == "equivalent" else 0.95,
        p=None if found is None or is_identical else found.p,
        std=None if found is None else found.std,
        margin=margin,
        family=family,
        verdict=verdict,
        is_withheld=is_withheld,
        detectable=None if found is None else found.detectable(len(seeds)),
        seeds_needed=found.seeds_needed(None if failures.differ else margin, len(seeds))
        if found is not None and is_open
        else None,
    )
