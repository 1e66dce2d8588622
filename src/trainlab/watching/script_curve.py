"""The curve of a script: a line per step, thinned where there are many, and one per pass over its data."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, takewhile
from typing import Any, Literal

from trainlab.record.files import LineWriter
from trainlab.record.script_record import num_at_the_end
from trainlab.train.callbacks import Point
from trainlab.watching.step_log import LOSS_NAME
from trainlab.watching.timeline import EVALUATION, PARTS, STARTUP
from trainlab.watching.tracer import Tracer
from trainlab.words.numbers import is_share

ALL_UP_TO = 1000
"""So many steps each have a line; then every second one, of twice as many; and so on."""
WRITE_EVERY_S = 1.0
LOGGED = "_logged"
"""Ends the name of a metric that the script tells and that is seen in its backward passes, too."""
PERCENT = "_percent"
"""Ends the name of an accuracy that the script tells in per cent."""


class ScriptCurve:
    """Writes curve.jsonl as the script goes on."""

    def __init__(
        self,
        tracer: Tracer,
        lines: LineWriter,
        written: Callable[[Point], None] = lambda point: None,
    ) -> None:
        """`written` is told of every line."""
        self._tracer, self._lines, self._tell = tracer, lines, written
        self._told: list[tuple[int, str, float]] = []
        """What the script told and no pass has taken yet: the updates made by then, name and value."""
        self._num_in_steps = 0
        """How many of those the lines of steps have been given."""
        self._in_percent: set[str] = set()
        self._evaluations_ns: list[int] = []
        """All evaluation by the end of each step."""
        self._epoch = 1
        self._written = 0
        """Steps that have been looked at."""
        self._losses: dict[str, list[float]] = {}
        """Of the steps of the pass."""
        self._time_s = self._train_s = 0.0
        self._evaluation_ns = 0
        self.final: dict[str, float] = {}
        self.last: dict[str, float] = {}
        """The newest value of each metric."""
        self.num_epochs = 0
        self._wrote_s = time.monotonic()
        self._unwritten: list[dict[str, Any]] = []

    def printed(self, name: str, value: float) -> None:
        """A metric in what the script printed: of the test set, unless its name says otherwise."""
        self._add(name if "/" in name else f"test/{name}", value)

    def metric(self, name: str, value: float) -> None:
        """A metric that the script told: of the pass that is under way or has just ended. One whose name
        does not say what it is of is of the test set where the model has run without training since the
        last backward pass."""
        part = "test" if self._tracer.is_testing else "train"
        self._add(name if "/" in name else f"{part}/{name}", value)

    def _add(self, name: str, value: float) -> None:
        if name.rstrip("0123456789").rstrip("_") == LOSS_NAME:
            name += LOGGED
        # Known by its first value above 1; as a share it would be read as a hundred times as much.
        if is_share(name) and value > 1 and name not in self._in_percent:
            self._in_percent.add(name)
            # So were its values so far: 0.9, of 100, is no share of nine tenths.
            self._told = [(at, n + PERCENT if n == name else n, v) for at, n, v in self._told]
            for values in (self.final, self.last):
                if name in values:
                    values[name + PERCENT] = values.pop(name)
        name += PERCENT if name in self._in_percent else ""
        self._told.append((self._tracer.num_steps, name, value))
        self.last = {**self.last, name: value}

    def step_ended(self) -> bool:
        """Writes the lines of steps that have not been written, now and then: reading a loss may wait for
        the device. Whether it did."""
        evaluations_ns = self._tracer.timeline.total_ns[EVALUATION]
        num_new = self._tracer.num_steps - len(self._evaluations_ns)
        self._evaluations_ns += [evaluations_ns] * num_new
        is_time = time.monotonic() - self._wrote_s > WRITE_EVERY_S
        if is_time:
            self._write_steps()
        return is_time

    def finish(self, *, is_cut: bool = False) -> None:
        """The script has ended; where it was cut short, amid a pass over the data unless all were given."""
        self._write_steps()
        loader = self._tracer.log.loader
        is_whole = not is_cut or (loader is not None and loader.has_run_out)
        if self._tracer.num_steps and is_whole:
            # Nothing has told what a pass over the data is.
            is_all = self.num_epochs == 0 and loader is None
            self._write_epoch(self._tracer.timeline.total_ns[EVALUATION], is_all=is_all)
        self._flush()
        self._lines.close()

    def _write_steps(self) -> None:
        self._wrote_s = time.monotonic()
        told: dict[int, dict[str, float]] = {}
        for at, name, value in self._told[self._num_in_steps :]:
            if name.startswith("train/"):
                told.setdefault(at, {})[name] = value
        epochs = self._tracer.log.epochs[self._written : self._tracer.num_steps]
        for epoch, steps in groupby(epochs):
            if epoch > self._epoch:
                # What followed the last step of an epoch has ended by the end of the next step.
                next_place = min(self._written, len(self._evaluations_ns) - 1)
                self._write_epoch(self._evaluations_ns[next_place])
                self._epoch = epoch
            self._write_steps_of_epoch(self._written, self._written + len(list(steps)), told)
        self._num_in_steps = len(self._told)
        self._flush()
        if self._written:
            self.last = {**self.last, **self._tracer.log.losses_of(self._written - 1)}

    def _write_steps_of_epoch(
        self, first: int, end: int, told: Mapping[int, Mapping[str, float]]
    ) -> None:
        """All at once: it is done while the script waits. `told`: metrics of training that were told after
        each update, before the next."""
        log = self._tracer.log
        steps_s = self._tracer.steps_ns.totals_s(first, end)
        times_s = list(accumulate(steps_s, initial=self._time_s))
        losses = log.losses_between(first, end)
        are_alike = all(len(values) == end - first for values in losses.values())
        for step in kept_between(first + 1, end + 1):
            if are_alike:
                own = {name: values[step - 1 - first] for name, values in losses.items()}
            else:
                own = log.losses_of(step - 1)
            times = {"time_s": times_s[step - first]}
            self._write("step", step, {**own, **told.get(step, {})}, times)
        for name, values in losses.items():
            self._losses.setdefault(name, []).extend(values)
        self._train_s, self._time_s = sum(steps_s, self._train_s), times_s[-1]
        self._written = end

    def _write_epoch(self, evaluation_ns: int, *, is_all: bool = False) -> None:
        """`is_all`: all there was is one, at the end of which the last updates stand for it."""
        test_s = (evaluation_ns - self._evaluation_ns) / 1e9
        self._evaluation_ns = evaluation_ns
        self._time_s += test_s
        # What was told before the next pass made an update.
        told = list(takewhile(lambda one: one[0] <= self._written, self._told))
        del self._told[: len(told)]
        own = {name: _mean(values) for name, values in self._losses.items()} | _values_of(told)
        # A script need not test after every pass: what it told last counts at the end.
        kept = {n: v for n, v in self.final.items() if not n.startswith("train/")}
        self.final = {**kept, **own}
        if is_all:
            for name, values in self._losses.items():
                self.final[name] = _mean(values[-num_at_the_end(len(values)) :])
            before = self._written - num_at_the_end(self._written)
            late = [one for one in told if one[0] > before and one[1].startswith("train/")]
            self.final |= _values_of(late)
        times = {"train_s": self._train_s, "test_s": test_s, "time_s": self._time_s}
        self._write("epoch", self._written, own, times)
        self._losses, self._train_s = {}, 0.0
        self.num_epochs += 1

    def _write(
        self,
        kind: Literal["step", "epoch"],
        step: int,
        metrics: dict[str, float],
        times: dict[str, float],
    ) -> None:
        samples = self._tracer.log.samples[step - 1]
        times = {name: round(seconds, 6) for name, seconds in times.items()}
        point = Point(kind, self._epoch, step, samples, metrics, times)
        place = {"kind": kind, "epoch": self._epoch, "step": step, "samples": samples}
        finite = {n: v if math.isfinite(v) else None for n, v in metrics.items()}
        self._unwritten.append({**place, **finite, **times})
        self._tell(point)

    def _flush(self) -> None:
        self._lines.write(*self._unwritten)
        self._unwritten.clear()


def _values_of(told: Iterable[tuple[int, str, float]]) -> dict[str, float]:
    """Of each metric the last, or the mean of one of training, which each update may tell."""
    found: dict[str, list[float]] = {}
    for _, name, value in told:
        found.setdefault(name, []).append(value)
    return {
        name: _mean(values) if name.startswith("train/") else values[-1]
        for name, values in found.items()
    }


def _mean(values: Sequence[float]) -> float:
    """As sums of floats are, where they are not finite or too large to be added up."""
    try:
        return math.fsum(values) / len(values)
    except (ValueError, OverflowError):
        return sum(value / len(values) for value in values)


def kept_between(first: int, end: int, all_up_to: int = ALL_UP_TO) -> Iterator[int]:
    """The steps that have a line of their own, counted from 1."""
    step, every = first, 1
    while step < end:
        while step > all_up_to * every:
            every *= 2
        if step % every == 0:
            yield step
        step += every - step % every


def parts_ms(steps_ns: Sequence[Sequence[int]]) -> dict[str, list[float]]:
    """The parts of steps by name, those that never were left out."""
    names = [
        (place, name) for place, name in enumerate(PARTS) if place not in (STARTUP, EVALUATION)
    ]
    found = {name: [round(step[place] / 1e6, 6) for step in steps_ns] for place, name in names}
    return {name: values for name, values in found.items() if any(values) or name == "other"}
