"""What each layer of a step costs, in a process whose speed is never reported.

Layers are the calls as the user wrote them. The first step of the process is watched, for what
start-up costs. Then bare and watched steps alternate, so that the difference between them is what
watching costs. Work is counted in steps of its own, after everything that is timed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trainlab.instruments.calls import BATCH, Call, CallRecorder, Observer, PassCost
from trainlab.instruments.probe_instrument import Probes
from trainlab.measure.flops import WorkCounter
from trainlab.measure.steps import Steps, Stopwatch, stepping, timed_ms
from trainlab.record.cost_record import LayerRow, LayersRecord, ProbeCostRecord, WorkRecord
from trainlab.record.files import temporary_folder
from trainlab.record.run_folder import TrialFolder
from trainlab.record.schema import note
from trainlab.record.trial_record import Progress
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.study import CostSpec
from trainlab.train.callbacks import Phase, Point
from trainlab.train.engines.engine import Update
from trainlab.train.opaque import opaque_names, uncompiled
from trainlab.train.setup import Setup

MAX_COUNTED_STEPS = 5
"""Where steps differ in their calls, one may not make them all."""


class CallTimer(Observer):
    """Times the calls of one step; the device is never waited for while it runs."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch
        self._ended: list[PassCost | Phase | None] = []
        """What ended at each mark: a call's forward or backward pass, a phase, or work between calls."""

    def forward_begins(self) -> None:
        self._mark(None)

    def phase_ends(self, phase: Phase) -> None:
        self._mark(phase)

    def pass_begins(self, cost: PassCost) -> None:
        self._mark(None)

    def pass_ends(self, cost: PassCost) -> None:
        self._mark(cost)

    def read(self) -> dict[str, float]:
        """Gives every call its times and returns the phases', in microseconds. Waits for the device."""
        ended, self._ended = self._ended, []
        phases_us: dict[str, float] = {}
        since_us = 0.0
        for what, (_, lap_ms) in zip(ended[1:], self._stopwatch.laps_ms(), strict=True):
            since_us += lap_ms * 1e3
            if isinstance(what, PassCost):
                what.us += lap_ms * 1e3
            elif what is not None:
                phases_us[what] = phases_us.get(what, 0.0) + since_us
                since_us = 0.0
        return {phase: phases_us[phase] for phase in OF_THE_MODEL if phase in phases_us}

    def _mark(self, ended: PassCost | Phase | None) -> None:
        self._ended.append(ended)
        self._stopwatch.mark("")


OF_THE_MODEL: tuple[Phase, ...] = ("forward", "loss", "backward")


@dataclass(eq=False)
class _Row:
    """One call over all watched steps."""

    call: Call
    inputs: set["_Row | None"] = field(default_factory=set)
    """None is the batch."""
    first: Call | None = None
    counted: Call | None = None
    """The call whose work was counted."""
    timed: list[Call] = field(default_factory=list)


def _rows_of(calls: Sequence[Call], rows: list[_Row]) -> list[_Row]:
    """The row of each call of a step: that of the same name and number. What no step before has called is
    put behind the call before it."""
    known = {_key(row.call): row for row in rows}
    of_step: list[_Row] = []
    for call in calls:
        row = known.get(_key(call))
        if row is None:
            row = _Row(call)
            rows.insert(rows.index(of_step[-1]) + 1 if of_step else 0, row)
        of_step.append(row)
        row.inputs |= {of_step[index] if index >= 0 else None for index in call.inputs}
    return of_step


def _key(call: Call) -> tuple[str, int]:
    return call.name, call.number


def profile_layers(setup: Setup, spec: CostSpec) -> LayersRecord:
    """Watches the first step, warms up, then alternates `active_steps` watched steps with bare ones."""
    recorder, timer = CallRecorder(setup.model), CallTimer(Stopwatch(setup.device))
    rows: list[_Row] = []
    phases_us: dict[str, list[float]] = {}
    bare_ms, watched_ms, ways = [], [], set()
    if names := opaque_names(setup.model):
        setup.notes.append(note("not_seen_inside", names=", ".join(names)))
    with stepping(setup, spec.mode) as steps:
        watched = steps.watched_by([recorder])
        with recorder.watching(timer) as first:
            watched(next(steps.endless))
        timer.read()
        for row, call in zip(_rows_of(first, rows), first, strict=True):
            row.first = call
        for _ in range(spec.warmup_steps):
            steps.next_bare()
        for _ in range(spec.active_steps):
            bare_ms.append(timed_ms(setup.device, steps.next_bare))
            with recorder.watching(timer) as calls:
                next_watched = partial(watched, next(steps.endless))
                watched_ms.append(timed_ms(setup.device, next_watched))
            for phase, us in timer.read().items():
                phases_us.setdefault(phase, []).append(us)
            for row, call in zip(_rows_of(calls, rows), calls, strict=True):
                row.timed.append(call)
            ways.add(tuple(map(_key, calls)))
        counter = _count_work(recorder, watched, steps, rows)
    return LayersRecord(
        mode=spec.one_mode,
        batch_size=steps.batch_size,
        num_steps=spec.active_steps,
        calls_are_equal=ways == {tuple(map(_key, first))},
        rows=list(_layer_rows(setup, spec, rows)),
        uncounted=sorted(counter.uncounted),
        between=_work_record(counter.between),
        optimizer=_work_record(counter.optimizer),
        phases_us=phases_us,
        bare_ms=bare_ms,
        watched_ms=watched_ms,
    )


