"""A window of a script's steps under torch's profiler, in a process whose speed is never reported."""

import statistics
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import torch
from torch.profiler import record_function

from trainlab.machine.device import synchronize
from trainlab.measure.operators import END_OF, END_OF_STEP, Tally, add_chunk, profiler_for
from trainlab.measure.stopwatch import stopwatch_for
from trainlab.record.cost import OperatorsRecord
from trainlab.record.files import replacing, temporary_folder
from trainlab.spec import CostSpec
from trainlab.watching.facts import samples_per_update
from trainlab.watching.seeing.watcher import Watcher

Protocol = Generator[None, None, None]


class _Marks:
    """Leaves a named mark in the profile where a part ends."""

    def mark(self, label: str) -> None:
        with record_function(END_OF + label):
            pass

    def laps_ms(self) -> list[tuple[str, float]]:
        return []


class ProfiledWindow:
    """Goes on at the end of every step, until so many were profiled."""

    def __init__(self, watcher: Watcher, cost: CostSpec, trace_file: Path) -> None:
        self._watcher, self._by_shape = watcher, cost.by_shape
        self._num_warmup, self._num_steps = cost.warmup_steps, cost.active_steps
        self._trace_file, self._trace_bytes = trace_file, cost.trace_mb * 1e6
        self.record: OperatorsRecord | None = None

    def protocol(self) -> Protocol:
        """Warm-up, steps without the profiler, one that is not counted, and those that are."""
        watcher = self._watcher
        for _ in range(self._num_warmup):
            yield
        device = torch.device(watcher.device)
        watcher.watch_lightly(True)
        stopwatch = stopwatch_for(device)
        stopwatch.mark("start")
        for _ in range(self._num_steps):
            yield
            stopwatch.mark("step")
        bare_ms = [ms for _, ms in stopwatch.laps_ms()]
        # A test in between would make a step many times as long.
        usual_ms = statistics.median(bare_ms)
        bare_ms = [ms for ms in bare_ms if ms < 3 * usual_ms]
        watcher.watch_lightly(False)
        watcher.timeline.stopwatch = _Marks()
        profiler = profiler_for(device, by_shape=self._by_shape)
        profiler.__enter__()
        for _ in range(self._num_steps + 1):
            yield
            synchronize(device)
            with record_function(END_OF_STEP):
                pass
        profiler.__exit__(None, None, None)
        watcher.timeline.stopwatch = None
        tally = Tally(by_shape=self._by_shape)
        add_chunk(tally, profiler.events())
        self.record = tally.record(
            mode="train",
            batch_size=samples_per_update(watcher) or 1,
            bare_ms=bare_ms,
            trace_steps=self._write_trace(profiler),
        )

    def _write_trace(self, profiler: object) -> int:
        """The steps in it; 0 where it would be too large."""
        with temporary_folder() as folder, suppress(RuntimeError):
            part = folder / self._trace_file.name
            profiler.export_chrome_trace(str(part))  # type: ignore[attr-defined]
            if part.stat().st_size <= self._trace_bytes:
                with replacing(self._trace_file) as final:
                    final.write_bytes(part.read_bytes())
                return self._num_steps
        return 0
