"""The steps of a trial one by one, as the engine that its cell asks for makes them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any, Protocol

import torch

from trainlab.data.nesting import count_of
from trainlab.errors import DeviceError
from trainlab.machine.device import synchronize
from trainlab.train.batches import Batches, Piece
from trainlab.train.callbacks import GRAINS, Instrument, Moments
from trainlab.train.engines import engine_for
from trainlab.train.engines.ddp import stepping_together
from trainlab.train.engines.engine import Engine, Update
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup


@dataclass(frozen=True)
class Steps:
    """The steps of one mode: what runs them and which batches they run on."""

    batches: Batches
    watched_by: Callable[[Sequence[Instrument]], Update]
    """The step, its moments told to these instruments."""
    bare: Update
    endless: Iterator[Any]
    """Full batches, epoch after epoch: a smaller last one would pass for a faster step."""
    one_pass: Iterator[Any]
    """Every batch of one epoch or pass, the smaller last one included."""
    last: Any | None
    """The smaller last batch; None where all are full, or several processes share it."""
    shows_phases: bool
    """Whether the engine makes its steps phase by phase; else they can only be timed whole."""

    @property
    def batch_size(self) -> int:
        """Samples of a full batch."""
        return min(self.batches.batch_size, self.batches.num_samples)

    def next_bare(self) -> None:
        """A bare step on the next full batch."""
        self.bare(next(self.endless))


@contextmanager
def stepping(setup: Setup, mode: str) -> Iterator[Steps]:
    """The steps of a mode, ready to run inside this block and drawing from the trial's seed."""
    with running_steps(setup, mode):
        yield steps_of(setup, mode)


@contextmanager
def running_steps(setup: Setup, mode: str) -> Iterator[None]:
    """The steps of a mode run inside such a block."""
    with seeded(setup.trial.seed_of("dropout"), "dropout", 1, setup.device):
        if mode == "train":
            setup.model.train()
            with stepping_together(setup):
                yield
        else:
            setup.model.eval()
            with torch.no_grad():
                yield


def steps_of(setup: Setup, mode: str) -> Steps:
    """The steps of a mode, which run inside `running_steps`."""
    return _training(setup) if mode == "train" else _inference(setup)


def _training(setup: Setup) -> Steps:
    batches = setup.train_batches

    def watched_by(instruments: Sequence[Instrument]) -> Update:
        moments = Moments(instruments)
        return _engine_of(setup, moments).training_step(setup, moments)

    def epoch(number: int) -> Sequence[Piece]:
        return batches.epoch(setup.trial.seed_of("order"), number)

    return Steps(
        batches=batches,
        watched_by=watched_by,
        bare=watched_by([]),
        endless=(rows for number in count(1) for rows in epoch(number) if batches.is_full(rows)),
        one_pass=iter(epoch(1)),
        last=None if batches.rank.of > 1 or batches.is_full(epoch(1)[-1]) else epoch(1)[-1],
        shows_phases=_shows_phases(setup),
    )


def _inference(setup: Setup) -> Steps:
    batches = setup.test_batches.resized(setup.settings.batch_size)

    def watched_by(instruments: Sequence[Instrument]) -> Update:
        moments = Moments(instruments)
        return _engine_of(setup, moments).inference_step(setup, moments)

    return Steps(
        batches=batches,
        watched_by=watched_by,
        bare=watched_by([]),
        endless=(
            b for _ in count(1) for b in batches.in_order() if count_of(b) == batches.num_full
        ),
        one_pass=batches.in_order(),
        last=batches.last_smaller(),
        shows_phases=True,
    )


def _engine_of(setup: Setup, moments: Moments) -> Engine:
    """The cell's engine; where it cannot show these moments, eager with a note."""
    engine, fallback = engine_for(setup.settings, [moments])
    if fallback is not None and fallback not in setup.notes:
        setup.notes.append(fallback)
    return engine


def _shows_phases(setup: Setup) -> bool:
    engine, _ = engine_for(setup.settings, [])
    return GRAINS.index(engine.shows) >= GRAINS.index("phase")


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
