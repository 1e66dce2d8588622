"""What the operators of a step cost, by torch's profiler, in a process whose speed is never reported.

Steps are profiled in chunks, each after a step that is not counted: the first step after the
profiler starts drops or inflates events. Within a step, an operator belongs to the phase whose end
mark comes next. A time is that of the middle step: one that something else held up is no cost of its own.
"""

import statistics
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile, record_function

from trainlab.machine.device import synchronize
from trainlab.measure.steps import Steps, stepping, timed_ms
from trainlab.record.cost_record import OperatorRow, OperatorsRecord
from trainlab.record.files import replacing, temporary_folder
from trainlab.record.schema import note
from trainlab.spec.study import CostSpec
from trainlab.train.callbacks import Instrument, Phase
from trainlab.train.engines.engine import Update
from trainlab.train.setup import Setup

STEP = "trainlab::step"
END_OF = "trainlab::end of "
END_OF_STEP = "trainlab::step ends"
OPTIMIZER_RANGE = "Optimizer.step#"
"""Begins the name of torch's own range around an update: it opens before hooks can say so."""
RUNTIME = {
    "Activity Buffer Request",
    "Command Buffer Full",
    "Lazy Function Loading",
    "Runtime Triggered Module Loading",
}
Kind = Literal["operator", "kernel", "runtime"]
Key = tuple[str, Kind, str, str]
"""Name, kind, phase, and shapes where asked for."""

MAX_TRACE_STEPS = 10
MAX_PASS_STEPS = 400
"""Of a longer pass so many are profiled, the last among them: the others make the same calls."""
STEPS_PER_CHUNK = 200
"""Bounds the profiler's memory; its events are reduced to sums after each chunk."""


class PhaseEnds(Instrument):
    """Leaves an empty, named range in the profile where a phase ends."""

    def phase_ends(self, phase: Phase) -> None:
        with record_function(END_OF + phase):
            pass


SUMS = {
    "self_cpu_us": "self_cpu_time_total",
    "total_cpu_us": "cpu_time_total",
    "self_device_us": "self_device_time_total",
    "total_device_us": "device_time_total",
    "self_cpu_bytes": "self_cpu_memory_usage",
    "self_device_bytes": "self_device_memory_usage",
}
"""What a row adds up over its events, by the name that these have for it."""


@dataclass
class Tally:
    """Sums of every counted step so far."""

    by_shape: bool
    rows: defaultdict[Key, defaultdict[int, Counter[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Counter))
    )
    """By the number of the step, of those in which it ran."""
    step_us: list[float] = field(default_factory=list)
    inside_us: Counter[int] = field(default_factory=Counter)
    """Of each step, what operators took themselves."""
    calls_per_step: set[tuple[tuple[str, int], ...]] = field(default_factory=set)

    def add(self, step: int, name: str, kind: Kind, phase: str, event: Any) -> None:
        """One event; its shapes tell it apart where they were asked for."""
        with_shapes = self.by_shape and kind == "operator"
        shapes = [shape for shape in event.input_shapes or [] if shape] if with_shapes else []
        text = ", ".join("x".join(map(str, shape)) for shape in shapes)
        sums = self.rows[name, kind, phase, text][step]
        # No operator called it; the range of the step and the ends of phases are ours.
        parent = event.cpu_parent
        sums["outermost_calls"] += parent is None or parent.name.startswith("trainlab::")
        sums["calls"] += 1
        for total, attribute in SUMS.items():
            sums[total] += getattr(event, attribute)
        self.inside_us[step] += event.self_cpu_time_total if kind == "operator" else 0

    def record(self, **others: Any) -> OperatorsRecord:
        """Of all steps; the wall time is made of the same medians, so that shares of it add up."""
        num_steps = len(self.step_us)
        rows = [
            OperatorRow(name=name, kind=kind, phase=phase, shapes=shapes, **_typical(of_steps))
            for (name, kind, phase, shapes), of_steps in sorted(self.rows.items())
        ]
        outside_us = [us - self.inside_us[step] for step, us in enumerate(self.step_us)]
        inside_us = sum(row.self_cpu_us for row in rows if row.kind == "operator") / num_steps
        return OperatorsRecord(
            num_steps=num_steps,
            profiled_step_us=inside_us + statistics.median(outside_us),
            profiled_ms=[us / 1e3 for us in self.step_us],
            are_medians=True,
            calls_are_equal=len(self.calls_per_step) == 1,
            rows=rows,
            **others,
        )


def _typical(of_steps: Mapping[int, Mapping[str, float]]) -> dict[str, Any]:
    """Sums over the steps; of times the median step's time of a call, for all calls."""
    steps = of_steps.values()
    sums = {name: sum(step[name] for step in steps) for name in ("calls", "outermost_calls", *SUMS)}
    for name in SUMS:
        if name.endswith("_us"):
            per_call = statistics.median(step[name] / step["calls"] for step in steps)
            sums[name] = per_call * sums["calls"]
    return sums


