"""Stretches: what lies between two marks of a step, learned where all of its calls are seen.

Marks are calls that are always seen: a batch is fetched, a backward pass begins, an update has been made.
Of most steps of a long training nothing else is seen, so that they run as fast as without us; the time
between two marks of theirs is divided as it was on average in the steps of which all was seen.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainlab.watching.seeing.passed import DATA_BEGINS, DATA_ENDS, NUM_MARKS

UNUSUAL_NS: Final = 1_000_000
"""So much longer, at least, than twice any stretch before is one that has to be looked at."""
MOST_LEARNED: Final = 500
"""Stretches that are kept one by one."""
_FETCHING: Final = DATA_BEGINS * NUM_MARKS + DATA_ENDS
"""Within one call: however long it takes, it is that call."""


class Stretches:
    """What stretches consist of, by the marks at both ends."""

    def __init__(self, num_parts: int, other: int) -> None:
        """`other`: the part of what is not known."""
        self._other = other
        self._learned: list[tuple[int, list[int]]] = []
        """Kinds and parts that the rest does not know of yet."""
        self._sums_ns = np.zeros((NUM_MARKS**2, num_parts))
        self._shares = np.zeros((NUM_MARKS**2, num_parts))
        self._longest_ns = np.zeros(NUM_MARKS**2, dtype=np.int64)
        self._unusual_ns = np.zeros(NUM_MARKS**2, dtype=np.int64)
        self._unusual_ns[_FETCHING] = 2**62

    def learn(self, first: int, last: int, parts_ns: list[int]) -> None:
        """A stretch of which all is known."""
        self._learned.append((first * NUM_MARKS + last, parts_ns))
        if len(self._learned) >= MOST_LEARNED:
            self._learn()

    def _learn(self) -> None:
        kinds = np.array([kind for kind, _ in self._learned])
        parts_ns = np.array([parts for _, parts in self._learned])
        self._learned.clear()
        np.add.at(self._sums_ns, kinds, parts_ns)
        np.maximum.at(self._longest_ns, kinds, parts_ns.sum(axis=1))
        usual_ns = np.where(self._longest_ns > 0, 2 * self._longest_ns + UNUSUAL_NS, 0)
        np.maximum(self._unusual_ns, usual_ns, out=self._unusual_ns)
        totals_ns = self._sums_ns.sum(axis=1, keepdims=True)
        np.divide(self._sums_ns, totals_ns, out=self._shares, where=totals_ns > 0)

    def divide(
        self, marks: NDArray[np.int64], spent_ns: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], bool]:
        """The parts of the time before each of the marks, the first of which follows the one before; and
        whether nothing was unusual about any. What is longer than any that was seen whole may hold
        anything: the rest is `other`."""
        if self._learned:
            self._learn()
        kinds = marks[:-1] * NUM_MARKS + marks[1:]
        shares = self._shares[kinds]
        known_ns = np.minimum(spent_ns, self._longest_ns[kinds])
        # One that is all of one part is, however long.
        known_ns = np.where(shares.max(axis=1) == 1.0, spent_ns, known_ns)
        parts_ns = (known_ns[:, None] * shares).astype(np.int64)
        parts_ns[:, self._other] += spent_ns - parts_ns.sum(axis=1)
        is_unusual = spent_ns > self._unusual_ns[kinds]
        if not is_unusual.any():
            return parts_ns, True
        expected_ns = 2 * spent_ns[is_unusual] + UNUSUAL_NS
        np.maximum.at(self._unusual_ns, kinds[is_unusual], expected_ns)
        return parts_ns, False
