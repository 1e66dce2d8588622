"""Streaming: batches of data that does not fit on the device, gathered and copied ahead of their step.

A thread gathers the rows of the next batches into pinned memory and a stream of its own copies them over,
while the device works on the current one. Which batches there are, and their order, is not its business.
"""

import queue
import threading
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

AHEAD = 3
"""Batches that are ready or on their way."""

Batch = tuple[Tensor, Tensor]


class Stream:
    """The batches of one epoch, in order."""

    def __init__(self, stored: Batch, pieces: Sequence[Tensor], device: torch.device) -> None:
        """`pieces` are the rows of each batch."""
        self._stored, self._pieces, self._device = stored, pieces, device
        self._ready: queue.Queue[Batch | BaseException] = queue.Queue(AHEAD)
        self._is_wanted = True
        self._next = 0
        self._copies = _copies(device)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def has(self, rows: Tensor) -> bool:
        """Whether these are the rows of the batch that comes next."""
        return self._next < len(self._pieces) and self._pieces[self._next] is rows

    def take(self) -> Batch:
        """The next batch, on the device; what is queued there after this waits until it has come."""
        self._next += 1
        item = self._ready.get()
        if isinstance(item, BaseException):
            raise item
        if self._copies is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_stream(self._copies)
            for tensor in item:
                tensor.record_stream(current)
        return item

    def close(self) -> None:
        """Lets go of an epoch that has ended or is given up."""
        self._is_wanted = False
        while self._thread.is_alive():
            try:
                self._ready.get(timeout=0.01)
            except queue.Empty:
                continue

    def _work(self) -> None:
        try:
            for batch in self._gathered():
                if not self._is_wanted:
                    return
                self._ready.put(batch)
        except BaseException as error:  # noqa: BLE001  raised where the batch is waited for
            self._ready.put(error)

    def _gathered(self) -> Iterator[Batch]:
        slots: list[tuple[Batch, torch.cuda.Event] | None] = [None] * AHEAD
        for number, rows in enumerate(self._pieces):
            if self._copies is None:
                inputs, targets = (tensor.index_select(0, rows) for tensor in self._stored)
                yield inputs.to(self._device), targets.to(self._device)
                continue
            slot = slots[number % AHEAD]
            if slot is not None:
                slot[1].synchronize()  # its last copy has been made
            host = self._into(None if slot is None else slot[0], rows)
            with torch.cuda.stream(self._copies):
                moved = tuple(tensor.to(self._device, non_blocking=True) for tensor in host)
                done = torch.cuda.Event()
                done.record(self._copies)
            slots[number % AHEAD] = (host, done)
            yield moved[0], moved[1]

    def _into(self, host: Batch | None, rows: Tensor) -> Batch:
        """The rows in pinned memory; in that of an earlier batch where it has the size."""
        if host is None or len(host[0]) != len(rows):
            host = tuple(  # type: ignore[assignment]
                torch.empty(len(rows), *tensor.shape[1:], dtype=tensor.dtype, pin_memory=True)
                for tensor in self._stored
            )
            assert host is not None
        for tensor, out in zip(self._stored, host, strict=True):
            torch.index_select(tensor, 0, rows, out=out)
        return host


def _copies(device: torch.device) -> torch.cuda.Stream | None:
    """The stream that copies; None where there is nothing to overlap with."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None
