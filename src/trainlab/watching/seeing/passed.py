"""Passed: what is noted of steps that are passed by, and nothing else of them is seen.

Every wrapper costs a script microseconds, most of them for memory that its own work has pushed out of the
cache: what is asked in each of them lies in one small object.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainlab.watching.seeing.seen import SeenLoader

DATA_BEGINS, DATA_ENDS, BACKWARD_BEGINS, GRADIENT_BEGINS, UPDATE_ENDS = range(5)
"""The fourth is that of `torch.autograd.grad`, which tells no loss."""
NUM_MARKS: Final = 5
MOST_KEPT: Final = 4096
"""Marks of a stretch of steps."""
BITS: Final = 3
"""That a mark needs."""


class Passed:
    """Marks in the order in which they were passed by, and what came with them."""

    __slots__ = (
        *("is_free", "is_inside", "is_on", "is_quick", "lead", "loader", "log", "num_wanted"),
        *("optimizers", "shapes"),
    )

    def __init__(self) -> None:
        self.is_on = self.is_quick = False
        """The second: and by the shortest way."""
        self.is_inside = False
        """A backward pass is under way."""
        self.is_free = False
        """By the shortest way, none is, and no loss was scaled for the next."""
        self.lead: int | None = None
        """Of the optimizer whose updates end the steps of the stretch: its identity."""
        self.loader: SeenLoader | None = None
        """The one that gives their batches."""
        self.num_wanted = 0
        """Marks: the update that follows so many ends the stretch."""
        self.log: list[int] = []
        """When each mark was, in nanoseconds, with the mark in its last BITS."""
        self.shapes: list[Sequence[int] | None] = []
        """Of each batch; None: there was none, as at the end of a pass over the data."""
        self.optimizers: list[Any] = []
        """That made the updates."""

    @property
    def num_steps(self) -> int:
        """That have ended."""
        return [*map(id, self.optimizers)].count(self.lead or 0)

    def clear(self) -> None:
        """All are dealt with."""
        self.log.clear()
        self.shapes.clear()
        self.optimizers.clear()

    def sizes(self) -> list[int | None]:
        """Of each batch, in samples; None as above."""
        return [None if shape is None else shape[0] if shape else 0 for shape in self.shapes]

    def decoded(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The marks, and when they were."""
        log = np.array(self.log, dtype=np.int64)
        return log & (2**BITS - 1), log >> BITS
