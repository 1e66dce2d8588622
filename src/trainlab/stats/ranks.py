"""Two groups compared by rank, for values that may be censored: never is later than any time."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from trainlab.stats.contrasts import Floats

MOST_ORDERS = 20_000
"""Ways to divide the values that are all tried; with more, as many are drawn."""


def rank_p(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Two-sided p of the rank sum, by permutation; infinite values are ties at the end.

    `None` where a group is empty or all values are equal.
    """
    values = np.array([*a, *b])
    if not len(a) or not len(b) or len(np.unique(values)) < 2:
        return None
    ranks = _midranks(values)
    middle = ranks.mean() * len(a)
    observed = abs(ranks[: len(a)].sum() - middle) - 1e-9
    if math.comb(len(values), len(a)) <= MOST_ORDERS:
        chosen = np.array(list(combinations(range(len(values)), len(a))))
        return float((np.abs(ranks[chosen].sum(axis=1) - middle) >= observed).mean())
    rng = np.random.default_rng(0)
    drawn = rng.permuted(np.tile(ranks, (MOST_ORDERS, 1)), axis=1)[:, : len(a)]
    beyond = (np.abs(drawn.sum(axis=1) - middle) >= observed).sum()
    return float((beyond + 1) / (MOST_ORDERS + 1))


def censored_median(values: Sequence[float]) -> float | None:
    """The median with infinite values counted as later than all others; `None` where it is one of them."""
    ordered = sorted(values)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return middle if math.isfinite(middle) else None


def _midranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse])
