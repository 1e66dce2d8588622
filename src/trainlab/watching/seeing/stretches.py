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
CHANGED: Final = 1.5
"""Where all stretches took so many times as long as the known ones, or this much less, they are others."""
MOST_LEARNED: Final = 500
"""Stretches that are kept one by one."""
REMEMBERED: Final = 60
"""Of each kind, about so many count: what a script does may change."""
REMEMBERED_OF_OTHERS: Final = 2
"""And so many of those before it did."""
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
        self._numbers = np.zeros(NUM_MARKS**2)
        self._means_ns = np.zeros(NUM_MARKS**2)
        self._longest_ns = np.zeros(NUM_MARKS**2, dtype=np.int64)
        self._most_known_ns = np.zeros(NUM_MARKS**2)
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
        np.add.at(self._numbers, kinds, 1)
        self._remember(REMEMBERED)
        np.maximum.at(self._longest_ns, kinds, parts_ns.sum(axis=1))
        usual_ns = np.where(self._longest_ns > 0, 2 * self._longest_ns + UNUSUAL_NS, 0)
        np.maximum(self._unusual_ns, usual_ns, out=self._unusual_ns)
        totals_ns = self._sums_ns.sum(axis=1, keepdims=True)
        np.divide(self._sums_ns, totals_ns, out=self._shares, where=totals_ns > 0)
        # One that is all of one part is, however long.
        is_one = self._shares.max(axis=1) == 1.0
        self._most_known_ns = np.where(is_one, np.inf, self._longest_ns)
        self._means_ns = totals_ns[:, 0] / np.maximum(self._numbers, 1)

    def _remember(self, number: int) -> None:
        """What is known weighs as much as so many of each kind, if it weighs more."""
        forgotten = np.maximum(self._numbers / number, 1)
        self._sums_ns /= forgotten[:, None]
        self._numbers /= forgotten

    def divide(
        self,
        marks: NDArray[np.int64],
        spent_ns: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], bool]:
        """The parts of the time before each of the marks, the first of which follows the one before, added
        up in the row that each is of; and whether nothing was unusual about any. What is longer than any
        that was seen whole may hold anything: the rest is `other`."""
        if self._learned:
            self._learn()
        kinds = marks[:-1] * NUM_MARKS + marks[1:]
        num_rows, num_kinds = int(rows[-1]) + 1, NUM_MARKS**2
        known_ns = np.minimum(spent_ns, self._most_known_ns[kinds])
        by_kind_ns = np.bincount(rows * num_kinds + kinds, known_ns, num_rows * num_kinds)
        shared_ns = by_kind_ns.reshape(num_rows, num_kinds) @ self._shares
        # What lacks a whole nanosecond by rounding alone has it.
        parts_ns = (shared_ns + 0.01).astype(np.int64)
        totals_ns = np.bincount(rows, spent_ns, num_rows).astype(np.int64)
        parts_ns[:, self._other] += totals_ns - parts_ns.sum(axis=1)
        is_unusual = spent_ns > self._unusual_ns[kinds]
        if not is_unusual.any():
            if has_changed := self._have_changed(kinds, spent_ns):
                self._remember(REMEMBERED_OF_OTHERS)
            return parts_ns, not has_changed
        expected_ns = 2 * spent_ns[is_unusual] + UNUSUAL_NS
        np.maximum.at(self._unusual_ns, kinds[is_unusual], expected_ns)
        return parts_ns, False

    def _have_changed(self, kinds: NDArray[np.int64], spent_ns: NDArray[np.int64]) -> bool:
        """Whether nearly all are longer or shorter. Waits for data are as long as they are."""
        means_ns = self._means_ns[kinds]
        is_told = (means_ns > 0) & (kinds != _FETCHING)
        known_ns = float(means_ns[is_told].sum())
        told_ns = float(np.minimum(spent_ns, self._longest_ns[kinds])[is_told].sum())
        return bool(known_ns) and not 1 / CHANGED < told_ns / known_ns < CHANGED
