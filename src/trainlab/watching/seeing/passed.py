"""Passed: what is noted of steps that are passed by, and nothing else of them is seen.

Every wrapper costs a script microseconds, most of them for memory that its own work has pushed out of the
cache: what is asked in each of them lies in one small object.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainlab.watching.seeing.seen import SeenLoader, SeenOptimizer

BACKWARD_BEGINS, GRADIENT_BEGINS, UPDATE_ENDS, DATA_BEGINS, DATA_ENDS = range(5)
"""The second is that of `torch.autograd.grad`, which tells no loss. Those that a coarse clock does not tell
apart were in this order: a forward pass, which lies before the first, takes its time."""
NUM_MARKS: Final = 5
MOST_UPDATES: Final = 1024
"""Of a stretch of steps."""


class Passed:
    """Marks in the order in which they were passed by, and what came with them."""

    __slots__ = (
        *("at_ns", "has_closure", "is_by_another", "is_free", "is_inside", "is_on", "is_quick"),
        *("lead", "lead_id", "loader", "makers", "num_wanted", "others", "shapes"),
    )

    def __init__(self) -> None:
        self.is_on = self.is_quick = False
        """The second: and by the shortest way."""
        self.is_inside = False
        """A backward pass is under way."""
        self.is_free = False
        """By the shortest way, none is, and no loss was scaled for the next."""
        self.makers: dict[int, SeenOptimizer] = {}
        """Optimizers that may make its updates, by their identity; the script's own are not held on to."""
        self.lead: SeenOptimizer | None = None
        """The one whose updates end the steps of the stretch."""
        self.lead_id = 0
        """The identity of the script's own."""
        self.loader: SeenLoader | None = None
        """The one that gives their batches."""
        self.has_closure = False
        """The last update was made by one, within which lie the backward passes before its mark."""
        self.is_by_another = False
        """The last update was made by an optimizer that was not there when the stretch began."""
        self.num_wanted = 0
        """Updates, of which the last or one that follows ends the stretch."""
        self.at_ns: tuple[list[int], ...] = tuple([] for _ in range(NUM_MARKS))
        """When marks were, in nanoseconds, by mark: nothing is done to a time but to keep it."""
        self.shapes: list[Sequence[int] | None] = []
        """Of each batch; None: there was none, as at the end of a pass over the data."""
        self.others: list[tuple[int, SeenOptimizer]] = []
        """Updates by other optimizers than that: the place of each among all, and who made it."""

    @property
    def num_steps(self) -> int:
        """That have ended."""
        return len(self.at_ns[UPDATE_ENDS]) - len(self.others)

    def clear(self) -> None:
        """All are dealt with."""
        self.has_closure = self.is_by_another = False
        for times_ns in self.at_ns:
            times_ns.clear()
        self.shapes.clear()
        self.others.clear()

    def sizes(self) -> list[int | None]:
        """Of each batch, in samples; None as above."""
        return [None if shape is None else shape[0] if shape else 0 for shape in self.shapes]

    def optimizers(self) -> list[SeenOptimizer | None]:
        """That made the updates."""
        makers = [self.lead] * len(self.at_ns[UPDATE_ENDS])
        for place, maker in self.others:
            if place < len(makers):
                makers[place] = maker
        return makers

    def decoded(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The marks in their order, and when they were."""
        # An interrupt of the script's may have come between a mark and what comes with it.
        number = min(len(self.shapes), len(self.at_ns[DATA_ENDS]))
        del self.shapes[number:], self.at_ns[DATA_ENDS][number:]
        marks = np.repeat(np.arange(NUM_MARKS), [*map(len, self.at_ns)])
        at_ns = np.array([*chain(*self.at_ns)], dtype=np.int64)
        order = np.argsort(at_ns, kind="stable")
        return marks[order], at_ns[order]
