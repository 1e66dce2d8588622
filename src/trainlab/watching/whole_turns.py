"""Turns that count all that happens in them: tests, logging, the ends of passes over the data.

A turn gives the mean time of an update, not that of a usual step: what happens now and then counts by how
often it does. What a script does after its last update counts too; what it does before its first does not.
"""

import math
import time
from collections.abc import Generator

import psutil
import torch

from trainlab.machine.load import cpu_times
from trainlab.measure.turning.turns import warm_ms
from trainlab.record.cost import TurnRecord
from trainlab.watching.turns import Protocol, Turns

WINDOW_MS = 250.0
MIN_WINDOW_STEPS = 4
NUM_LEADS = 4
"""With workers, turns have leads of so many lengths."""
MOST_RUNS = 50
"""A turn ends after the script has run so many times, however few updates it makes."""


class WholeTurns(Turns):
    """Obeys commands as `Turns` does."""

    _spent_s = 0.0
    """Of the turn under way."""
    _since_s: float | None = None
    """When what counts began; None: nothing counts now."""
    _num_runs = 0

    def script_ended(self) -> None:
        """What it did since its last update counts."""
        self._stop()
        self._num_runs += 1

    def _turn(self, number: int) -> Generator[None, None, float]:
        before = cpu_times()
        self._watcher.watch_lightly(True)
        step_ms = warm_ms(self._warmup_ms)
        # Without workers turns follow each other without a gap: a test after every so many updates, as many
        # as a turn and its lead have, would else be in all turns or in none.
        yield from self._steps(self._num_lead(number))
        self._spent_s, runs_before = 0.0, self._num_runs
        self._go_on()
        num_steps, wanted = 0, max(MIN_WINDOW_STEPS, math.ceil(WINDOW_MS / step_ms))
        while num_steps < wanted and self._num_runs - runs_before < MOST_RUNS:
            is_first = yield from self._step()
            if is_first:
                self._go_on()  # of a script that runs again: its start counts nowhere
            else:
                num_steps += 1
        self._stop()
        others, stolen = cpu_times().cores_since(before)
        mean_ms = max(1e-6, 1e3 * self._spent_s / max(1, num_steps))
        self._step_ms.append(mean_ms)
        self._turns.append(
            TurnRecord(
                round=number,
                lead_ms=[],
                num_bare=1,
                num_marked=0,
                others_cores=others,
                stolen_cores=stolen,
            )
        )
        self._note_memory()
        return mean_ms

    def _num_lead(self, number: int) -> int:
        """Steps that do not count: those of batches that workers have made ready while the script stood
        still, and more from turn to turn, so that not the same ones are left out again and again."""
        return self._num_queued and self._num_queued + number % NUM_LEADS

    def _steps(self, count: int) -> Protocol:
        for _ in range(count):
            yield from self._step()

    def _step(self) -> Generator[None, None, bool]:
        """One step; whether it is the first of a run of the script."""
        self._watcher.was_restarted = False
        yield
        return self._watcher.was_restarted

    def _go_on(self) -> None:
        self._wait_for_device()
        self._since_s = time.perf_counter()

    def _stop(self) -> None:
        if self._since_s is not None:
            self._wait_for_device()
            self._spent_s += time.perf_counter() - self._since_s
            self._since_s = None

    def _wait_for_device(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _note_memory(self) -> None:
        """Until the script ends for the first time: then its memory is free for the next run."""
        if not self._num_runs:
            watcher = self._watcher
            step = watcher.num_steps + watcher.num_light_steps
            self._memory.append((step, psutil.Process().memory_info().rss))
