"""How often a run of one setting beats a run of another, whatever their scale."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy import optimize

from trainlab.stats.means import Interval

Z = 1.959963984540054
"""The 97.5% quantile of the normal distribution."""
NUDGE = 1e-9


@dataclass(frozen=True)
class Superiority:
    """The chance that a value of `b` is above one of `a`, ties counted half."""

    value: float
    interval: Interval
    """95%."""


def superiority(a: Sequence[float], b: Sequence[float]) -> Superiority | None:
    """From every pair of values; `None` below two values in a cell.

    The interval solves for the chances whose own error, that of exponential scores (Hanley and McNeil,
    symmetrised by Newcombe), reaches the observed share: it stays within 0 and 1 and is not empty where
    one cell always wins.
    """
    if min(len(a), len(b)) < 2:
        return None
    wins = sum((y > x) + (y == x) / 2 for x in a for y in b)
    share = wins / (len(a) * len(b))
    half = (len(a) + len(b)) / 2

    def distance(true: float) -> float:
        """Of the observed share from a true one, in its errors, squared."""
        spread = (half - 1) * ((1 - true) / (2 - true) + true / (1 + true)) + 1
        variance = true * (1 - true) * spread / (len(a) * len(b))
        return (share - true) ** 2 - Z**2 * variance

    return Superiority(share, Interval(_root(distance, 0.0, share), _root(distance, 1.0, share)))


def _root(distance: Callable[[float], float], end: float, share: float) -> float:
    """Where the distance changes its sign between the end and the observed share."""
    if share == end:
        return end
    # Off the share itself, where a share of 0 or 1 has no error and the distance is zero too.
    return float(optimize.brentq(distance, end, share + NUDGE * (end - share)))