def profile_operators(setup: Setup, spec: CostSpec, trace_file: Path) -> OperatorsRecord:
    """Warms up, then profiles `active_steps` training steps, or a pass over the test set; then a trace."""
    tally, is_pass = Tally(by_shape=spec.by_shape), spec.mode == "inference"
    with stepping(setup, spec.mode) as steps:
        marked = steps.watched_by([PhaseEnds()])
        for _ in range(spec.warmup_steps):
            marked(next(steps.endless))
        # By the engine that is profiled, which need not be that of the cell.
        plain = map(marked, steps.endless)
        bare_ms = [timed_ms(setup.device, lambda: next(plain)) for _ in range(spec.active_steps)]
        for chunk in _chunks_of_a_pass(steps) if is_pass else _chunks(steps, spec.active_steps):
            add_chunk(tally, _profiled(setup.device, marked, chunk, spec.by_shape).events())
        trace_steps = _write_trace(setup, steps, marked, spec, trace_file)
    return tally.record(
        mode=spec.one_mode,
        batch_size=steps.batch_size,
        num_pass_steps=len(steps.batches) if is_pass else 0,
        bare_ms=bare_ms,
        trace_steps=trace_steps,
    )


def _chunks(steps: Steps, num_steps: int) -> Iterator[list[Any]]:
    """Training batches in their order, as data that is fetched comes; the first of each is not counted."""
    for start in range(0, num_steps, STEPS_PER_CHUNK):
        yield list(islice(steps.endless, 1 + min(STEPS_PER_CHUNK, num_steps - start)))


def _chunks_of_a_pass(steps: Steps) -> Iterator[list[Any]]:
    """Those of a pass over the test set, each behind one that is not counted; of a long pass the first
    batches, and the smaller last one."""
    work = steps.batches.in_order()
    if len(steps.batches) > MAX_PASS_STEPS:
        last = next(steps.endless) if steps.last is None else steps.last
        work = chain(islice(work, MAX_PASS_STEPS - 1), [last])
    while chunk := list(islice(work, STEPS_PER_CHUNK)):
        yield [next(steps.endless), *chunk]


def profiler_for(device: torch.device, *, by_shape: bool) -> Any:
    """torch's profiler, to be entered around steps."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    return profile(
        activities=activities, profile_memory=True, acc_events=True, record_shapes=by_shape
    )


def _profiled(device: torch.device, step: Update, batches: Sequence[Any], by_shape: bool) -> Any:
    """The profiler after a step on the first batch, which is not counted, and on the others, which are."""
    spare, *counted = batches
    with profiler_for(device, by_shape=by_shape) as profiler:
        step(spare)
        synchronize(device)
        for batch in counted:
            with record_function(STEP):
                step(batch)
                # Inside the step: what it queued belongs to it.
                synchronize(device)
    return profiler


def _write_trace(setup: Setup, steps: Steps, marked: Update, spec: CostSpec, path: Path) -> int:
    """Writes trace.json.gz with as many steps as its budget holds, and says how many those are."""
    budget = spec.trace_mb * 1e6
    wanted = min(spec.active_steps, MAX_TRACE_STEPS) if budget else 0
    while wanted:
        batches = list(islice(steps.endless, wanted + 1))
        profiler = _profiled(setup.device, marked, batches, spec.by_shape)
        # torch picks the compression by the name's ending.
        with temporary_folder() as folder:
            part = folder / path.name
            profiler.export_chrome_trace(str(part))
            size = part.stat().st_size
            if size <= budget:
                with replacing(path) as final:
                    final.write_bytes(part.read_bytes())
                return wanted
        # One uncounted step is in it too. Always fewer than before, whatever the estimate.
        wanted = max(0, min(wanted - 1, int(budget / (size / (wanted + 1))) - 1))
    if budget:
        setup.notes.append(note("trace_too_large", budget=spec.trace_mb))
    return 0


def add_chunk(tally: Tally, events: Any) -> None:
    """Adds a chunk's events to the sums; events outside the counted steps are left out. A step is a range
    of that name, or lies between two ends of steps."""
    host = [event for event in events if event.device_type == DeviceType.CPU]
    steps = sorted((e.time_range.start, e.time_range.end) for e in host if e.name == STEP)
    steps = steps or list(
        pairwise(sorted(e.time_range.start for e in host if e.name == END_OF_STEP))
    )
    ends = sorted((e.time_range.start, e.name) for e in host if e.name.startswith(END_OF))
    starts, marks = [start for start, _ in steps], [at for at, _ in ends]
    first = len(tally.step_us)
    counts: list[Counter[str]] = [Counter() for _ in steps]
    host_names = {event.name for event in host}
    for event in events:
        at = event.time_range.start
        index = bisect_right(starts, at) - 1
        if event.name.startswith("trainlab::") or index < 0 or at > steps[index][1]:
            continue
        if event.device_type != DeviceType.CPU:
            # A range named on the host is mirrored on the device, around kernels counted already.
            if event.name not in host_names:
                tally.add(first + index, event.name, "kernel", "", event)
            continue
        mark = bisect_left(marks, at)
        phase = ends[mark][1].removeprefix(END_OF) if mark < len(ends) else "other"
        if event.name.startswith(OPTIMIZER_RANGE):
            phase = "optimizer"
        if event.name in RUNTIME:
            tally.add(first + index, event.name, "runtime", phase, event)
            continue
        counts[index][event.name] += 1
        tally.add(first + index, event.name, "operator", phase, event)
    tally.step_us += [end - start for start, end in steps]
    tally.calls_per_step |= {tuple(sorted(count.items())) for count in counts}
