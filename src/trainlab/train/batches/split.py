"""Batches of a split, gathered where the data lies: on the device if it fits, else on the host."""

from collections.abc import Iterator, Sequence
from itertools import dropwhile

import torch
from torch import Tensor

from trainlab.data.dataset import Split
from trainlab.machine.device import free_bytes
from trainlab.train.batches.batches import Batches, kept_samples
from trainlab.train.batches.blocks import Blocks
from trainlab.train.batches.streaming import Stream
from trainlab.train.rank import Rank
from trainlab.train.seeds import data_order

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
        self.device = device
        self.batch_size = batch_size
        self.num_stored, self._drop_last = len(split), drop_last
        self.num_samples = kept_samples(len(split), batch_size, drop_last=drop_last)
        self.rank = rank or Rank()
        self._data_device = device if self.resident else torch.device("cpu")
        placed = split.to(self._data_device)
        self._inputs, self._targets = placed.inputs, placed.targets
        self._ahead: Stream | Blocks | None = None
        self._pieces: tuple[Tensor, ...] = ()
        """Of the epoch."""
        self._in_blocks = False

    def resized(self, batch_size: int) -> "SplitBatches":
        other = super().resized(batch_size)
        other._ahead, other._in_blocks = None, False
        other.num_samples = kept_samples(self.num_stored, batch_size, drop_last=self._drop_last)
        return other

    def epoch(self, seed: int, number: int, first: int = 0) -> tuple[Tensor, ...]:
        return self.rows(self.order(seed, number), first)

    def order(self, seed: int, number: int) -> Tensor:
        """The row numbers of an epoch."""
        return data_order(seed, number, self.num_stored)[: self.num_samples]

    def rows(self, order: Tensor, first: int = 0) -> tuple[Tensor, ...]:
        """An epoch's order, cut into the row numbers of each batch, from the `first` on. Batches that must
        be moved are gathered ahead from here on, in this order."""
        batches = torch.split(order.to(self._data_device), self.batch_size)[first:]
        pieces = tuple(self.rank.share_of(batch) for batch in batches)
        if self._ahead is not None:
            self._ahead.close()
        self._pieces, self._ahead = pieces, None
        if not self.resident:
            self._ahead = Stream((self._inputs, self._targets), pieces, self.device)
        return pieces

    def gather_in_blocks(self, in_blocks: bool) -> None:
        """From the next batch on, where they are small, or each by itself. For a training of which nobody
        asks how long the data of each step took."""
        if self.resident:
            self._ahead = None
            self._in_blocks = in_blocks and self._data_device.type == "cpu"

    def first_rows(self) -> Tensor:
        """The row numbers of a full batch as stored, this process's share of it; nothing is gathered
        ahead for it."""
        return self.rank.share_of(torch.arange(self.size_of(0), device=self._data_device))

    def samples(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The stored inputs and targets of any rows, on the device."""
        return self.move(self.gather(rows.to(self._data_device)))

    def sample(self) -> tuple[Tensor, Tensor]:
        return self.samples(self.first_rows())

    def gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        if self._ahead is None and self._in_blocks:
            left = tuple(dropwhile(lambda one: one is not rows, self._pieces))
            self._ahead = Blocks((self._inputs, self._targets), left) if left else None
        if self._ahead is not None and self._ahead.has(rows):
            return self._ahead.take()
        return self._inputs.index_select(0, rows), self._targets.index_select(0, rows)

    def move(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        if self.resident or batch[0].device == self.device:
            return batch
        moved: tuple[Tensor, Tensor] = super().move(batch)
        return moved

    def in_order(self) -> Iterator[tuple[Tensor, Tensor]]:
        stored = (one[: self.num_samples] for one in (self._inputs, self._targets))
        pieces = [one.split(self.batch_size) for one in stored]
        yield from map(self.move, zip(*pieces, strict=True))

    def inputs_of(self, places: Sequence[int]) -> Iterator[Tensor]:
        return (self._inputs[place] for place in sorted(places))

    def last_smaller(self) -> tuple[Tensor, Tensor] | None:
        rest = self.num_samples % self.batch_size
        if not rest or self.num_samples < self.batch_size:
            return None
        return self.move((self._inputs[-rest:], self._targets[-rest:]))
