"""What each layer of a step costs, as the user wrote them, in a process whose speed is never reported.

The first step of the process is watched, for what start-up costs. Then bare and watched steps take
turns, so that the difference between them is what watching costs. Work is counted in steps of its
own, after all that is timed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from torch import nn

from trainlab.instruments.calls.recorder import Call, CallRecorder, Observer
from trainlab.measure.steps import Steps, stepping
from trainlab.measure.stopwatch import Stopwatch, stopwatch_for, timed_ms
from trainlab.measure.work import WorkCounter
from trainlab.record.cost import LayerRow, LayersRecord
from trainlab.spec.cost import CostSpec
from trainlab.train.engines.engine import Update
from trainlab.train.moments import Instrument, Phase
from trainlab.train.setup import Setup

MAX_COUNTED_STEPS = 5
"""Where steps differ in their calls, one may not make them all."""

Key = tuple[str, str, int]
"""Phase, name and number of a call: the same call in another step."""


class CallTimer:
    """Times the calls of one step; the device is never waited for while it runs."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch
        self._ends: list[tuple[Call | None, str]] = []
        """What ended at each mark: a call's forward or backward part, or a phase."""

    def begin(self) -> None:
        self._mark(None, "")

    def phase_ends(self, phase: Phase) -> None:
        self._mark(None, phase)

    def end(self) -> None:
        """Times are read later, once the device is done."""

    def forward_begins(self, call: Call) -> None:
        self._mark(None, "")

    def forward_ends(self, call: Call) -> None:
        self._mark(call, "forward")

    def backward_begins(self, call: Call) -> None:
        self._mark(None, "")

    def backward_ends(self, call: Call) -> None:
        self._mark(call, "backward")

    def read(self) -> dict[str, float]:
        """Gives every call its times and returns the phases', in microseconds. Waits for the device."""
        ends, self._ends = self._ends, []
        phases, since = {}, 0.0
        for (call, part), (_, lap_ms) in zip(ends[1:], self._watch.laps_ms(), strict=True):
            since += lap_ms * 1e3
            if call is not None and part == "forward":
                call.forward_us += lap_ms * 1e3
            elif call is not None:
                call.backward_us += lap_ms * 1e3
            elif part:
                phases[part], since = since, 0.0
        return phases

    def _mark(self, call: Call | None, part: str) -> None:
        self._ends.append((call, part))
        self._watch.mark(part)


