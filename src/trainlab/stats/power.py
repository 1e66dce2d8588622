"""What a number of seeds can settle, before or after they are run; noise is taken to be normal."""

import math
from bisect import bisect_left
from functools import lru_cache

import numpy as np
from scipy import special

from trainlab.stats.paired import fewest_pairs

POWER = 0.8
"""The chance of finding an effect that is there, at which seeds are counted."""

MOST_SEEDS = 10_000
"""An estimate beyond this says nothing: it is not given."""

DRAWS = 4000
COARSE = 128
"""With fewer patterns than this beyond the level the sign flip is coarser than t: simulated."""
LOWEST = 10


@lru_cache(maxsize=4096)
def detectable(num_seeds: int, level: float, power: float = POWER) -> float | None:
    """The smallest mean difference that is found with this power, in standard deviations.

    `None` if so few seeds never reach the level.
    """
    fewest = fewest_pairs(level)
    if fewest is None or num_seeds < fewest:
        return None
    # Of the 2^(n-1) patterns of signs this many may beat the observed one.
    rank = int(level * 2.0 ** min(num_seeds - 1, 60))
    if rank < COARSE:
        return _by_simulation(num_seeds, level, rank, power)
    quantile = special.stdtrit(num_seeds - 1, 1 - level / 2)
    shift = special.nctdtrinc(num_seeds - 1, 1 - power, quantile)
    return float(shift / math.sqrt(num_seeds))


def seeds_for(effect: float, level: float, power: float = POWER) -> int | None:
    """How many seeds find an effect, given in standard deviations; `None` if unknowably many."""
    fewest = fewest_pairs(level)
    if fewest is None or not effect:
        return None
    counts = range(fewest, MOST_SEEDS + 1)
    place = bisect_left(counts, -abs(effect), key=lambda n: -(detectable(n, level, power) or 0.0))
    return counts[place] if place < len(counts) else None


def _by_simulation(num_seeds: int, level: float, rank: int, power: float) -> float:
    """The quantile, over draws of noise, of the shift from which on both tests reject.

    Flipping a subset of the pairs beats the observed sum if the shift is at most minus the subset's
    mean, so the sign flip rejects beyond the rank-th largest of these. Subsets of the lowest ten
    values are enough: with those of twelve the effect is at most 1 % larger.
    """
    noise = np.random.default_rng(num_seeds).standard_normal((DRAWS, num_seeds))
    quantile = special.stdtrit(num_seeds - 1, 1 - level / 2)
    by_student = quantile * noise.std(axis=1, ddof=1) / math.sqrt(num_seeds) - noise.mean(axis=1)
    lowest = np.sort(noise, axis=1)[:, :LOWEST]
    members = np.arange(1, 2 ** lowest.shape[1])[:, np.newaxis] >> np.arange(lowest.shape[1]) & 1
    weights = (members / members.sum(axis=1, keepdims=True)).T
    # A few draws at a time: all at once would need 32 MiB.
    by_flip = [
        np.partition(-(some @ weights), -rank, axis=1)[:, -rank]
        for some in np.array_split(lowest, 16)
    ]
    shifts = np.maximum(by_student, np.concatenate(by_flip))
    return float(np.quantile(shifts, power))
