"""Probes: watch activations, gradients and weights of any layer in constant memory.

Tensors are reduced on their device as they come, in training steps only; values move to the host
when a point is logged or an epoch ends, never inside a step. Gradients are read at the nodes of the
autograd graph that the layers made: nothing is added to the graph, so the losses stay as they are.
"""

from collections.abc import Callable, Sequence

from trainlab.instruments.probes.channels import Channels, ClosedPeriod, on_host
from trainlab.instruments.probes.layers import ProbedCalls
from trainlab.instruments.probes.parameters import ProbedParameters
from trainlab.record.files import LineWriter
from trainlab.record.probe import ProbeRecord, ProbesRecord
from trainlab.spec.probe import ProbeSpec
from trainlab.train.moments import Instrument, Phase, Point, Progress, TrialView

GRACE_STEPS = 20
"""A function may be called in some steps only; after so many without it a selector is a mistake."""
MAX_PENDING = 4096
"""Results on the device that wait for the host."""

Listener = Callable[[ProbeRecord], None]


class Probes(Instrument):
    """All probes of a trial. What each saw is in probes.json, its values in probes.jsonl."""

    def __init__(self, specs: Sequence[ProbeSpec], listeners: Sequence[Listener] = ()) -> None:
        """`listeners` get every record as it is written; TensorBoard's writer is one."""
        self._specs, self._listeners = tuple(dict.fromkeys(specs)), tuple(listeners)
        self._lines: LineWriter | None = None

    def trial_begins(self, view: TrialView) -> None:
        self._view = view
        self._channels = Channels(self._specs, view)
        self._pending: list[ClosedPeriod] = []
        self._epoch = self._step = 0
        self._steps_since: dict[ProbeSpec, int] = dict.fromkeys(self._specs, 0)
        self._checked = False
        of_parameters = [spec for spec in self._specs if spec.is_of_parameters]
        self._parameters = ProbedParameters(view.model, of_parameters, self._channels)
        of_calls = [spec for spec in self._specs if not spec.is_of_parameters]
        self._calls = ProbedCalls(view.model, of_calls, self._channels) if of_calls else None
        self._lines = LineWriter(view.folder.probes_file)

    def epoch_begins(self, epoch: int) -> None:
        self._epoch = epoch
        if self._calls is not None:
            self._calls.watch.install()

    def step_begins(self, step: int) -> None:
        self._step = self._channels.step = step

    def forward_begins(self) -> None:
        if self._calls is not None:
            self._calls.watch.start_watching()

    def phase_ends(self, phase: Phase) -> None:
        if self._calls is not None:
            self._calls.phase_ends(phase)
        if phase in ("backward", "optimizer"):
            self._parameters.phase_ends(phase)

    def step_ends(self, step: int) -> None:
        for spec in self._specs:
            self._steps_since[spec] += 1
            every = 1 if spec.every == "step" else spec.every
            if every == self._steps_since[spec]:
                self._close(spec)
        if not self._checked and self._calls is not None:
            self._checked = self._calls.check(step >= GRACE_STEPS)
        if len(self._pending) >= MAX_PENDING:
            self._drain()

    def point_logged(self, point: Point) -> None:
        self._drain()

    def test_begins(self, epoch: int) -> None:
        if self._calls is not None:
            self._calls.watch.uninstall()
            if epoch == 1:
                self._calls.check(last_chance=True)
                self._view.notes.extend(self._calls.silent())
        self._parameters.check()
        for spec in self._specs:
            if spec.every == "epoch":
                self._close(spec)
        self._drain()

    def trial_ends(self, progress: Progress) -> None:
        if self._calls is not None:
            self._calls.watch.uninstall()
        if self._lines is None:
            return
        try:
            # A period that the trial ended in, diverged or interrupted, is recorded with its steps.
            for spec in self._specs:
                if self._steps_since[spec]:
                    self._close(spec)
            self._drain()
            rows = [channel.proof() for channel in self._channels.all()]
            record = ProbesRecord(rows=rows)
            self._view.folder.probes.write(record)
        finally:
            self._lines.close()

    def _close(self, spec: ProbeSpec) -> None:
        if spec.quantity == "weight":
            self._parameters.read_weights(spec)
        num_steps, self._steps_since[spec] = self._steps_since[spec], 0
        for channel in self._channels.of(spec):
            closed = channel.close(self._epoch, self._step, num_steps)
            if closed is not None:
                self._pending.append(closed)

    def _drain(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            on_host(pending, self._write)

    def _write(self, record: ProbeRecord) -> None:
        assert self._lines is not None
        self._lines.write(record.line())
        for listener in self._listeners:
            listener(record)