class LayerWatch(Instrument):
    """Watches the calls of those steps it is told to, with a timer or a counter."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._observer: Observer | None = None
        self._calls: CallRecorder | None = None

    @contextmanager
    def watching(self, observer: Observer) -> Iterator[list[Call]]:
        """The calls of the step run inside, as they come; whatever it raises, nothing stays behind."""
        self._observer = observer
        calls = self._calls = CallRecorder(self._model, observer)
        calls.watch.install()
        try:
            yield calls.calls
        finally:
            self._observer = self._calls = None
            calls.watch.uninstall()
            calls.release_graph()
            observer.end()

    def forward_begins(self) -> None:
        if self._observer is not None and self._calls is not None:
            self._observer.begin()
            self._calls.watch.start_watching()

    def phase_ends(self, phase: Phase) -> None:
        observer, calls = self._observer, self._calls
        if observer is None or calls is None:
            return
        if phase in ("forward", "loss", "backward"):
            observer.phase_ends(phase)
        if phase == "forward":
            calls.phase = "loss"
        elif phase == "loss":
            calls.watch.stop_watching()


@dataclass
class _Row:
    """One call over all watched steps."""

    call: Call
    inputs: set[Key | None] = field(default_factory=set)
    """None is the batch."""
    parameters: set[int] = field(default_factory=set)
    first: Call | None = None
    forward_us: list[float] = field(default_factory=list)
    backward_us: list[float] = field(default_factory=list)


def profile_layers(setup: Setup, spec: CostSpec) -> LayersRecord:
    """Watches the first step, warms up, then `active_steps` in turns with as many bare ones."""
    watch, timer = LayerWatch(setup.model), CallTimer(stopwatch_for(setup.device))
    phases_us: dict[str, list[float]] = {}
    bare_ms, watched_ms, seen = [], [], []
    with stepping(setup, spec.mode) as steps:
        watched = steps.watched_by([watch])
        with watch.watching(timer) as first:
            watched(next(steps.endless))
        timer.read()
        for _ in range(spec.warmup_steps):
            steps.next_bare()
        for _ in range(spec.active_steps):
            bare_ms.append(timed_ms(setup.device, steps.next_bare))
            with watch.watching(timer) as calls:
                next_watched = partial(watched, next(steps.endless))
                watched_ms.append(timed_ms(setup.device, next_watched))
            seen.append(calls)
            for phase, us in timer.read().items():
                phases_us.setdefault(phase, []).append(us)
        rows = _merged(first, seen)
        counts, uncounted = _counted(watch, watched, steps, set(rows))
    equal = len({tuple(map(_key, calls)) for calls in [first, *seen]}) == 1
    return LayersRecord(
        mode=spec.one_mode,
        batch_size=steps.batch_size,
        num_steps=len(seen),
        calls_are_equal=equal,
        rows=list(_records(setup, spec, rows, counts)),
        uncounted=sorted(uncounted),
        phases_us=phases_us,
        bare_ms=bare_ms,
        watched_ms=watched_ms,
    )


def _key(call: Call) -> Key:
    return call.phase, call.name, call.number


def _merged(first: list[Call], seen: list[list[Call]]) -> dict[Key, _Row]:
    """The calls of all steps, in the order they first appeared."""
    rows: dict[Key, _Row] = {}
    for calls in [first, *seen]:
        keys = [_key(call) for call in calls]
        for key, call in zip(keys, calls, strict=True):
            row = rows.setdefault(key, _Row(call))
            row.inputs |= {keys[index] if index >= 0 else None for index in call.inputs}
            row.parameters |= call.parameters
            if calls is first:
                row.first = call
            else:
                row.forward_us.append(call.forward_us)
                row.backward_us.append(call.backward_us)
    return rows


def _counted(
    watch: LayerWatch, watched: Update, steps: Steps, wanted: set[Key]
) -> tuple[dict[Key, Call], set[str]]:
    """The work of the calls, from steps that are not timed; and operators nobody can count."""
    counts: dict[Key, Call] = {}
    uncounted: set[str] = set()
    for _ in range(MAX_COUNTED_STEPS):
        counter = WorkCounter()
        with watch.watching(counter) as calls:
            watched(next(steps.endless))
        uncounted |= counter.uncounted
        counts = {_key(call): call for call in calls} | counts
        if wanted <= counts.keys():
            break
    return counts, uncounted


def _records(
    setup: Setup, spec: CostSpec, rows: dict[Key, _Row], counts: dict[Key, Call]
) -> Iterator[LayerRow]:
    numbers = {key: number for number, key in enumerate(rows)}
    unseen = {id(parameter): parameter.numel() for parameter in setup.model.parameters()}
    trains = spec.mode == "train"
    for key, row in rows.items():
        call, work = row.call, counts.get(key, Call("", "", "function", "forward"))
        yield LayerRow(
            name=call.name,
            call=call.number,
            kind=call.kind,
            type=call.type,
            phase=call.phase,
            inputs=sorted(-1 if source is None else numbers[source] for source in row.inputs),
            output_shapes=call.output_shapes,
            num_parameters=sum(unseen.pop(parameter, 0) for parameter in row.parameters),
            forward_flops=work.forward_flops,
            backward_flops=work.backward_flops,
            forward_bytes=work.forward_bytes,
            backward_bytes=work.backward_bytes,
            output_bytes=call.output_bytes,
            saved_bytes=work.saved_bytes,
            first_forward_us=row.first.forward_us if row.first else None,
            first_backward_us=row.first.backward_us if row.first and trains else None,
            forward_us=row.forward_us,
            backward_us=row.backward_us if trains else [],
        )
