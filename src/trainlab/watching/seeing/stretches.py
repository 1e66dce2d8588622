"""Stretches: what lies between two marks of a step, learned where all of its calls are seen.

Marks are calls that are always seen: a batch is fetched, a backward pass begins, an update has been made.
Of most steps of a long training nothing else is seen, so that they run as fast as without us; the time
between two marks of theirs is divided as it was on average in those steps of which all was seen that took
about as long there: a script that does something else every fifty steps takes longer in these.
"""

import math
from collections import defaultdict
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
REMEMBERED: Final = 20
"""Of each kind and length, about so many count: what a script does may change."""
REMEMBERED_OF_OTHERS: Final = 2
"""And so many of those before it did."""
LENGTHS: Final = 120
"""That are told apart: from a microsecond to a quarter of an hour."""
PER_DOUBLING: Final = 4
"""So many of those until one is twice as long."""
_SHORTEST: Final = 10
"""Of a nanosecond, so often doubled."""
_FETCHING: Final = DATA_BEGINS * NUM_MARKS + DATA_ENDS
"""Within one call: however long it takes, it is that call."""


class Stretches:
    """What stretches consist of, by the marks at both ends and by how long they are."""

    def __init__(self, num_parts: int, other: int) -> None:
        """`other`: the part of what is not known."""
        self._other = other
        self._learned: list[tuple[int, list[int]]] = []
        """Kinds and parts that the rest does not know of yet: all at once is faster."""
        num_kinds = NUM_MARKS**2
        self._shares = np.zeros((num_kinds * LENGTHS, num_parts))
        """Of the parts, by kind and length; those of which one is known."""
        self._nearest = np.arange(num_kinds * LENGTHS)
        """Where the shares of each stand: of a length that was never seen, beside those next to it."""
        self._numbers = np.zeros(num_kinds * LENGTHS, dtype=np.int64)
        """So many count in the shares."""
        self._means_ns = np.zeros(num_kinds)
        self._longest_ns = np.zeros(num_kinds, dtype=np.int64)
        self._most_known_ns = np.zeros(num_kinds)
        self._unusual_ns = np.zeros(num_kinds, dtype=np.int64)
        self._unusual_ns[_FETCHING] = 2**62
        self._parts: dict[int, set[int]] = defaultdict(set)
        """Those that a kind has had."""

    def learn(self, first: int, last: int, parts_ns: list[int]) -> None:
        """A stretch of which all is known."""
        self._learned.append((first * NUM_MARKS + last, parts_ns))
        if len(self._learned) >= MOST_LEARNED:
            self._learn_all()

    def _learn_all(self) -> None:
        lengths_ns = [sum(parts_ns) for _, parts_ns in self._learned]
        places = _places(np.array(lengths_ns, dtype=np.int64)).tolist()
        for (kind, parts_ns), length_ns, place in zip(
            self._learned, lengths_ns, places, strict=True
        ):
            if length_ns:
                self._learn(kind, kind * LENGTHS + place, parts_ns, length_ns)
        self._learned.clear()

    def _learn(self, kind: int, place: int, parts_ns: list[int], length_ns: int) -> None:
        number = min(int(self._numbers[place]) + 1, REMEMBERED)
        self._numbers[place] = number
        self._shares[place] += (np.array(parts_ns) / length_ns - self._shares[place]) / number
        if number == 1:
            self._find_nearest(kind)
        self._parts[kind].update(part for part, spent_ns in enumerate(parts_ns) if spent_ns)
        longest_ns = max(int(self._longest_ns[kind]), length_ns)
        self._longest_ns[kind] = longest_ns
        self._unusual_ns[kind] = max(int(self._unusual_ns[kind]), 2 * longest_ns + UNUSUAL_NS)
        # One that is all of one part is, however long.
        self._most_known_ns[kind] = math.inf if len(self._parts[kind]) == 1 else longest_ns
        mean_ns = float(self._means_ns[kind]) or length_ns
        self._means_ns[kind] = mean_ns + (length_ns - mean_ns) / REMEMBERED

    def _find_nearest(self, kind: int) -> None:
        places = slice(kind * LENGTHS, (kind + 1) * LENGTHS)
        (known,) = self._numbers[places].nonzero()
        distances = np.abs(np.arange(LENGTHS)[:, None] - known)
        self._nearest[places] = kind * LENGTHS + known[distances.argmin(axis=1)]

    def divide(
        self,
        marks: NDArray[np.int64],
        spent_ns: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], bool]:
        """The parts of the time before each of the marks, the first of which follows the one before, added
        up in the row that each is of; and whether nothing was unusual about any. What is longer than any
        that was seen whole may hold anything: the rest is `other`."""
        self._learn_all()
        kinds = marks[:-1] * NUM_MARKS + marks[1:]
        known_ns = np.minimum(spent_ns, self._most_known_ns[kinds])
        shares = self._shares[self._nearest[kinds * LENGTHS + _places(spent_ns)]]
        (starts,) = np.diff(rows, prepend=-1).nonzero()
        shared_ns = np.add.reduceat(shares * known_ns[:, None], starts)
        # What lacks a whole nanosecond by rounding alone has it.
        parts_ns = (shared_ns + 0.01).astype(np.int64)
        parts_ns[:, self._other] += np.add.reduceat(spent_ns, starts) - parts_ns.sum(axis=1)
        is_unusual = spent_ns > self._unusual_ns[kinds]
        if not is_unusual.any():
            if has_changed := self._have_changed(kinds, spent_ns):
                np.minimum(self._numbers, REMEMBERED_OF_OTHERS, out=self._numbers)
                self._means_ns[:] = 0  # until the next is learned
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


def _places(lengths_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which of the lengths that are told apart each is."""
    doublings = np.log2(np.maximum(lengths_ns, 1 << _SHORTEST)) - _SHORTEST
    return np.minimum((doublings * PER_DOUBLING).astype(np.int64), LENGTHS - 1)
