"""Batches of a split, gathered where the data lies: on the device if it fits, else on the host."""

from collections.abc import Iterator
from copy import copy

import torch
from torch import Tensor

from trainlab.data.dataset import Split
from trainlab.machine.device import free_bytes
from trainlab.train.streaming import Stream

SHARE_OF_FREE_MEMORY = 0.5
"""The most of a device's free memory that a split may take; the model needs the rest."""


class Batches:
    """A split cut into batches; the last one may be smaller, nothing is dropped."""

    def __init__(self, split: Split, batch_size: int, device: torch.device) -> None:
        free = free_bytes(device)
        self.resident = free is None or split.num_bytes <= free * SHARE_OF_FREE_MEMORY
        self.device = device
        self.batch_size = batch_size
        self.num_samples = len(split)
        self._data_device = device if self.resident else torch.device("cpu")
        placed = split.to(self._data_device)
        self._inputs, self._targets = placed.inputs, placed.targets
        self._stream: Stream | None = None

    def __len__(self) -> int:
        return -(-self.num_samples // self.batch_size)

    def samples_by(self, step: int) -> int:
        """Samples seen once so many updates are done, counted over all epochs."""
        epochs, steps = divmod(step, len(self))
        return epochs * self.num_samples + steps * self.batch_size

    def resized(self, batch_size: int) -> "Batches":
        """The same samples, where they lie, cut into batches of another size."""
        other = copy(self)
        other.batch_size, other._stream = batch_size, None
        return other

    def rows(self, order: Tensor, first: int = 0) -> tuple[Tensor, ...]:
        """An epoch's order, cut into the row numbers of each batch, from the `first` on. Batches that must
        be moved are gathered ahead from here on, in this order."""
        pieces = torch.split(order.to(self._data_device), self.batch_size)[first:]
        if not self.resident:
            if self._stream is not None:
                self._stream.close()
            self._stream = Stream((self._inputs, self._targets), pieces, self.device)
        return pieces

    def gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The stored inputs and targets of these rows: where the data lies, or already on the device."""
        if self._stream is not None and self._stream.has(rows):
            return self._stream.take()
        return self._inputs.index_select(0, rows), self._targets.index_select(0, rows)

    def move(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """A gathered batch on the device; nothing to do for resident data."""
        if self.resident or inputs.device == self.device:
            return inputs, targets
        return inputs.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)

    def in_order(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All batches on the device, as stored."""
        pieces = self._inputs.split(self.batch_size), self._targets.split(self.batch_size)
        yield from map(self.move, *pieces)

    def last_smaller(self) -> tuple[Tensor, Tensor] | None:
        """The last batch as stored, where it is smaller than the others."""
        rest = self.num_samples % self.batch_size
        if not rest or self.num_samples < self.batch_size:
            return None
        return self.move(self._inputs[-rest:], self._targets[-rest:])