def _count_work(
    recorder: CallRecorder, watched: Update, steps: Steps, rows: list[_Row]
) -> WorkCounter:
    """Counts the work of the calls, in steps that are not timed; the last counter has what is left."""
    uncounted: set[str] = set()
    for _ in range(MAX_COUNTED_STEPS):
        counter = WorkCounter()
        with recorder.watching(counter) as calls, uncompiled():
            watched(next(steps.endless))
        uncounted |= counter.uncounted
        for row, call in zip(_rows_of(calls, rows), calls, strict=True):
            row.counted = row.counted or call
        if all(row.counted is not None for row in rows):
            break
    counter.uncounted = uncounted
    return counter


def _work_record(cost: PassCost) -> WorkRecord:
    return WorkRecord(flops_by_kind=cost.flops_by_kind, num_bytes=cost.num_bytes)


def _layer_rows(setup: Setup, spec: CostSpec, rows: Sequence[_Row]) -> Iterator[LayerRow]:
    places = {row: index for index, row in enumerate(rows)} | {None: BATCH}
    unseen = {id(parameter): parameter.numel() for parameter in setup.model.parameters()}
    trains = spec.mode == "train"
    for index, row in enumerate(rows):
        call, first, work = row.call, row.first, row.counted
        forward, backward = (work.forward, work.backward) if work else (PassCost(), PassCost())
        yield LayerRow(
            **call.facts(unseen),
            # What comes later in another step cannot have been taken in here.
            inputs=sorted(place for one in row.inputs if (place := places[one]) < index),
            forward_flops=forward.flops_by_kind.total(),
            backward_flops=backward.flops_by_kind.total(),
            flops_by_kind=forward.flops_by_kind + backward.flops_by_kind,
            forward_bytes=forward.num_bytes,
            backward_bytes=backward.num_bytes,
            output_bytes=call.output_bytes,
            saved_bytes=forward.saved_bytes + backward.saved_bytes,
            first_forward_us=first.forward.us if first else None,
            forward_us=[one.forward.us for one in row.timed],
            backward_us=[one.backward.us for one in row.timed] if trains else [],
        )


def measure_probes(setup: Setup, spec: CostSpec, probes: Sequence[ProbeSpec]) -> ProbeCostRecord:
    """Warms up, then `active_steps` probed steps in turns with as many bare ones."""
    bare_ms, watched_ms = [], []
    with temporary_folder() as folder, stepping(setup, "train") as steps:
        # What the probes see here is not the study's: it is written elsewhere and forgotten.
        probed, instrument = probed_step(setup, steps, probes, TrialFolder(folder))
        for _ in range(spec.warmup_steps):
            steps.next_bare()
            probed(next(steps.endless))
        for _ in range(spec.active_steps):
            bare_ms.append(timed_ms(setup.device, steps.next_bare))
            watched_ms.append(timed_ms(setup.device, partial(probed, next(steps.endless))))
        instrument.trial_ends(Progress())
    return ProbeCostRecord(
        probes=[str(probe) for probe in probes], bare_ms=bare_ms, watched_ms=watched_ms
    )


def probed_step(
    setup: Setup, steps: Steps, probes: Sequence[ProbeSpec], folder: TrialFolder
) -> tuple[Update, Probes]:
    """A step with probes, told of its moments as the loop does; and the probes, to be ended."""
    instrument, every = Probes(probes), setup.log_every_steps
    step, number = steps.watched_by([instrument]), 0
    instrument.trial_begins(setup.view(folder))
    instrument.epoch_begins(1)

    def run(rows: Any) -> None:
        nonlocal number
        number += 1
        instrument.step_begins(number)
        step(rows)
        instrument.step_ends(number)
        if number % every == 0:
            instrument.point_logged(Point("step", 1, number, number, {}, {}))

    return run, instrument
