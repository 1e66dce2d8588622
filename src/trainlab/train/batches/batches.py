"""What an engine asks of the batches of a split."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Self

import torch

from trainlab.data.nesting import count_of, moved
from trainlab.errors import WorkloadError
from trainlab.train.rank import Rank

Batch = Any
"""A tensor or any nesting of them; of data given as tensors the pair of inputs and targets."""
Piece = Any
"""What tells which samples make a batch: row numbers where the data are tensors."""


class Batches(ABC):
    """A split, cut into batches; the last one may be smaller."""

    device: torch.device
    batch_size: int
    num_samples: int
    """Of an epoch: less than the split has where a smaller last batch is dropped."""
    num_stored: int
    """What the split has."""
    rank: Rank
    resident: bool
    """Whether the data lies on the device as a whole."""

    is_cut: bool = True
    """Whether the batches are cut by us, from samples that are numbered; else they come as they come."""

    def __len__(self) -> int:
        return -(-self.num_samples // self.batch_size)

    @property
    def num_full(self) -> int:
        """Samples of a full batch that this process takes."""
        return self.rank.num_in(min(self.batch_size, self.num_samples))

    def size_of(self, number: int) -> int:
        """Samples of a batch of an epoch, counted from 0."""
        return min(self.batch_size, self.num_samples - number * self.batch_size)

    def samples_by(self, step: int) -> int:
        """Samples seen once so many updates are done, counted over all epochs."""
        epochs, steps = divmod(step, len(self))
        return epochs * self.num_samples + steps * self.batch_size

    def resized(self, batch_size: int) -> Self:
        """The same samples, where they lie, cut into batches of another size."""
        other = copy(self)
        other.batch_size = batch_size
        return other

    @abstractmethod
    def epoch(self, seed: int, number: int, first: int = 0) -> Sequence[Piece]:
        """The pieces of an epoch, shuffled by the seed and its number, from the `first` on; each is to be
        gathered once, in this order."""

    def is_full(self, piece: Piece) -> bool:
        """Whether it is no smaller last one. What data that makes its own batches will give shows only
        then."""
        return not self.is_cut or len(piece) == self.num_full

    @abstractmethod
    def gather(self, piece: Piece) -> Batch:
        """The samples of a piece as stored, where the data lies or already on the device."""

    @abstractmethod
    def in_order(self) -> Iterator[Batch]:
        """All batches on the device, as stored."""

    @abstractmethod
    def sample(self) -> Batch:
        """A full batch on the device, the first as stored; no epoch is disturbed by it."""

    @abstractmethod
    def last_smaller(self) -> Batch | None:
        """The last batch as stored, on the device, where it is smaller than the others."""

    def inputs_of(self, places: Sequence[int]) -> Iterator[Any]:
        """The inputs of single samples as stored, by their places in `in_order`, from the lowest on;
        None for a sample whose batch is no pair of inputs and targets."""
        left, first = sorted(places), 0
        for batch in self.in_order():
            count = count_of(batch)
            while left and left[0] < first + count:
                yield input_in(batch, left.pop(0) - first)
            first += count
            if not left:
                return

    def move(self, batch: Batch) -> Batch:
        """A gathered batch on the device."""
        return moved(batch, self.device)


def input_in(batch: Batch, row: int) -> Any:
    """The inputs of one sample of a batch; None where it is no pair of inputs and targets."""
    inputs = batch[0] if isinstance(batch, tuple | list) and len(batch) == 2 else None
    if not isinstance(inputs, torch.Tensor) or inputs.dim() == 0 or row >= len(inputs):
        return None
    return inputs[row]


def kept_samples(num_samples: int, batch_size: int, *, drop_last: bool) -> int:
    """Of an epoch; WorkloadError where a smaller last batch that is dropped was the only one."""
    if num_samples == 0:
        raise WorkloadError("data: a split has no samples; it must have at least one")
    kept = num_samples - num_samples % batch_size if drop_last else num_samples
    if not kept:
        raise WorkloadError(
            f"batch_size: got {batch_size}, but drop_last leaves nothing of {num_samples:,} samples; "
            f"use at most {num_samples}"
        )
    return kept
