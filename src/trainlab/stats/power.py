"""What a number of seeds can show, before or after they are run; noise is taken as normal.

From simulated studies decided by the same test, so that it holds for the test as it is: before a study its
cells are taken to be equally noisy, afterwards each is as noisy as it was.
"""

import math
import warnings
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from trainlab.stats.contrasts import Floats, Rows, complete, critical_of, estimate, null_studies

POWER = 0.8
"""The chance of detecting a true effect, at which needed seeds are counted."""

MOST_SEEDS = 10_000
"""An estimate beyond this says nothing: it is not given."""

NUM_DRAWS = 8_000
OWN_DRAWS = 1_000
"""Where the noise of the cells is their own: then every metric needs a simulation to itself."""
COUNTS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
"""Numbers of seeds that are simulated; between and beyond them needs fall with the root of the number."""

MANY_CELLS = 12


class Ability(NamedTuple):
    """What so many seeds show with power 0.8, in the unit of the noise; one entry per contrast."""

    difference: Floats
    """The smallest true difference that is found."""
    margin: Floats
    """The smallest margin within which cells that do not differ are shown to be equivalent."""
    beyond: Floats
    """How far a margin must lie beyond a true difference for equivalence to be shown."""


def relative_stds(values: Floats) -> tuple[float, ...]:
    """Of the cells of values [cells, seeds], NaN where there is none; empty where nothing varies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        stds = np.nanstd(values, axis=1, ddof=1)
    largest = np.nanmax(stds, initial=0.0)
    if not largest > 0:
        return ()
    relative = np.where(np.isfinite(stds), stds, np.nanmedian(stds)) / largest
    # Rounded, so that the same noise is simulated once; values that are equal by chance are not without.
    return tuple(float(f"{max(std, 0.01):.2g}") for std in relative)


@lru_cache(maxsize=256)
def ability(weights: Rows, num_seeds: int, stds: tuple[float, ...] = ()) -> Ability:
    """Of a complete study of so many seeds; `stds` are those of the cells, all 1 unless given."""
    if num_seeds > COUNTS[-1]:
        factor = math.sqrt(COUNTS[-1] / num_seeds)
        return Ability(*(factor * part for part in ability(weights, COUNTS[-1], stds)))
    rows = np.array(weights)
    design = complete(rows, num_seeds)
    # What a report has simulated for its intervals is used again where it took long.
    is_large = len(weights[0]) > MANY_CELLS
    critical = critical_of(design) if is_large else critical_of(design, NUM_DRAWS)
    of_cells = np.array(stds or (1.0,) * rows.shape[1])[:, np.newaxis]
    studies = null_studies(design, OWN_DRAWS if stds else NUM_DRAWS, 0.0)
    drawn = [estimate(noise * of_cells, rows) for noise in studies]
    found = [each.half_width(critical.two_sided) - each.value for each in drawn]
    above = [each.half_width(critical.one_sided) + each.value for each in drawn]
    around = [each.half_width(critical.one_sided) + np.abs(each.value) for each in drawn]
    parts = (found, around, above)
    return Ability(*(np.quantile(np.concatenate(part), POWER, axis=0) for part in parts))


def seeds_for(
    weights: Rows,
    contrast: int,
    effect: float,
    margin: float | None = None,
    known: int = 3,
    stds: tuple[float, ...] = (),
) -> int | None:
    """How many seeds show a true effect, or that it lies within the margin; both in the unit of `stds`.
    `None` if too many to estimate. `known`: a number of seeds that has been simulated already."""
    # Of many cells one simulation takes long, and how much they know of their noise hardly changes.
    counts = COUNTS if len(weights[0]) <= MANY_CELLS else (min(max(known, COUNTS[0]), COUNTS[-1]),)
    num_seeds = COUNTS[0]
    while num_seeds <= MOST_SEEDS:
        simulated = max((count for count in counts if count <= num_seeds), default=counts[0])
        factor = math.sqrt(simulated / num_seeds)
        found, least, beyond = (factor * p[contrast] for p in ability(weights, simulated, stds))
        is_within = margin is not None and margin >= max(least, abs(effect) + beyond)
        if abs(effect) >= found or is_within:
            return num_seeds
        # From few seeds to many, in steps of a few per cent.
        num_seeds = num_seeds + 1 if num_seeds < COUNTS[-1] else math.ceil(1.05 * num_seeds)
    return None
