"""The probes of a group of trials whose steps are a program."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from torch import Tensor
from torch._C import _functorch

from trainlab.instruments.probe_channels import Channel, Channels, ClosedPeriod, Place, on_host
from trainlab.instruments.probe_hooks import MAX_PENDING, Periods, ProbedCalls, ProbedParameters
from trainlab.instruments.reducers import DeadUnits
from trainlab.record.learning_record import FiredRecord, ProbeRecord
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import ProgramView
from trainlab.train.engines.engine import Unsuited

Fired = tuple[Channel, tuple[int, ...]]
"""A channel, and the shape of what it took in of one trial."""


def lanes_can_be_seen() -> bool:
    """Whether this torch shows what a tensor in a vectorised function is in memory."""
    needed = "get_unwrapped", "maybe_get_bdim", "is_batchedtensor", "is_functorch_wrapped_tensor"
    return all(hasattr(_functorch, name) for name in needed)


class ProbedProgram:
    """Watches the steps for all trials; the trials' own instruments fetch their records here."""

    def __init__(
        self,
        specs: Sequence[ProbeSpec],
        view: ProgramView,
        opened: Callable[["ProbedProgram"], None],
    ) -> None:
        """`opened` is called once the program stands ready."""
        if view.device.type == "mps":
            raise Unsuited("not_probed_alike")  # it has no float64
        self._specs, self._view, self._opened = specs, view, opened
        self._is_mixed = view.precision == "bf16"
        self._channels = Channels(specs, view.device, is_mixed=self._is_mixed, program=view)
        of_parameters = [spec for spec in specs if spec.is_of_parameters]
        self._parameters = ProbedParameters(
            view.model, of_parameters, self._channels, view.parameters
        )
        constants = frozenset(id(tensor) for tensor in view.constants)
        self.calls = self._watched_calls(self._channels, constants)
        self.periods = Periods(specs, self._channels, self._parameters, self.calls)
        self._fired: dict[int, list[Fired]] = {}
        """In the last step of so many samples that ran from Python."""
        self._ran: list[list[Fired]] = []
        """In the steps that ran from Python and that the host has not counted."""
        self._references: dict[int, dict[Place, list[tuple[int, ...]]]] = {}
        """What eager sees in a step of so many samples: what each place took in."""
        self._has_uncounted = False
        """Whether steps are being made."""
        self._running = list(range(view.num_lanes))
        self._closed: list[tuple[ClosedPeriod, list[int]]] = []
        """On the device, each with the lanes that were in it."""
        self._records: list[list[ProbeRecord]] = [[] for _ in self._running]
        self._rows: dict[int, list[FiredRecord]] = {}

    @property
    def tensors(self) -> list[Tensor]:
        return [tensor for one in self._channels.all() for tensor in one.reduction.tensors]

    @contextmanager
    def forward(self, num_samples: int) -> Iterator[None]:
        if self.calls is not None:
            self.calls.step_begins()
        self._channels.in_step = self._fired[num_samples] = []
        self._ran.append(self._channels.in_step)
        with _watching(self.calls):
            yield

    def backward_ends(self) -> None:
        if self.calls is not None:
            self.calls.phase_ends("backward")

    def gradients_ready(self, gradients: Mapping[str, Tensor]) -> None:
        self._parameters.update_begins()
        self._parameters.gradients_ready(gradients=gradients)

    def update_ends(self) -> None:
        self._parameters.update_ends()
        self._channels.in_step = None

    @contextmanager
    def reference(self, num_samples: int) -> Iterator[AbstractContextManager[None]]:
        channels = Channels(self._specs, self._view.device, is_mixed=self._is_mixed)
        calls = self._watched_calls(channels, None)
        yield _watching(calls)
        if calls is not None:
            calls.phase_ends("backward")
        fired = {(one.spec, one.layer, one.call): one for one in channels.all() if one.num_fired}
        for place, channel in fired.items():
            if isinstance(channel.reduction, DeadUnits):
                assert channel.reduction.dimension is not None
                self._channels.units[place] = channel.reduction.dimension
        self._references[num_samples] = {
            place: list(channel.firings.shapes) for place, channel in fired.items()
        }

    def opened(self) -> None:
        known = set(self._channels.all())
        for num_samples, wanted in self._references.items():
            shapes: dict[Place, list[tuple[int, ...]]] = {}
            for one, shape in self._fired[num_samples]:
                if one in known and one.kind != "parameter":
                    shapes.setdefault((one.spec, one.layer, one.call), []).append(shape)
            if shapes != wanted:
                raise Unsuited("not_probed_alike")
        self._channels.in_step = None
        self._ran.clear()
        for channel in known:
            channel.reduction.reset()
        self._opened(self)

    def go_on(self, is_running: Sequence[bool]) -> None:
        ended = [lane for lane in self._running if not is_running[lane]]
        if ended:
            self._end(ended)

    def next_steps(self, most: int) -> int:
        self._has_uncounted = True
        return min(most, self.periods.steps_ahead or most)

    def steps_done(self, num_samples: int, num_steps: int) -> None:
        ran, self._ran = self._ran, []
        if len(ran) == num_steps:  # each of them from Python
            for fired in ran:
                self._count(fired, 1)
        else:
            self._count(self._fired[num_samples], num_steps)
        self._has_uncounted = False
        self.periods.steps_done(self._channels.step, num_steps)
        self._collect()
        if len(self._closed) >= MAX_PENDING:
            self._read()

    def epoch_ends(self) -> None:
        """Called for every trial; what closes, closes at the first call."""
        self.periods.epoch_ends()
        self._collect()

    def records_of(self, lane: int) -> list[ProbeRecord]:
        """Those of a trial that have not been fetched."""
        self._read()
        records, self._records[lane] = self._records[lane], []
        return records

    def end(self, lane: int) -> list[FiredRecord]:
        """The group is at its end, however it came: what the probes of a trial saw."""
        if lane in self._running:
            self._end(self._running)
        return self._rows[lane]

    def _end(self, lanes: list[int]) -> None:
        """Closes the open periods of these trials alone; the others stay in them."""
        channels = self._channels.all()
        kept = [replace(one.firings, shapes=dict(one.firings.shapes)) for one in channels]
        # Steps that the host could not count, because it was interrupted, are in the numbers.
        for spec, num_steps in [] if self._has_uncounted else self.periods.open():
            if spec.quantity == "weight":
                self._parameters.read_weights(spec)
            for channel in self._channels.of(spec):
                period = channel.so_far(self.periods.epoch, self.periods.step, num_steps)
                if period is not None:
                    self._closed.append((period, lanes))
                    if spec.quantity == "weight":
                        channel.reduction.reset()
        rows = [channel.proof() for channel in channels]
        self._rows |= dict.fromkeys(lanes, rows)
        for channel, firings in zip(channels, kept, strict=True):
            channel.firings = firings
        self._running = [lane for lane in self._running if lane not in lanes]

    def _count(self, fired: Sequence[Fired], num_steps: int) -> None:
        """So many further steps were made in which this fired."""
        self._channels.step += num_steps
        known, step = set(self._channels.all()), self._channels.step
        for channel, shape in fired:
            if channel in known:
                channel.fired(shape, step - num_steps + 1, step)

    def _collect(self) -> None:
        self._closed += [(period, self._running) for period in self.periods.take_closed()]

    def _read(self) -> None:
        """Moves over what has closed, of all trials at once."""
        closed, self._closed = self._closed, []
        numbers = on_host([period for period, _ in closed])
        for (period, lanes), rows in zip(closed, numbers, strict=True):
            for lane in lanes:
                self._records[lane].append(period.record(rows[lane]))

    def _watched_calls(
        self, channels: Channels, constants: frozenset[int] | None
    ) -> ProbedCalls | None:
        specs = [spec for spec in self._specs if not spec.is_of_parameters]
        return ProbedCalls(self._view.model, specs, channels, constants) if specs else None


@contextmanager
def _watching(calls: ProbedCalls | None) -> Iterator[None]:
    """Around model and loss: nothing of ours stays behind in torch, whatever they raise."""
    if calls is None:
        yield
        return
    calls.watch.install()
    calls.watch.start_watching()
    try:
        yield
    finally:
        calls.watch.uninstall()
