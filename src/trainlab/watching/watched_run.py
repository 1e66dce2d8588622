"""A training that is watched from its start to its end: its curve as it goes on, and at last its record."""

import math
import os
import statistics
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import accumulate, groupby, islice, pairwise, takewhile
from operator import sub
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Literal, NamedTuple

import torch
from pynvml import NVMLError
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainlab.errors import SpecError
from trainlab.measure.energy_meter import EnergyMeter
from trainlab.plan import Trial
from trainlab.record.files import LineWriter
from trainlab.record.run_folder import TrialFolder
from trainlab.record.schema import Note, note
from trainlab.record.script_record import (
    LoaderRow,
    OptimizerRow,
    ReadRow,
    WatchedRecord,
    num_at_the_end,
)
from trainlab.record.trial_record import Progress
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.script import ScriptSpec
from trainlab.spec.study import LOGGED, PERCENT
from trainlab.train.callbacks import Point
from trainlab.watching import own_metrics as told
from trainlab.watching.followed_model import FollowedModel
from trainlab.watching.hooks import COUNTS, WHOLE, Hooks
from trainlab.watching.interventions import Search
from trainlab.watching.own_metrics import CsvColumns, OwnScalars, search_output
from trainlab.watching.step_log import LOSS_NAME
from trainlab.watching.timeline import EVALUATION, PARTS, parts_ms
from trainlab.watching.tracer import Refused, Tracer, keeps
from trainlab.words.numbers import is_share

PROGRESS_EVERY_S = 0.3
WRITE_EVERY_S = 1.0
MOST_LOSSES = 20_000
NOT_INTO_KERAS = "Keras trains here, and its layers cannot be looked into; leave --probe out"
FIRST_STEPS, FIRST_S = 100, 3.0
"""After so many updates, and so long, what was seen so far is told for the first time;"""
AGAIN_S = 30.0
"""and again after so long, or as long as the training has taken by then."""
FEW = 50
"""Steps, and looks at memory, that are told of then."""
MOST_READS = 5
ROUNDS, STEPS = 15, 6
"""In which watching is measured, and steps of each."""


