"""A stopwatch that never makes the device wait while it runs; and one that waits, for single pieces."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import torch

from trainlab.errors import DeviceError
from trainlab.machine.device import synchronize


class Stopwatch(Protocol):
    """Marks moments as they pass and says afterwards how far apart they were."""

    def mark(self, label: str) -> None:
        """The part of the work called `label` ends here."""

    def laps_ms(self) -> list[tuple[str, float]]:
        """Each part and its milliseconds since the mark before. Waits for the device, and resets."""


class HostStopwatch:
    """For the CPU: work is done when the call returns."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, int]] = []

    def mark(self, label: str) -> None:
        self._marks.append((label, time.perf_counter_ns()))

    def laps_ms(self) -> list[tuple[str, float]]:
        marks, self._marks = self._marks, []
        return [(label, (at - before) / 1e6) for (_, before), (label, at) in pairwise(marks)]


class CudaStopwatch:
    """For a GPU: events in its stream, read once all are done. A host clock would time the queueing."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, torch.cuda.Event]] = []
        self._spare: list[torch.cuda.Event] = []
        self._stream = torch.cuda.current_stream()

    def mark(self, label: str) -> None:
        # Events are used again: making one costs more than recording it.
        event = self._spare.pop() if self._spare else torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        self._marks.append((label, event))

    def laps_ms(self) -> list[tuple[str, float]]:
        marks, self._marks = self._marks, []
        torch.cuda.synchronize()
        laps = [(label, before.elapsed_time(at)) for (_, before), (label, at) in pairwise(marks)]
        self._spare += [event for _, event in marks]
        return laps


def stopwatch_for(device: torch.device) -> Stopwatch:
    """The one that times this device's work rather than its queueing."""
    if device.type == "cuda":
        return CudaStopwatch()
    if device.type == "cpu":
        return HostStopwatch()
    raise DeviceError(f"device: cost is measured on cpu and cuda, not yet on {device.type}")


def timed_ms(device: torch.device, work: Callable[[], object]) -> float:
    """How long one piece of work takes by itself, the device waited for on both sides."""
    synchronize(device)
    start = time.perf_counter_ns()
    work()
    synchronize(device)
    return (time.perf_counter_ns() - start) / 1e6
