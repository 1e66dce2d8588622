"""The curve of a script: a line per step, thinned where there are many, and one per pass over its data."""

import math
import time
from collections.abc import Sequence
from typing import Any

from trainlab.record.files import LineWriter
from trainlab.watching.seeing.timeline import EVALUATION, PARTS, STARTUP
from trainlab.watching.seeing.watcher import Watcher

ALL_UP_TO = 1000
"""So many steps each have a line; then every second one, of twice as many; and so on."""
WRITE_EVERY_S = 1.0


class ScriptCurve:
    """Writes curve.jsonl as the script goes on."""

    def __init__(self, watcher: Watcher, lines: LineWriter) -> None:
        self._watcher, self._lines = watcher, lines
        self._metrics: list[tuple[int, str, float]] = []
        """With the updates made before each was told, those of epochs that are not written yet."""
        self._evaluations_ns: list[int] = []
        """All evaluation by the end of each step."""
        self._epoch = 1
        self._written = 0
        """Steps that have been looked at."""
        self._sums: dict[str, list[float]] = {}
        self._time_s = self._train_s = 0.0
        self._evaluation_ns = 0
        self.final: dict[str, float] = {}
        self.last: dict[str, float] = {}
        """The newest value of each metric."""
        self.num_epochs = 0
        self._wrote_s = time.monotonic()

    def metric(self, name: str, value: float) -> None:
        """A metric that the script told: of the pass that is under way or has just ended."""
        name = name if "/" in name else f"test/{name}"
        self._metrics.append((self._watcher.num_steps, name, value))
        self.last = {**self.last, name: value}

    def step_ended(self) -> None:
        """Writes the lines of steps that have not been written, now and then: reading a loss may wait for
        the device."""
        self._evaluations_ns.append(self._watcher.timeline.total_ns[EVALUATION])
        if time.monotonic() - self._wrote_s > WRITE_EVERY_S:
            self._write_steps()

    def finish(self) -> None:
        """The script has ended."""
        self._write_steps()
        if self._watcher.num_steps:
            self._write_epoch(self._watcher.timeline.total_ns[EVALUATION])
        self._lines.close()

    def _write_steps(self) -> None:
        watcher, self._wrote_s = self._watcher, time.monotonic()
        for place in range(self._written, watcher.num_steps):
            epoch = watcher.step_epochs[place]
            if epoch > self._epoch:
                # What followed the last step of an epoch has ended by the end of the next step.
                self._write_epoch(self._evaluations_ns[place])
                self._epoch = epoch
            values = watcher.losses_of(place)
            parts = watcher.steps_ns[place]
            step_s = sum(parts) / 1e9
            self._train_s += step_s
            self._time_s += step_s
            self._written = place + 1
            for name, value in values.items():
                self._sums.setdefault(name, []).append(value)
            self.last = {**self.last, **values}
            if is_kept(place + 1):
                self._lines.write(self._line("step", place, values, {"time_s": self._time_s}))

    def _write_epoch(self, evaluation_ns: int) -> None:
        test_s = (evaluation_ns - self._evaluation_ns) / 1e9
        self._evaluation_ns = evaluation_ns
        self._time_s += test_s
        means = {name: math.fsum(v) / len(v) for name, v in self._sums.items() if v}
        told = {name: value for step, name, value in self._metrics if step <= self._written}
        self._metrics = [one for one in self._metrics if one[0] > self._written]
        # Some are told now and then only.
        self.final = {**self.final, **means, **told}
        times = {"train_s": self._train_s, "test_s": test_s, "time_s": self._time_s}
        self._lines.write(self._line("epoch", self._written - 1, {**means, **told}, times))
        self._sums, self._train_s = {}, 0.0
        self.num_epochs += 1

    def _line(
        self, kind: str, place: int, metrics: dict[str, float], times: dict[str, float]
    ) -> dict[str, Any]:
        return {
            "kind": kind,
            "epoch": self._epoch,
            "step": place + 1,
            "samples": self._watcher.step_samples[place],
            **{n: v if math.isfinite(v) else None for n, v in metrics.items()},
            **{name: round(seconds, 6) for name, seconds in times.items()},
        }


def is_kept(step: int, all_up_to: int = ALL_UP_TO) -> bool:
    """Whether a step has a line of its own."""
    every = 1
    while step > all_up_to * every:
        every *= 2
    return step % every == 0


def parts_ms(steps_ns: Sequence[Sequence[int]]) -> dict[str, list[float]]:
    """The parts of steps by name, those that never were left out."""
    names = [
        (place, name) for place, name in enumerate(PARTS) if place not in (STARTUP, EVALUATION)
    ]
    found = {name: [round(step[place] / 1e6, 6) for step in steps_ns] for place, name in names}
    return {name: values for name, values in found.items() if any(values) or name == "other"}