class WatchedTraining:
    """What the process does from here on, until `close`, with all the records of a learn trial."""

    def __init__(
        self,
        trial: Trial,
        folder: TrialFolder,
        script: ScriptSpec,
        on_progress: Callable[[int, Mapping[str, float]], None],
        *,
        probes: Sequence[ProbeSpec] = (),
        tensorboard: bool = False,
        model: nn.Module | None = None,
        start_ns: int | None = None,
        on_seen: Callable[[WatchedRecord], None] | None = None,
    ) -> None:
        """`on_progress` is told of updates, counted from 1, and of the newest values of the metrics, a few
        times a second; `on_seen` of all that was seen so far, now and then. `model` is the one to look
        into, by default the first that trains."""
        self._folder = folder
        self._on_progress, self._told_s = on_progress, -math.inf
        self._on_seen, self._next_seen_s = on_seen, math.inf
        self.on_step: Callable[[int], None] | None = None
        """Is told of every update."""
        lines = LineWriter(folder.curve_file)  # what may fail comes before the hooks
        self.tracer = Tracer(start_ns)
        self._model = FollowedModel(
            self.tracer,
            trial,
            folder,
            probes,
            model=model,
            tensorboard=tensorboard,
            before_call=lambda: self._columns.look(),
        )
        self._curve = ScriptCurve(self.tracer, lines, self._model.point_written)
        self.tracer.follower, self.tracer.on_step = self._model, self._step_ended
        self.tracer.on_logs = self._curve.logged
        self._probes = probes
        self._energy = EnergyOfEpochs(self.tracer)
        self._search = Search(Path(script.path), self.tracer) if script.is_searched else None
        self._has_one_look = not (script.is_searched or probes or script.columns)
        self.tracer.is_sampled = self._has_one_look
        told.listening.append(self._logged)
        self._not_found = {
            name: note("metric_not_printed", name=name, pattern=pattern)
            for name, pattern in script.metrics.items()
        }
        """Of each metric what is to be said if it never comes."""
        for name, (file, column) in script.columns.items():
            self._not_found[name] = note("metric_not_written", name=name, file=file, column=column)
        self._end_search = search_output(script.metrics, self._printed)
        self._scalars = OwnScalars(self._curve.metric, folder.tensorboard_folder)
        self._columns = CsvColumns(script.columns, self._printed)

    @property
    def notes(self) -> list[Note]:
        """What could not be done, and why; and whether models were trained one after the other."""
        number = len(self.tracer.log.restarts)
        in_turn = [note("script_models_in_turn", number=number + 1)] if number else []
        return [*self._model.notes, *in_turn]

    @property
    def missing(self) -> list[Note]:
        """Metrics that were asked for and have not come."""
        return list(self._not_found.values())

    @property
    def progress(self) -> Progress:
        """How far it came; in epochs, the last of several trainings."""
        log = self.tracer.log
        before = log.epochs[log.restarts[-1]] - 1 if log.restarts else 0
        return Progress(
            epochs_done=max(0, self._curve.num_epochs - before),
            steps_done=self.tracer.num_steps,
            final=dict(self._curve.final),
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What the settings were seen to be, and how far the run went."""
        return facts_of(self.tracer) | run_facts(self.tracer)

    def close(self, *, is_cut: bool = False) -> None:
        """The training has ended, however it did: nothing is seen any more, and all is written. `is_cut`:
        it did not come to its end."""
        self.tracer.close()
        self._energy.mark()
        found: dict[str, Any] = {} if self._search is None else self._search.close()
        self._columns.look(is_last=True)
        self._scalars.close()
        told.listening.remove(self._logged)
        self._end_search()
        self._model.close()
        self._curve.finish(is_cut=is_cut)
        self._model.finish(self.progress)
        record = watched_record(self.tracer)
        found["energy"] = self._energy.marks
        self._folder.watched.write(record.model_copy(update=found))

    def _logged(self, name: str, value: float) -> None:
        """By the script's call of `log`."""
        if name in ("loss", LOSS_NAME) and self.tracer.step_logged(value):
            self._curve.logged({LOSS_NAME: value})
        else:
            self._curve.metric(name, value)

    def _printed(self, name: str, value: float) -> None:
        self._not_found.pop(name, None)
        self._curve.printed(name, value)

    def _step_ended(self, step: int) -> None:
        if self._probes and self.tracer.log.framework:
            raise Refused(SpecError([f"probe {self._probes[0]}: {NOT_INTO_KERAS}"]))
        self._model.step_ended(step)
        self._energy.step_ended()
        if self._has_one_look:
            self.tracer.follower = None  # it was in the first step
        if self._curve.step_ended():
            self._model.flush()
        if (now_s := time.monotonic()) - self._told_s > PROGRESS_EVERY_S:
            self._told_s = now_s
            self._on_progress(step, self._curve.last)
        if step == 1:
            self._began_s, self._next_seen_s = now_s, now_s + FIRST_S
        if now_s >= self._next_seen_s and step >= FIRST_STEPS and self._on_seen is not None:
            self._next_seen_s = now_s + max(AGAIN_S, now_s - self._began_s)
            self._on_seen(watched_record(self.tracer, is_so_far=True))
        if self._search is not None:
            self._search.step_ended(step)
        if self.on_step is not None:
            self.on_step(step)


class EnergyOfEpochs:
    """Reads the counter of the GPU at the first update of each epoch, as the script goes on."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._meter: EnergyMeter | None = None
        self._epoch = 0
        self._begun: tuple[int, float, float] | None = None
        self.marks: list[tuple[int, float, float]] = []
        """Samples, seconds and joules since the first."""

    def step_ended(self) -> None:
        epoch = self._tracer.log.epochs[-1]
        if epoch == self._epoch:
            return
        if not self._epoch:  # the first says which device it is
            self._meter = EnergyMeter.open(self._tracer.device)
        self._epoch = epoch
        self.mark()

    def mark(self) -> None:
        """Here and now; nothing where nothing counts."""
        if self._meter is None:
            return
        with suppress(NVMLError):  # no script is to end by it
            now = self._tracer.log.samples[-1], time.perf_counter(), self._meter.joules()
            self._begun = self._begun or now
            samples, spent_s, joules = map(sub, now, self._begun)
            self.marks.append((int(samples), spent_s, joules))


class Told(NamedTuple):
    """A value that the script told."""

    at: int
    """The updates made by then."""
    name: str
    value: float


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
        self._told: list[Told] = []
        """What the script told and no pass has taken yet."""
        self._num_in_steps = 0
        """How many of those the lines of steps have been given."""
        self._in_percent: set[str] = set()
        self._means: set[str] = set()
        """Metrics of training whose values are means over the epoch so far."""
        self._evaluated_ns: dict[int, int] = {}
        """All evaluation by the end of the first step of each epoch."""
        self._epoch = 1
        self._written = 0
        """Steps that have been looked at."""
        self._begun = 0
        """Steps before the pass."""
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
        does not say what it is of is of the test set where the model has run without training since it last
        ran for it."""
        part = "test" if self._tracer.is_testing else "train"
        self._add(name if "/" in name else f"{part}/{name}", value)

    def logged(self, values: Mapping[str, float], *, are_means: bool = False) -> None:
        """Metrics that Keras logs, by their names in the curve, or a step's loss. `are_means`: those of
        training over the epoch so far, of which the last stands for the epoch."""
        if are_means:
            self._means.update(name for name in values if name.startswith("train/"))
        at = self._tracer.num_steps
        self._told += [Told(at, name, value) for name, value in values.items()]
        self.last = {**self.last, **values}

    def _add(self, name: str, value: float) -> None:
        if name.rstrip("0123456789").rstrip("_") == LOSS_NAME:
            name += LOGGED
        # Known by its first value above 1; as a share it would be read as a hundred times as much.
        if is_share(name) and value > 1 and name not in self._in_percent:
            self._in_percent.add(name)
            # So were its values so far: 0.9, of 100, is no share of nine tenths.
            self._told = [
                one._replace(name=name + PERCENT) if one.name == name else one for one in self._told
            ]
            for values in (self.final, self.last):
                if name in values:
                    values[name + PERCENT] = values.pop(name)
        name += PERCENT if name in self._in_percent else ""
        self._told.append(Told(self._tracer.num_steps, name, value))
        self.last = {**self.last, name: value}

    def step_ended(self) -> bool:
        """Writes the lines of steps that have not been written, now and then: reading a loss may wait for
        the device. Whether it did."""
        epoch, evaluated_ns = (
            self._tracer.log.epochs[-1],
            self._tracer.timeline.total_ns[EVALUATION],
        )
        self._evaluated_ns.setdefault(epoch, evaluated_ns)
        is_time = time.monotonic() - self._wrote_s > WRITE_EVERY_S
        if is_time:
            # Another optimizer may add its loss to the last step.
            self._write_steps(self._tracer.num_steps - 1)
        return is_time

    def finish(self, *, is_cut: bool = False) -> None:
        """The script has ended; where it was cut short, amid a pass over the data unless all were given."""
        self._write_steps(self._tracer.num_steps)
        loader = self._tracer.log.loader
        has_ended = None if loader is None else loader.has_ended_pass
        if self._tracer.num_steps and (has_ended or not is_cut):
            # Nothing has told what a pass over the data is, or the first has not come to its end.
            is_all = self.num_epochs == 0 and not has_ended
            is_pass = has_ended is not False
            evaluated_ns = self._tracer.timeline.total_ns[EVALUATION]
            self._write_epoch(evaluated_ns, is_all=is_all, is_pass=is_pass)
        self._flush()
        self._lines.close()

    def _write_steps(self, end: int) -> None:
        """Those that have not been written, up to this one."""
        self._wrote_s = time.monotonic()
        told: dict[int, dict[str, float]] = {}
        for one in self._told[self._num_in_steps :]:
            if one.name.startswith("train/"):
                told.setdefault(one.at, {})[one.name] = one.value
        epochs = self._tracer.log.epochs[self._written : end]
        for epoch, steps in groupby(epochs):
            if epoch > self._epoch:
                # What followed the last step of an epoch has ended by the end of the next step.
                all_ns = self._tracer.timeline.total_ns[EVALUATION]
                self._write_epoch(self._evaluated_ns.get(epoch, all_ns))
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
        steps_s = [spent / 1e9 for spent in self._tracer.steps_ns[first:end]]
        times_s = list(accumulate(steps_s, initial=self._time_s))
        losses = log.losses_between(first, end)
        for step in filter(keeps, range(first + 1, end + 1)):
            own = {name: one[step - 1] for name, one in losses.items() if step - 1 in one}
            times = {"time_s": times_s[step - first]}
            self._write("step", step, {**own, **told.get(step, {})}, times)
        self._train_s, self._time_s = sum(steps_s, self._train_s), times_s[-1]
        self._written = end

    def _write_epoch(
        self, evaluation_ns: int, *, is_all: bool = False, is_pass: bool = True
    ) -> None:
        """`is_all`: all there was is one, at the end of which the last updates stand for it. One that
        `is_pass` not, but a part of it, is no epoch: only what was told in it counts."""
        test_s = (evaluation_ns - self._evaluation_ns) / 1e9
        self._evaluation_ns = evaluation_ns
        self._time_s += test_s
        # What was told before the next pass made an update.
        told = list(takewhile(lambda one: one.at <= self._written, self._told))
        del self._told[: len(told)]
        own = self._mean_losses(self._begun) | self._values_of(told)
        # A script need not test after every pass: what it told last counts at the end.
        kept = {n: v for n, v in self.final.items() if not n.startswith("train/")}
        if not is_pass:
            trained = {n: v for n, v in self.final.items() if n.startswith("train/")}
            own = {n: v for n, v in own.items() if is_all or not n.startswith("train/")} | trained
        self.final = {**kept, **own}
        if is_all:
            before = self._written - num_at_the_end(self._written)
            late = [one for one in told if one.at > before and one.name.startswith("train/")]
            self.final |= self._mean_losses(before) | self._values_of(late)
        if not is_pass:
            return
        times = {"train_s": self._train_s, "test_s": test_s, "time_s": self._time_s}
        self._write("epoch", self._written, own, times)
        self._begun, self._train_s = self._written, 0.0
        self.num_epochs += 1

    def _mean_losses(self, first: int) -> dict[str, float]:
        """Of the steps from this one on that have been looked at."""
        losses = self._tracer.log.losses_by_samples(first, self._written)
        return {name: _mean(values) for name, values in losses.items()}

    def _values_of(self, told: Iterable[Told]) -> dict[str, float]:
        """Of each metric the last, or the mean of one of training, which each update may tell."""
        found: dict[str, list[float]] = {}
        for one in told:
            found.setdefault(one.name, []).append(one.value)
        are_means = {n: n.startswith("train/") and n not in self._means for n in found}
        return {n: _mean(values) if are_means[n] else values[-1] for n, values in found.items()}

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


def _mean(values: Sequence[float]) -> float:
    """As sums of floats are, where they are not finite."""
    return sum(values) / len(values)


def watched_record(tracer: Tracer, *, is_so_far: bool = False) -> WatchedRecord:
    """Of a process that has ended, but for its record; `is_so_far`: of one that goes on, of its latest
    steps, without what would hold it up: its losses, and what watching adds."""
    timeline, log = tracer.timeline, tracer.log
    total_ns = timeline.total_ns
    used_s = [now - before for now, before in zip(os.times(), tracer.times_before, strict=True)]
    call_us, mark_us, losses = 0.0, 0.0, array("d")
    # Early steps, of which more are kept, are no more typical than later ones.
    if is_so_far:
        steps = [*islice(reversed(tracer.parts_ns), FEW)][::-1]
        memory = tracer.memory_bytes[:: len(tracer.memory_bytes) // FEW + 1]
    else:
        steps = [step for step in tracer.parts_ns if step == 1 or keeps(step, tracer.num_steps)]
        memory, losses = tracer.memory_bytes, log.losses.values()[:MOST_LOSSES]
        call_us, mark_us = overhead_us(has_optimizer=tracer.has_optimizer)
    return WatchedRecord(
        framework=log.framework,
        num_steps=tracer.num_steps,
        wall_s=sum(total_ns) / 1e9,
        parts_s={name: spent / 1e9 for name, spent in zip(PARTS, total_ns, strict=True) if spent},
        steps=steps,
        steps_ms=parts_ms([tracer.parts_ns[step] for step in steps]),
        losses=[loss if math.isfinite(loss) else None for loss in losses],
        batch_size=log.batch_size,
        first_dimension=log.first_dimension,
        threads=torch.get_num_threads(),
        checks_anomalies=log.checks_anomalies,
        loaders=[LoaderRow.model_validate(one, from_attributes=True) for one in log.loaders],
        models=log.models,
        optimizers=[
            OptimizerRow.model_validate(one, from_attributes=True) for one in log.optimizers
        ],
        memory=memory,
        reads=_read_rows(tracer),
        num_calls=timeline.num_calls,
        call_us=call_us,
        num_marks=timeline.num_marks,
        mark_us=mark_us if timeline.num_marks else 0.0,
        instruments_s=timeline.paused_ns / 1e9,
        cpu_s=sum(used_s[:2]),
        others_cpu_s=sum(used_s[2:4]),
    )


def _read_rows(tracer: Tracer) -> list[ReadRow]:
    """Per step that was seen whole."""
    number, reads = max(1, tracer.num_whole_steps), tracer.hooks.reads.items()
    rows = [
        ReadRow(file=file, line=line, per_step=times / number, ms=spent_ns / 1e6 / number)
        for (file, line), (times, spent_ns) in reads
    ]
    return sorted(rows, key=lambda row: -row.per_step)[:MOST_READS]


def overhead_us(*, has_optimizer: bool) -> tuple[float, float]:
    """What watching adds here and now, in microseconds: to a call that is seen to begin or end, and to one
    that is only counted; by a tiny loop that is watched and not watched, in turns. `has_optimizer`: whether
    the script has made one; torch takes seconds for the first."""
    # Only where another is set: with a device that is set, every call of torch takes longer.
    is_on_cpu = torch.get_default_device().type == "cpu"
    on_cpu = nullcontext() if is_on_cpu else torch.device("cpu")
    # A script may leave torch in a state in which nothing can be trained.
    with suppress(RuntimeError), torch.enable_grad(), on_cpu:
        return _overhead_us(has_optimizer=has_optimizer)
    return 0.0, 0.0


def _overhead_us(*, has_optimizer: bool) -> tuple[float, float]:
    # Drawn from no random numbers of the script's.
    model = torch.nn.utils.skip_init(nn.Linear, 4, 4, dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if has_optimizer else None
    dataset = TensorDataset(torch.zeros((3 * ROUNDS + 1) * STEPS, 4, dtype=torch.float32))
    batches = iter(DataLoader(dataset, generator=torch.Generator()))
    tracer = Tracer()
    timeline = tracer.timeline

    def steps_us() -> list[float]:
        times_ns = [perf_counter_ns()]
        for (batch,) in islice(batches, STEPS):
            model.zero_grad()
            model(batch).sum().backward()
            if optimizer is not None:
                optimizer.step()
            times_ns.append(perf_counter_ns())
        return [(end - start) / 1e3 for start, end in pairwise(times_ns)]

    steps_us()
    tracer.hooks.close()
    timeline.num_calls = timeline.num_marks = 0
    bare_us: list[float] = []
    levels = (WHOLE, COUNTS) if has_optimizer else (WHOLE,)
    watched_us: dict[int, list[float]] = {level: [] for level in levels}
    for _ in range(ROUNDS):
        bare_us += steps_us()
        for level, took_us in watched_us.items():
            tracer.hooks = Hooks(tracer, timeline)
            tracer.see(level)
            took_us += steps_us()
            tracer.see(WHOLE, is_amid_step=True)
            tracer.hooks.close()

    def added_us(level: int, number: int) -> float:
        """To each call. By the median step, not turn: beside other ranks on few cores most turns are
        interrupted, and few steps."""
        if not number:
            return 0.0
        added = statistics.median(watched_us[level]) - statistics.median(bare_us)
        return max(0.0, added * ROUNDS * STEPS / number)

    return added_us(WHOLE, timeline.num_calls), added_us(COUNTS, timeline.num_marks)


def facts_of(tracer: Tracer) -> dict[str, Any]:
    """What a script's settings were seen to be so far, by the names that reports and comparisons use."""
    log = tracer.log
    size, samples = log.batch_size or log.first_dimension, samples_per_update(tracer)
    batches = round(samples / size) if size and samples else 1
    facts: dict[str, Any] = {"device": log.device, "framework": log.framework or None}
    if log.is_of_torch:
        facts["threads"] = torch.get_num_threads()
    facts |= {"batch_size": log.batch_size, "accumulate": batches if batches > 1 else None}
    facts["first_dimension"] = log.first_dimension
    if log.optimizers:
        # The highest is what was asked for, in most schedules.
        lrs = {one.highest_lr for one in log.optimizers}
        facts |= {"optimizer": _names(one.name for one in log.optimizers)}
        facts["lr"] = lrs.pop() if len(lrs) == 1 else None
        facts["lr_varies"] = any(one.lowest_lr != one.highest_lr for one in log.optimizers) or None
    if log.models:
        facts["model"] = _names(one.name for one in log.models)
        facts["dtype"] = _names(sorted({dtype for one in log.models for dtype in one.dtypes}))
    facts["parameters"] = None if log.restarts else log.num_parameters or None
    if (trained := log.trained_loader) is not None:
        facts |= {"order": trained.order, "workers": trained.num_workers}
        facts |= {"pinned": trained.pin_memory, "drop_last": trained.drop_last}
        facts["train_samples"] = trained.num_samples
    return {name: fact for name, fact in facts.items() if fact is not None}


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def run_facts(tracer: Tracer) -> dict[str, Any]:
    """How far a whole run went."""
    loaders = [one for one in tracer.log.loaders if one.is_trained_on]
    passes = [round(one.passes, 2) for one in loaders if one.passes is not None]
    return {"updates": tracer.num_steps} | ({"passes": max(passes)} if passes else {})


def samples_per_update(tracer: Tracer) -> int | None:
    """Of a usual update: one of several batches has the samples of all. None where no loader tells."""
    if (size := tracer.log.batch_size or tracer.log.first_dimension) is None:
        return None
    given = [after - before for before, after in pairwise([0, *tracer.log.samples])]
    return max(size, statistics.median_low(given) if given else 0)
