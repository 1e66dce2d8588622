"""Probes: watch activations, gradients and weights of any layer in constant memory.

Tensors are reduced on their device as they come, in training steps only; values move to the host
when a point is logged or an epoch ends, never inside a step. Gradients are read at the nodes of the
autograd graph that the layers made: nothing is added to the graph, so the losses stay as they are.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trainlab.instruments.probe_channels import Channel, Channels, Period, Place, move_to_host
from trainlab.instruments.probe_hooks import ProbedCalls, ProbedParameters
from trainlab.instruments.reducers import DeadUnits
from trainlab.record.files import LineWriter
from trainlab.record.learning_record import FiredRecord, ProbeRecord, ProbesRecord
from trainlab.record.trial_record import Progress
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import (
    Instrument,
    ParameterIds,
    Phase,
    Point,
    ProgramInstrument,
    ProgramView,
    TrialView,
)
from trainlab.train.engines.engine import Unsuited

MAX_PENDING = 4096
"""Results on the device that wait for the host."""
GRACE_STEPS = 20
"""A function may be called in some steps only; after so many without it a selector is a mistake."""


class ProbeSet:
    """The probes of a trial, or of trials that are updated together, each a lane: where they read, over how
    many updates each is reduced, and what has come of it."""

    def __init__(
        self,
        specs: Sequence[ProbeSpec],
        model: nn.Module,
        device: torch.device,
        program: ProgramView | None = None,
        earlier: Iterable[FiredRecord] = (),
    ) -> None:
        self.epoch = self._num_seen = 0
        self.channels = Channels(specs, device, program, earlier)
        of_parameters = [spec for spec in specs if spec.is_of_parameters]
        of_calls = [spec for spec in specs if not spec.is_of_parameters]
        self.parameters = ProbedParameters(model, of_parameters, self.channels, program)
        self.calls = ProbedCalls(model, of_calls, self.channels, program)
        self._num_steps: dict[ProbeSpec, int] = dict.fromkeys(specs, 0)
        """Of the period that each is in."""
        self._has_worked = self._is_within_steps = False
        self._running = list(range(1 if program is None else program.num_lanes))
        self._closed: list[Period] = []
        """On the device."""
        self._records: list[list[ProbeRecord]] = [[] for _ in self._running]
        self._proofs: dict[int, list[FiredRecord]] = {}

    @property
    def is_between_periods(self) -> bool:
        return not self._closed and not any(self._num_steps.values())

    def count_steps(self, num_steps: int) -> None:
        """So many further updates have been made; no period ends before the last of them."""
        self._num_seen += num_steps
        for spec in self._num_steps:
            self._num_steps[spec] += num_steps
            if self._num_steps[spec] == _length(spec):
                self._close(spec)
        if not self._has_worked:
            self._has_worked = self.calls.check(last_chance=self._num_seen >= GRACE_STEPS)
        if len(self._closed) >= MAX_PENDING:
            self._read()

    def epoch_ends(self) -> None:
        """Raises where a probe has never fired; closes the epoch's periods. Of a program it is called for
        every trial, and what closes, closes at the first call."""
        if self.epoch == 1:
            self.calls.check(last_chance=True)
        self.parameters.check()
        for spec, num_steps in self._num_steps.items():
            if spec.every == "epoch" and num_steps:
                self._close(spec)

    def records_of(self, lane: int) -> list[ProbeRecord]:
        """Those of a trial that have not been fetched."""
        self._read()
        records, self._records[lane] = self._records[lane], []
        return records

    def end(self, lane: int) -> list[FiredRecord]:
        """All trials are at their end, however it came: what the probes of one saw."""
        if lane in self._running:
            self.end_lanes(self._running)
        return self._proofs[lane]

    def end_lanes(self, lanes: list[int]) -> None:
        """A period that a trial ended in, diverged or interrupted, is recorded with its steps; the other
        trials stay in it."""
        channels = self.channels.all()
        kept = [vars(copy.copy(channel)) for channel in channels]
        # Steps that the host could not count, because it was interrupted, are in the numbers.
        open_steps = {} if self._is_within_steps else self._num_steps
        for spec, num_steps in open_steps.items():
            if num_steps:
                self._tell(spec, lanes)
        self._proofs |= dict.fromkeys(lanes, self.channels.proof())
        for channel, before in zip(channels, kept, strict=True):
            vars(channel).update(before)
        self._running = [lane for lane in self._running if lane not in lanes]

    def _close(self, spec: ProbeSpec) -> None:
        self._tell(spec, self._running)
        self._num_steps[spec] = 0
        for channel in self.channels.of(spec):
            channel.reset()

    def _tell(self, spec: ProbeSpec, lanes: list[int]) -> None:
        """What came in the period so far, to these lanes."""
        if spec.quantity == "weight":
            self.parameters.read_weights(spec)
        place = self.epoch, self.channels.step, self._num_steps[spec]
        for channel in self.channels.of(spec):
            if channel.in_period:
                self._closed.append(Period(channel, *place, lanes))
            if spec.quantity == "weight":
                channel.reset()

    def _read(self) -> None:
        closed, self._closed = self._closed, []
        move_to_host(closed)
        for period in closed:
            for lane in period.lanes:
                self._records[lane].append(period.record(lane))


def _length(spec: ProbeSpec) -> int | None:
    """The updates of a period; None: those of an epoch."""
    return 1 if spec.every == "step" else None if spec.every == "epoch" else spec.every


class ProbedProgram(ProbeSet):
    """Watches the steps of a group of trials for all of them where these are a program; the trials' own
    instruments fetch their records here."""

    def __init__(self, group: Sequence["Probes"], view: ProgramView) -> None:
        if view.device.type == "mps":
            raise Unsuited("not_probed_alike")  # it has no float64
        super().__init__(group[0].specs, view.model, view.device, view)
        self._group, self._view = group, view
        self._fired: dict[int, list[tuple[Channel, tuple[int, ...]]]] = {}
        """In the last step of so many samples that ran from Python: channels, and the shapes of what they
        took in of one trial. All steps of a program fire alike."""
        self._references: dict[int, dict[Place, list[tuple[int, ...]]]] = {}
        """What eager sees in a step of so many samples: what each place took in."""

    @property
    def tensors(self) -> list[Tensor]:
        return [tensor for one in self.channels.all() for tensor in one.reduction.tensors]

    @contextmanager
    def forward(self, num_samples: int) -> Iterator[None]:
        self.calls.step_begins()
        self.channels.in_step = self._fired[num_samples] = []
        with self.calls.watching():
            yield

    def backward_ends(self) -> None:
        self.calls.backward_ends()

    def gradients_ready(self, gradients: Mapping[str, Tensor]) -> None:
        self.parameters.update_begins()
        self.parameters.gradients_ready(gradients=gradients)

    def update_ends(self) -> None:
        self.parameters.update_ends()
        self.channels.in_step = None

    @contextmanager
    def reference(self, num_samples: int) -> Iterator[AbstractContextManager[None]]:
        of_calls = [spec for spec in self._num_steps if not spec.is_of_parameters]
        eager = ProbeSet(of_calls, self._view.model, self._view.device)
        yield eager.calls.watching()
        eager.calls.backward_ends()
        fired = [channel for channel in eager.channels.all() if channel.fired]
        for channel in fired:
            if isinstance(channel.reduction, DeadUnits):
                assert channel.reduction.dimension is not None
                self.channels.units[channel.at] = channel.reduction.dimension
        self._references[num_samples] = {one.at: list(one.shapes) for one in fired}

    def opened(self) -> None:
        known = set(self.channels.all())
        for num_samples, wanted in self._references.items():
            shapes: dict[Place, list[tuple[int, ...]]] = {}
            for one, shape in self._fired[num_samples]:
                if one in known and one.kind != "parameter":
                    shapes.setdefault(one.at, []).append(shape)
            if shapes != wanted:
                raise Unsuited("not_probed_alike")
        self.channels.in_step = None
        for channel in known:
            channel.reduction.reset()
        for lane, probes in enumerate(self._group):
            probes._probes, probes._lane = self, lane

    def go_on(self, is_running: Sequence[bool]) -> None:
        ended = [lane for lane in self._running if not is_running[lane]]
        if ended:
            self.end_lanes(ended)

    def next_steps(self, most: int) -> int:
        self._is_within_steps = True
        # None of them beyond the end of a period.
        left = [length - self._num_steps[s] for s in self._num_steps if (length := _length(s))]
        return min([most, *left])

    def steps_done(self, num_samples: int, num_steps: int) -> None:
        first, self.channels.step = self.channels.step + 1, self.channels.step + num_steps
        known = set(self.channels.all())
        for channel, shape in self._fired[num_samples]:
            if channel in known:
                channel.fires(shape, first, self.channels.step)
        self._is_within_steps = False
        self.count_steps(num_steps)


class Probes(ProgramInstrument):
    """All probes of a trial. What each saw is in probes.json, its values in probes.jsonl."""

    goes_on = True

    def __init__(
        self,
        specs: Sequence[ProbeSpec],
        listeners: Sequence[Callable[[ProbeRecord], None]] = (),
    ) -> None:
        """`listeners` get every record as it is written; TensorBoard's writer is one."""
        self.specs, self._listeners = tuple(dict.fromkeys(specs)), tuple(listeners)
        self._lines: LineWriter | None = None
        self._probes: ProbeSet | None = None
        """Where the steps are a program, that of the whole group, of which this trial is a lane."""
        self._lane = 0
        self._has_told_silent = False

    def in_program(self, group: Sequence[Instrument], view: ProgramView) -> ProbedProgram:
        probes = [one for one in group if isinstance(one, Probes) and one.specs == self.specs]
        assert len(probes) == view.num_lanes == len(group), "the trials of a group are probed alike"
        return ProbedProgram(probes, view)

    def trial_begins(self, view: TrialView) -> None:
        super().trial_begins(view)
        if self._probes is None:
            self._probes = ProbeSet(self.specs, view.model, view.device)
        self._lines = LineWriter(view.folder.probes_file, append=view.steps_before > 0)

    def saved_state(self) -> Mapping[str, Any] | None:
        """Between periods alone: what is being reduced in one is not saved. In a program never."""
        if isinstance(self._probes, ProbedProgram) or not self.probes.is_between_periods:
            return None
        return {"rows": [row.model_dump(mode="json") for row in self.probes.channels.proof()]}

    def restore_state(self, saved: Mapping[str, Any]) -> None:
        earlier = [FiredRecord.model_validate(row) for row in saved["rows"]]
        self._probes = ProbeSet(self.specs, self._view.model, self._view.device, earlier=earlier)

    @property
    def probes(self) -> ProbeSet:
        assert self._probes is not None
        return self._probes

    def epoch_begins(self, epoch: int) -> None:
        self.probes.epoch = epoch
        if not isinstance(self._probes, ProbedProgram):
            self.probes.calls.install()

    # The moments of a step, which a program does not tell.

    def step_begins(self, step: int) -> None:
        self.probes.channels.step = step
        self.probes.calls.step_begins()

    def forward_begins(self) -> None:
        self.probes.calls.watch.start_watching()

    def phase_ends(self, phase: Phase) -> None:
        if phase == "loss":
            self.probes.calls.watch.stop_watching()
        elif phase == "backward":
            self.probes.calls.backward_ends()
        elif phase == "optimizer":
            self.probes.parameters.update_ends()

    def passes_go_on(self) -> None:
        self.probes.calls.watch.start_watching(goes_on=True)

    def passes_end(self) -> None:
        self.probes.calls.watch.stop_watching()

    def gradients_ready(self, parameters: ParameterIds = None) -> None:
        self.probes.parameters.gradients_ready(parameters)

    def update_begins(self, parameters: ParameterIds = None) -> None:
        self.probes.parameters.update_begins(parameters)

    def step_ends(self, step: int) -> None:
        self.probes.count_steps(1)

    def point_logged(self, point: Point) -> None:
        self.write_values()

    def test_begins(self, epoch: int) -> None:
        self.probes.calls.watch.uninstall()
        self.probes.epoch_ends()
        if not self._has_told_silent:
            self._has_told_silent = True
            self._view.notes.extend(self.probes.calls.silent())
        self.write_values()

    def trial_ends(self, progress: Progress) -> None:
        if self._probes is not None:
            self._probes.calls.watch.uninstall()
        if self._lines is None:
            return
        try:
            rows = self.probes.end(self._lane)
            self.write_values()
            self._view.folder.probes.write(ProbesRecord(rows=rows))
        finally:
            self._lines.close()

    def write_values(self) -> None:
        assert self._lines is not None
        for record in self.probes.records_of(self._lane):
            self._lines.write(record.line())
            for listener in self._listeners:
                listener(record)
