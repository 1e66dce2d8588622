"""What the operators of a step cost, by torch's profiler, in a process whose speed is never reported.

Steps are profiled in chunks, each after a step that is not counted: the first step after the
profiler starts drops or inflates events. Within a step, an operator belongs to the phase whose end
mark comes next.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile, record_function

from trainlab.record.schema import OperatorRow, OperatorsRecord
from trainlab.spec.cost import CostSpec
from trainlab.train.bench import Bench
from trainlab.train.cost import Steps, stepping
from trainlab.train.device import synchronize
from trainlab.train.moments import Instrument, Phase

STEP = "trainlab::step"
END_OF = "trainlab::end of "
Kind = Literal["operator", "kernel"]
Key = tuple[str, Kind, str]
"""Name, kind and phase."""

STEPS_PER_CHUNK = 200
"""Bounds the profiler's memory; its events are reduced to sums after each chunk."""


class PhaseEnds(Instrument):
    """Leaves an empty, named range in the profile where a phase ends."""

    def phase_ends(self, phase: Phase) -> None:
        with record_function(END_OF + phase):
            pass


@dataclass
class _Sums:
    calls: int = 0
    self_cpu_us: float = 0.0
    total_cpu_us: float = 0.0
    self_device_us: float = 0.0
    total_device_us: float = 0.0
    self_cpu_bytes: int = 0
    self_device_bytes: int = 0


@dataclass
class _Tally:
    """Sums over all counted steps so far."""

    rows: dict[Key, _Sums] = field(default_factory=dict)
    step_us: float = 0.0
    num_steps: int = 0
    calls_per_step: set[tuple[tuple[str, int], ...]] = field(default_factory=set)


def profile_operators(bench: Bench, spec: CostSpec) -> OperatorsRecord:
    """Warms up, then profiles `active_steps` training steps, or the whole test set."""
    tally = _Tally()
    with stepping(bench, spec.mode, PhaseEnds()) as steps:
        for _ in range(spec.warmup_steps):
            steps.marked(next(steps.endless))
        spare = next(steps.endless)
        work = (
            steps.one_pass if spec.mode == "inference" else islice(steps.endless, spec.active_steps)
        )
        while chunk := list(islice(work, STEPS_PER_CHUNK)):
            _add_chunk(tally, _profiled(bench, steps, spare, chunk))
    return OperatorsRecord(
        mode=spec.mode,
        batch_size=min(steps.batches.batch_size, steps.batches.num_samples),
        num_steps=tally.num_steps,
        profiled_step_us=tally.step_us / tally.num_steps,
        calls_are_equal=len(tally.calls_per_step) == 1,
        rows=[
            OperatorRow(name=name, kind=kind, phase=phase, **vars(sums))
            for (name, kind, phase), sums in sorted(tally.rows.items())
        ],
    )


def _profiled(bench: Bench, steps: Steps, spare: Any, chunk: list[Any]) -> Any:
    """The profiler's events of a step that is not counted and of the chunk's steps, which are."""
    activities = [ProfilerActivity.CPU]
    if bench.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
        steps.marked(spare)
        synchronize(bench.device)
        for batch in chunk:
            with record_function(STEP):
                steps.marked(batch)
                # Inside the step: what it queued belongs to it.
                synchronize(bench.device)
    return profiler.events()


def _add_chunk(tally: _Tally, events: Any) -> None:
    """Adds a chunk's events to the sums; events outside the counted steps are left out."""
    host = [event for event in events if event.device_type == DeviceType.CPU]
    steps = sorted((e.time_range.start, e.time_range.end) for e in host if e.name == STEP)
    ends = sorted((e.time_range.start, e.name) for e in host if e.name.startswith(END_OF))
    starts, marks = [start for start, _ in steps], [at for at, _ in ends]
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
                _add(tally, (event.name, "kernel", ""), event)
            continue
        mark = bisect_left(marks, at)
        phase = ends[mark][1].removeprefix(END_OF) if mark < len(ends) else "other"
        counts[index][event.name] += 1
        _add(tally, (event.name, "operator", phase), event)
    tally.num_steps += len(steps)
    tally.step_us += sum(end - start for start, end in steps)
    tally.calls_per_step |= {tuple(sorted(count.items())) for count in counts}


def _add(tally: _Tally, key: Key, event: Any) -> None:
    sums = tally.rows.setdefault(key, _Sums())
    sums.calls += 1
    sums.self_cpu_us += event.self_cpu_time_total
    sums.total_cpu_us += event.cpu_time_total
    sums.self_device_us += event.self_device_time_total
    sums.total_device_us += event.device_time_total
    sums.self_cpu_bytes += event.self_cpu_memory_usage
    sums.self_device_bytes += event.self_device_memory_usage
