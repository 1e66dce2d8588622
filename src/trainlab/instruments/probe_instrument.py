"""Probes: watch activations, gradients and weights of any layer in constant memory.

Tensors are reduced on their device as they come, in training steps only; values move to the host
when a point is logged or an epoch ends, never inside a step. Gradients are read at the nodes of the
autograd graph that the layers made: nothing is added to the graph, so the losses stay as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainlab.instruments.probe_channels import Channels, on_host
from trainlab.instruments.probe_hooks import MAX_PENDING, Periods, ProbedCalls, ProbedParameters
from trainlab.instruments.probe_lanes import ProbedProgram, lanes_can_be_seen
from trainlab.record.files import LineWriter
from trainlab.record.learning_record import FiredRecord, ProbeRecord, ProbesRecord
from trainlab.record.schema import Note
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import (
    Instrument,
    ParameterIds,
    Phase,
    Point,
    ProgramInstrument,
    ProgramView,
    Progress,
    TrialView,
)

Listener = Callable[[ProbeRecord], None]


class Probes(ProgramInstrument):
    """All probes of a trial. What each saw is in probes.json, its values in probes.jsonl."""

    goes_on = True

    def __init__(self, specs: Sequence[ProbeSpec], listeners: Sequence[Listener] = ()) -> None:
        """`listeners` get every record as it is written; TensorBoard's writer is one."""
        self._specs, self._listeners = tuple(dict.fromkeys(specs)), tuple(listeners)
        self._lines: LineWriter | None = None
        self._program: ProbedProgram | None = None
        """Where the steps are one: it probes them for the whole group, and this trial is a lane of it."""
        self._lane = 0
        self._calls: ProbedCalls | None = None
        self._silent: list[Note] = []

    @property
    def watches_programs(self) -> bool:
        return lanes_can_be_seen()

    def in_program(self, group: Sequence[Instrument], view: ProgramView) -> ProbedProgram:
        probes = [one for one in group if isinstance(one, Probes) and one._specs == self._specs]
        assert len(probes) == view.num_lanes == len(group), "the trials of a group are probed alike"

        def opened(program: ProbedProgram) -> None:
            for lane, one in enumerate(probes):
                one._program, one._lane = program, lane

        return ProbedProgram(self._specs, view, opened)

    def trial_begins(self, view: TrialView) -> None:
        self._view = view
        if self._program is None:
            self._watch_model(view)
        self._lines = LineWriter(view.folder.probes_file, append=view.steps_before > 0)

    def saved_state(self) -> Mapping[str, Any] | None:
        """Between periods alone: what is being reduced in one is not saved. In a program never."""
        if self._program is not None or self._periods.open() or self._periods.closed:
            return None
        silent = [one.model_dump(mode="json") for one in self._silent]
        return {"channels": [one.saved() for one in self._channels.all()], "silent": silent}

    def restore_state(self, saved: Mapping[str, Any]) -> None:
        specs = {str(spec): spec for spec in self._specs}
        for told in saved["channels"]:
            layer, call, types, kind, place = told["at"]
            spec = specs[told["probe"]]
            channel = self._channels.at(spec, layer, call, tuple(types), kind, place)
            channel.restore(told)
            if self._calls is not None and kind != "parameter":
                self._calls.restore(layer, call, place)
        self._silent = [Note.model_validate(one) for one in saved["silent"]]
        self._view.notes.extend(self._silent)
        self._periods.go_on()

    def epoch_begins(self, epoch: int) -> None:
        if self._program is not None:
            self._program.periods.epoch = epoch
            return
        self._periods.epoch = epoch
        if self._calls is not None:
            self._calls.watch.install()

    def step_begins(self, step: int) -> None:
        if self._program is None:
            self._periods.step = self._channels.step = step
            self._parameters.step_begins()
            if self._calls is not None:
                self._calls.step_begins()

    def forward_begins(self) -> None:
        if self._calls is not None:
            self._calls.watch.start_watching()

    def phase_ends(self, phase: Phase) -> None:
        if self._calls is not None:
            self._calls.phase_ends(phase)
        if phase == "optimizer":
            self._parameters.update_ends()

    def passes_go_on(self) -> None:
        if self._calls is not None:
            self._calls.watch.go_on_watching()

    def passes_end(self) -> None:
        if self._calls is not None:
            self._calls.watch.stop_watching()

    def gradients_ready(self, parameters: ParameterIds = None) -> None:
        self._parameters.gradients_ready(parameters)

    def update_begins(self, parameters: ParameterIds = None) -> None:
        self._parameters.update_begins(parameters)

    def step_ends(self, step: int) -> None:
        if self._program is not None:
            return
        self._parameters.step_ends()
        self._periods.steps_done(step, 1)
        if len(self._periods.closed) >= MAX_PENDING:
            self._write_closed()

    def point_logged(self, point: Point) -> None:
        self._write_closed()

    def test_begins(self, epoch: int) -> None:
        if self._program is not None:
            self._program.epoch_ends()
            calls = self._program.calls
        else:
            calls = self._calls
            if calls is not None:
                calls.watch.uninstall()
            self._periods.epoch_ends()
        if epoch == 1 and calls is not None:
            self._silent = calls.silent()
            self._view.notes.extend(self._silent)
        self._write_closed()

    def trial_ends(self, progress: Progress) -> None:
        if self._calls is not None:
            self._calls.watch.uninstall()
        if self._lines is None:
            return
        try:
            rows = self._end()
            self._write_closed()
            self._view.folder.probes.write(ProbesRecord(rows=rows))
        finally:
            self._lines.close()

    def _watch_model(self, view: TrialView) -> None:
        is_mixed = view.trial.settings.precision == "bf16"
        self._channels = Channels(self._specs, view.device, is_mixed=is_mixed)
        of_parameters = [spec for spec in self._specs if spec.is_of_parameters]
        self._parameters = ProbedParameters(view.model, of_parameters, self._channels)
        of_calls = [spec for spec in self._specs if not spec.is_of_parameters]
        self._calls = ProbedCalls(view.model, of_calls, self._channels) if of_calls else None
        self._periods = Periods(self._specs, self._channels, self._parameters, self._calls)

    def _end(self) -> list[FiredRecord]:
        """Closes what is open; what each probe saw."""
        if self._program is not None:
            return self._program.end(self._lane)
        self._periods.close_open()
        return [channel.proof() for channel in self._channels.all()]

    def _write_closed(self) -> None:
        if self._program is not None:
            records = self._program.records_of(self._lane)
        else:
            closed = self._periods.take_closed()
            numbers = on_host(closed)
            records = [one.record(rows[0]) for one, rows in zip(closed, numbers, strict=True)]
        for record in records:
            self._write(record)

    def _write(self, record: ProbeRecord) -> None:
        assert self._lines is not None
        self._lines.write(record.line())
        for listener in self._listeners:
            listener(record)
