"""The steps of a trial one by one, as the engine that its cell asks for makes them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from typing import Any

import torch

from trainlab.data.nesting import count_of
from trainlab.errors import DeviceError
from trainlab.machine.device import synchronize
from trainlab.train.callbacks import GRAINS, Instrument, Moments
from trainlab.train.dataloading import make_batches
from trainlab.train.engines import engine_for
from trainlab.train.engines.ddp import stepping_together
from trainlab.train.engines.engine import Update
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup


class Steps:
    """The steps of one mode, which run inside `running_steps`: what runs them, and on which batches."""

    endless: Iterator[Any]
    """Full batches, epoch after epoch: a smaller last one would pass for a faster step."""
    last: Any | None
    """The smaller last batch; None where all are full, or several processes share it."""

    def __init__(self, setup: Setup, mode: str) -> None:
        self._setup, self._trains = setup, mode == "train"
        self.bare = self.watched_by([])
        shown = GRAINS.index(engine_for(setup.settings, [])[0].shows)
        self.shows_phases = not self._trains or shown >= GRAINS.index("phase")
        """Whether the engine makes its steps phase by phase; else they can only be timed whole."""
        if self._trains:
            self.batches = batches = setup.train_batches
            seed = setup.trial.seed_of("order")
            epochs = (batches.epoch(seed, number) for number in count(1))
            self.endless = (rows for epoch in epochs for rows in epoch if batches.is_full(rows))
            first = batches.epoch(seed, 1)
            self.last = None if batches.rank.of > 1 or batches.is_full(first[-1]) else first[-1]
        else:
            self.batches = batches = make_batches(
                setup.dataset.test, setup.settings.batch_size, setup.device
            )
            passes = (batches.in_order() for _ in count(1))
            num_full = batches.num_full
            self.endless = (one for once in passes for one in once if count_of(one) == num_full)
            self.last = batches.last_smaller()
        self.batch_size = min(batches.batch_size, batches.num_samples)
        """Samples of a full batch."""

    def watched_by(self, instruments: Sequence[Instrument]) -> Update:
        """The step, its moments told to these instruments; where the cell's engine cannot show them, by
        eager with a note."""
        moments = Moments(instruments)
        engine, fallback = engine_for(self._setup.settings, [moments])
        if fallback is not None and fallback not in self._setup.notes:
            self._setup.notes.append(fallback)
        make = engine.training_step if self._trains else engine.inference_step
        return make(self._setup, moments)

    def next_bare(self) -> None:
        self.bare(next(self.endless))


@contextmanager
def stepping(setup: Setup, mode: str) -> Iterator[Steps]:
    """The steps of a mode, ready to run inside this block and drawing from the trial's seed."""
    with running_steps(setup, mode):
        yield Steps(setup, mode)


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


class Stopwatch:
    """Marks moments as they pass and says afterwards how far apart they were: of a GPU by events in its
    stream, read once all are done, as a host clock would time the queueing."""

    def __init__(self, device: torch.device) -> None:
        if device.type not in ("cpu", "cuda"):
            raise DeviceError(f"device: cost is measured on cpu and cuda, not yet on {device.type}")
        self._stream = torch.cuda.current_stream() if device.type == "cuda" else None
        self._marks: list[tuple[str, Any]] = []
        self._spare: list[torch.cuda.Event] = []

    def mark(self, label: str) -> None:
        """The part of the work called `label` ends here."""
        if self._stream is None:
            self._marks.append((label, time.perf_counter_ns()))
            return
        # Events are used again: making one costs more than recording it.
        event = self._spare.pop() if self._spare else torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        self._marks.append((label, event))

    def laps_ms(self) -> list[tuple[str, float]]:
        """Each part and its milliseconds since the mark before. Waits for the device, and resets."""
        marks, self._marks = self._marks, []
        if self._stream is None:
            return [(label, (at - before) / 1e6) for (_, before), (label, at) in pairwise(marks)]
        torch.cuda.synchronize()
        self._spare += [event for _, event in marks]
        return [(label, before.elapsed_time(at)) for (_, before), (label, at) in pairwise(marks)]


def timed_ms(device: torch.device, work: Callable[[], object]) -> float:
    """How long one piece of work takes by itself, the device waited for on both sides."""
    synchronize(device)
    start = time.perf_counter_ns()
    work()
    synchronize(device)
    return (time.perf_counter_ns() - start) / 1e6
