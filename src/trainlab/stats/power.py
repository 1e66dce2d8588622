"""Which effects a number of seeds can detect, before or after they are run; noise is taken as normal."""

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import special

from trainlab.stats.paired import fewest_pairs

POWER = 0.8
"""The chance of detecting a true effect, at which needed seeds are counted."""

MOST_SEEDS = 10_000
"""An estimate beyond this says nothing: it is not given."""

NUM_DRAWS = 4000
SIMULATED_BELOW = 128
"""Power is simulated if fewer sign patterns than this may lie beyond the level: coarser than t."""
NUM_LOWEST = 10


@lru_cache(maxsize=4096)
def detectable(num_seeds: int, level: float, power: float = POWER) -> float | None:
    """The smallest mean difference that is detected with this power, in standard deviations.

    `None` if so few seeds never reach the level.
    """
    fewest = fewest_pairs(level)
    if fewest is None or num_seeds < fewest:
        return None
    # Of the 2^(n-1) patterns of signs this many may exceed the observed one.
    rank = int(level * 2.0 ** min(num_seeds - 1, 60))
    if rank < SIMULATED_BELOW:
        return _detectable_by_simulation(num_seeds, level, rank, power)
    quantile = special.stdtrit(num_seeds - 1, 1 - level / 2)
    shift = special.nctdtrinc(num_seeds - 1, 1 - power, quantile)
    return float(shift / math.sqrt(num_seeds))


def seeds_for(effect: float, level: float, power: float = POWER) -> int | None:
    """How many seeds detect an effect, given in standard deviations; `None` if too many to estimate."""
    fewest = fewest_pairs(level)
    if fewest is None or not effect:
        return None
    counts = range(fewest, MOST_SEEDS + 1)
    return fewest_detecting(abs(effect), counts, lambda n: detectable(n, level, power) or 0.0)


def fewest_detecting(effect: float, counts: range, smallest: Callable[[int], float]) -> int | None:
    """The first count whose smallest detectable effect, which falls with the count, is at most this."""
    index = bisect_left(counts, -effect, key=lambda n: -smallest(n))
    return counts[index] if index < len(counts) else None


def _detectable_by_simulation(num_seeds: int, level: float, rank: int, power: float) -> float:
    """The quantile, over draws of noise, of the smallest shift at which both tests reject.

    Flipping the signs of a subset of the pairs exceeds the observed sum if the shift is at most minus
    the subset's mean, so the sign flip rejects beyond the rank-th largest of these. Subsets of the
    lowest ten values are enough: with those of twelve the effect is at most 1 % larger.
    """
    noise = np.random.default_rng(num_seeds).standard_normal((NUM_DRAWS, num_seeds))
    quantile = special.stdtrit(num_seeds - 1, 1 - level / 2)
    by_student = quantile * noise.std(axis=1, ddof=1) / math.sqrt(num_seeds) - noise.mean(axis=1)
    lowest = np.sort(noise, axis=1)[:, :NUM_LOWEST]
    members = np.arange(1, 2 ** lowest.shape[1])[:, np.newaxis] >> np.arange(lowest.shape[1]) & 1
    weights = (members / members.sum(axis=1, keepdims=True)).T
    # A few draws at a time: all at once would need 32 MiB.
    by_flip = [
        np.partition(-(draws @ weights), -rank, axis=1)[:, -rank]
        for draws in np.array_split(lowest, 16)
    ]
    shifts = np.maximum(by_student, np.concatenate(by_flip))
    return float(np.quantile(shifts, power))
