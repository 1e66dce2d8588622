"""Blocks: many small batches gathered by one call, where a call takes longer than the copy it makes."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor]

MOST_BATCHES = 64
MOST_BYTES = 1 << 18
"""Of a block: it is still in the cache when its last batch is taken."""


class Blocks:
    """The batches of one epoch, in order."""

    def __init__(self, stored: Batch, pieces: Sequence[Tensor]) -> None:
        """`pieces` are the rows of each batch."""
        self._stored, self._pieces = stored, pieces
        self._coming = self._gathered()
        self._next = 0

    def has(self, rows: Tensor) -> bool:
        """Whether these are the rows of the batch that comes next."""
        return self._next < len(self._pieces) and self._pieces[self._next] is rows

    def take(self) -> Batch:
        """The next batch: a part of its block that nothing else is given, somewhere in its memory."""
        self._next += 1
        return next(self._coming)

    def close(self) -> None:
        """Lets go of an epoch that has ended or is given up."""
        self._coming = iter(())

    def _gathered(self) -> Iterator[Batch]:
        num_batches = batches_of_block(self._stored, self._pieces)
        for first in range(0, len(self._pieces), num_batches):
            pieces = self._pieces[first : first + num_batches]
            rows, sizes = torch.cat(tuple(pieces)), [*map(len, pieces)]
            # No views, which could not all be changed in place, but tensors with a history of their own.
            blocks = (
                torch.unsafe_split_with_sizes(one.index_select(0, rows), sizes)
                for one in self._stored
            )
            yield from zip(*blocks, strict=True)


def batches_of_block(stored: Batch, pieces: Sequence[Tensor]) -> int:
    """At least 1, which is no more than a batch gathered by itself."""
    of_sample = sum(one[:1].nbytes for one in stored)
    largest = max((len(one) for one in pieces), default=1)
    return max(1, min(MOST_BATCHES, MOST_BYTES // max(1, of_sample * largest)))
