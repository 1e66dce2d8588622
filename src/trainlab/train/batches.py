"""Rank: one of the processes of a trial, which samples of a batch it takes, and what they count."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from trainlab.data.dataset import Split
from trainlab.data.nesting import count_of, moved
from trainlab.errors import WorkloadError
from trainlab.machine.device import free_bytes
from trainlab.spec import Spec
from trainlab.train.seeds import data_order


class Rank(Spec):
    """A process by its number, from 0, among so many."""

    number: int = 0
    of: int = 1

    def num_in(self, batch_size: int) -> int:
        """Samples of a batch that this process takes; the first processes take one more where it does not
        divide evenly."""
        each, rest = divmod(batch_size, self.of)
        return each + (self.number < rest)

    def share_of(self, rows: Tensor) -> Tensor:
        """The rows of a batch that this process takes. One that gets none takes the first, which then
        counts nothing: it has to take part in the update all the same."""
        if self.of == 1:
            return rows
        return rows.tensor_split(self.of)[self.number] if self.num_in(len(rows)) else rows[:1]

    def weight_in(self, batch_size: int) -> float:
        """What the mean loss of its share counts, so that the mean over all processes is that of the whole
        batch."""
        return self.num_in(batch_size) * self.of / batch_size


# What an engine asks of the batches of a split.

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

    def last_smaller(self) -> Batch | None:
        """The last batch as stored, on the device, where it is smaller than the others."""
        return None

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


# Batches of a split, gathered where the data lies: on the device if it fits, else on the host.

SHARE_OF_FREE_MEMORY = 0.5
"""The most of a device's free memory that a split may take; the model needs the rest."""


class SplitBatches(Batches):
    """Tensors cut into batches; the last one may be smaller, unless it is to be dropped."""

    def __init__(
        self,
        split: Split,
        batch_size: int,
        device: torch.device,
        rank: Rank | None = None,
        *,
        drop_last: bool = False,
    ) -> None:
        """`rank`: the process that takes its share of every batch, where there are several."""
        free = free_bytes(device)
        self.resident = free is None or split.num_bytes <= free * SHARE_OF_FREE_MEMORY
        self.device, self.batch_size, self.num_stored = device, batch_size, len(split)
        self.num_samples = kept_samples(len(split), batch_size, drop_last=drop_last)
        self.rank = rank or Rank()
        self._data_device = device if self.resident else torch.device("cpu")
        placed = split.to(self._data_device)
        self._inputs, self._targets = placed.inputs, placed.targets

    def epoch(self, seed: int, number: int, first: int = 0) -> tuple[Tensor, ...]:
        order = self.order(seed, number).to(self._data_device)
        return tuple(map(self.rank.share_of, order.split(self.batch_size)[first:]))

    def order(self, seed: int, number: int) -> Tensor:
        """The row numbers of an epoch."""
        return data_order(seed, number, self.num_stored)[: self.num_samples]

    def first_rows(self) -> Tensor:
        """The row numbers of a full batch as stored, this process's share of it."""
        return self.rank.share_of(torch.arange(self.size_of(0), device=self._data_device))

    def samples(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The stored inputs and targets of any rows, on the device."""
        return self.move(self.gather(rows.to(self._data_device)))

    def sample(self) -> tuple[Tensor, Tensor]:
        return self.samples(self.first_rows())

    def gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """From the host for a GPU in pinned memory: the copy is queued, and Python runs ahead of it."""
        if self.resident:
            return self._inputs.index_select(0, rows), self._targets.index_select(0, rows)
        return self._gathered(self._inputs, rows), self._gathered(self._targets, rows)

    def _gathered(self, stored: Tensor, rows: Tensor) -> Tensor:
        shape, is_pinned = (len(rows), *stored.shape[1:]), self.device.type == "cuda"
        gathered = torch.empty(shape, dtype=stored.dtype, pin_memory=is_pinned)
        return torch.index_select(stored, 0, rows, out=gathered)

    def move(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return batch if self.resident else super().move(batch)

    def in_order(self) -> Iterator[tuple[Tensor, Tensor]]:
        stored = (one[: self.num_samples] for one in (self._inputs, self._targets))
        pieces = [one.split(self.batch_size) for one in stored]
        yield from map(self.move, zip(*pieces, strict=True))

    def last_smaller(self) -> tuple[Tensor, Tensor] | None:
        rest = self.num_samples % self.batch_size
        if not rest or self.num_samples < self.batch_size:
            return None
        return self.move((self._inputs[-rest:], self._targets[-rest:]))


# Batches of which several make one update.


class AccumulatedBatches(Batches):
    """A piece is the batches of an update, in their order; at the end of an epoch those that are left."""

    def __init__(self, each: Batches, per_update: int) -> None:
        self.each, self._per_update = each, per_update
        self.device, self.rank, self.resident = each.device, each.rank, each.resident
        self.is_cut, self.batch_size = each.is_cut, each.batch_size * per_update
        self.num_stored, self.num_samples = each.num_stored, each.num_samples

    def __len__(self) -> int:
        return -(-len(self.each) // self._per_update)

    def epoch(self, seed: int, number: int, first: int = 0) -> Sequence[Piece]:
        pieces, size = self.each.epoch(seed, number, first * self._per_update), self._per_update
        return [tuple(pieces[start : start + size]) for start in range(0, len(pieces), size)]

    def gather(self, piece: Piece) -> Batch:
        return [self.each.gather(one) for one in piece]

    def is_full(self, piece: Piece) -> bool:
        return len(piece) == self._per_update and self.each.is_full(piece[-1])

    def in_order(self) -> Iterator[Batch]:
        return self.each.in_order()

    def sample(self) -> Batch:
        """One that the model gets at once."""
        return self.each.sample()
