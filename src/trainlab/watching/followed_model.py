"""FollowedModel: shows instruments the moments of a script's training as the loop of a workload does."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

from trainlab.data.nesting import first_of, sized
from trainlab.errors import SpecError, reason_in
from trainlab.instruments.model_records import MOST_SAMPLES, Network
from trainlab.instruments.probe_instrument import Probes
from trainlab.plan import Trial
from trainlab.record.learning_record import ProbeRecord
from trainlab.record.run_folder import TrialFolder
from trainlab.record.schema import Note
from trainlab.record.trial_record import Progress
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.study import short_name
from trainlab.train.callbacks import Arguments, ParameterIds, Point, TrialView
from trainlab.train.opaque import is_opaque, uncompiled_copy
from trainlab.train.seeds import seeded
from trainlab.watching.step_log import SeenLoader, StepLog
from trainlab.watching.tracer import Refused, Tracer

if TYPE_CHECKING:
    from trainlab.instruments.tensorboard import TensorBoard

MOST_BYTES = 2**30
"""Of a model that is copied, to run the copy once for a picture of the network."""


class ScriptProbes(Probes):
    """The same probes as of a workload; calls are seen from the moment that the model itself was called."""

    epoch = 1
    """The one that is under way."""
    _num_in_epoch = 0
    """Its updates so far."""
    _steps_begun = 0
    _is_called = False

    def trial_begins(self, view: TrialView) -> None:
        super().trial_begins(view)
        self.probes.channels.errors = []

    def called(self, step: int, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """The model, or what holds it, has just been called for training, before that update. SpecError
        where nobody can see what it calls."""
        self._begin(step)
        self.returned()  # where it raised, and the script went on
        spec = next((spec for spec in self.specs if not spec.is_of_parameters), None)
        if spec is not None and is_opaque(module):
            rule = "the model is compiled or scripted, and what is inside it cannot be seen"
            raise SpecError([f"probe {spec}: {rule}; probe parameters, or leave the compiling out"])
        # For the call alone: between two of them nothing of ours is left in torch.
        self.probes.calls.install()
        self.forward_begins()
        self.probes.calls.watch.enter(module, arguments)
        self._is_called = True

    def returned(self, result: Any = None) -> None:
        """That call has ended, or was given up."""
        if self._is_called:
            self._is_called = False
            self.probes.calls.watch.leave(result)
            self.probes.calls.watch.uninstall()

    def backward_ends(self, *, updates_by_hand: bool) -> None:
        """`updates_by_hand`: the script updates the weights itself, and nobody tells when."""
        self.phase_ends("backward")
        if updates_by_hand:
            self.gradients_ready()
            self.update_begins()

    def optimizer_begins(self, step: int, parameters: ParameterIds) -> None:
        """An optimizer is about to update these."""
        self._begin(step)
        self.gradients_ready(parameters)
        self.update_begins(parameters)

    def _begin(self, step: int) -> None:
        if step != self._steps_begun:
            self._steps_begun, self.probes.epoch = step, self.epoch
            self.step_begins(step)

    def step_ended(self, step: int, epoch: int) -> None:
        """An update has been made, in this epoch: a pass that has begun may be none over the same data."""
        if epoch != self.epoch:
            if self._num_in_epoch:
                self.test_begins(self.epoch)
            self.epoch = self.probes.epoch = epoch
            self._num_in_epoch = 0
        self._num_in_epoch += 1
        self.phase_ends("optimizer")
        self.step_ends(step)
        if step == 1:
            self.probes.calls.check(is_first_step=True)

    def pass_ends(self) -> None:
        """A pass over the data, if any of it was trained on."""
        if self._num_in_epoch:
            self.test_begins(self.epoch)
            self.epoch += 1
            self._num_in_epoch = 0


class FollowedModel:
    """The first model that a script trains, or one that was named. Probes watch it step by step; a copy
    of it is run once, after the first update, for its network and TensorBoard's graph. Without probes it is
    not held on to after that."""

    def __init__(
        self,
        tracer: Tracer,
        trial: Trial,
        folder: TrialFolder,
        specs: Sequence[ProbeSpec] = (),
        *,
        model: nn.Module | None = None,
        tensorboard: bool = False,
        before_call: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_call` is called before any model is."""
        self._tracer, self._trial, self._folder, self._specs = tracer, trial, folder, tuple(specs)
        self._model = None if model is None else plain_model(model)
        self._has_board = tensorboard
        self._before_call = before_call
        self.notes: list[Note] = []
        self._board: TensorBoard | None = None
        self._probes: ScriptProbes | None = None
        """From the first call of the model on."""
        self._inputs: Arguments | None = None
        """What it was called with the first time, of a large batch a part."""
        self._why_unseen: Exception = TypeError(
            "the model is called by another one, and its inputs were not seen"
        )
        self._keeps_inputs = False
        """Whether the call that is under way shows them."""
        self._holders: dict[int, bool] = {}
        """Models that were called, and whether each holds the one that is followed."""
        self._has_trained, self._num_steps = False, 0

    def forward_begins(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Passes without gradients, or in eval mode of a model that trains in train mode, do not train."""
        self._before_call()
        if not self._specs and self._num_steps:
            return  # it has had its one look
        is_training = torch.is_grad_enabled() and (module.training or not self._has_trained)
        self._has_trained |= is_training and module.training
        if self._model is None and is_training:
            self._model = plain_model(module)
        if self._model is None or not self._holds(module):
            return
        if not is_training:
            if self._tracer.log.trained_loader is None:
                # Nothing else tells where a pass over the data ends.
                self._tell(lambda probes: probes.pass_ends())
            return
        self._keeps_inputs = self._inputs is None and not self._num_steps
        if self._specs and self._probes is None:
            self._probes = ScriptProbes(self._specs, [self._probe_logged])
            self._tell(lambda probes: probes.trial_begins(self._view()))
        self._tell(lambda probes: probes.called(self._num_steps + 1, module, arguments))

    def forward_ends(self, module: nn.Module, inputs: Arguments, result: object) -> None:
        self._tell(lambda probes: probes.returned(result))
        if self._keeps_inputs and plain_model(module) is self._model:
            self._keeps_inputs = False
            try:
                with torch.no_grad():
                    self._inputs = first_of(inputs, MOST_SAMPLES)
            except Exception as error:  # noqa: BLE001  the script's own objects may raise anything
                self._why_unseen = error.with_traceback(None)

    def backward_ends(self) -> None:
        by_hand = not self._tracer.has_optimizer
        self._tell(lambda probes: probes.backward_ends(updates_by_hand=by_hand))

    def update_begins(self, optimizer: Optimizer) -> None:
        if self._probes is not None:
            groups = optimizer.param_groups
            which = frozenset(id(one) for group in groups for one in group["params"])
            self._tell(lambda probes: probes.optimizer_begins(self._num_steps + 1, which))

    def update_ends(self) -> None:
        self._tell(lambda probes: probes.phase_ends("optimizer"))

    def pass_begins(self, loader: SeenLoader) -> None:
        if loader.is_trained_on:
            self._tell(lambda probes: probes.pass_ends())

    def step_ended(self, step: int) -> None:
        """An update has been made."""
        self._num_steps = step
        if step == 1 and self._model is not None:
            self._show_network(self._model)
        if not self._specs:
            self._model = None
        self._tell(lambda probes: probes.step_ended(step, self._tracer.log.epochs[-1]))

    def point_written(self, point: Point) -> None:
        """A line of the curve."""
        if self._board is not None:
            (self._board.epoch_ends if point.kind == "epoch" else self._board.point_logged)(point)

    def flush(self) -> None:
        """Lines have been written: it is time for what waits on the device as well."""
        self._tell(lambda probes: probes.write_values())
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        """The script has ended; lines may still be written."""
        self._tell(lambda probes: probes.returned())
        self._tell(lambda probes: probes.pass_ends())

    def finish(self, progress: Progress) -> None:
        """The last line has been written."""
        if self._probes is not None:
            self._probes.trial_ends(progress)
        if self._board is not None:
            self._board.trial_ends(progress)

    def _tell(self, moment: Callable[[ScriptProbes], None]) -> None:
        """A probe that cannot be is refused in the first step; later, or where torch cannot compute it, the
        script goes on without them."""
        if (probes := self._probes) is None:
            return
        error: Exception | None = None
        try:
            moment(probes)
            error = next(iter(probes.probes.channels.errors or ()), None)
        except (SpecError, RuntimeError, TypeError, ValueError) as raised:
            error = raised
        if error is None:
            return
        self._probes, self._specs = None, ()
        probes.trial_ends(Progress())
        if isinstance(error, SpecError) and self._num_steps <= 1:
            raise Refused(error) from None
        self.notes.append(Note(code="probes_ended", values={"reason": reason_in(error)}))

    def _holds(self, module: nn.Module) -> bool:
        key = id(module)
        if key not in self._holders:
            self._holders[key] = any(one is self._model for one in module.modules())
        return self._holders[key]

    def _show_network(self, model: nn.Module) -> None:
        """By a copy of the model, with random numbers of its own: the training stays as it is."""
        tensors, view = sized([*model.parameters(), *model.buffers()]), self._view()
        num_bytes = sum(one.numel() * one.element_size() for one in tensors)
        if is_large := num_bytes > MOST_BYTES:
            view.note("network_too_large", mib=num_bytes // 2**20)
        with seeded(self._trial.seed, "network", device=view.device):
            if not is_large:
                with self._tracer.unseen():
                    Network().record(view)
            if self._has_board:
                with self._tracer.unseen():
                    self._board = script_board(self._tracer.log, shows_graph=not is_large)
                    self._board.trial_begins(view)
        self._inputs = None

    def _probe_logged(self, record: ProbeRecord) -> None:
        if self._board is not None:
            self._board.probe_logged(record)

    def _view(self) -> TrialView:
        assert self._model is not None
        parameter, log = next(self._model.parameters(), None), self._tracer.log

        def first_call(num: int) -> tuple[nn.Module, Arguments]:
            if self._inputs is None:
                raise self._why_unseen
            assert self._model is not None
            return copy.deepcopy(uncompiled_copy(self._model)), first_of(self._inputs, num)

        return TrialView(
            trial=self._trial,
            device=torch.device("cpu") if parameter is None else parameter.device,
            model=self._model,
            folder=self._folder,
            num_steps=0,
            num_epochs=0,
            samples_by=lambda step: log.samples[step - 1] or step,
            stored_inputs=lambda num: None,
            model_call=first_call,
            notes=self.notes,
        )


def plain_model(module: nn.Module) -> nn.Module:
    """The model as it was written, out of what compiles or spreads it."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if isinstance(module, DistributedDataParallel | DataParallel):
            inner = module.module
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def script_board(seen: StepLog, *, shows_graph: bool) -> "TensorBoard":
    """TensorBoard for a script: what is known of its settings was seen, not asked for.
    Imported late: it takes a second."""
    from trainlab.instruments.tensorboard import TensorBoard

    class ScriptBoard(TensorBoard):
        """Curves over samples seen, or over updates where no loader tells how many those are."""

        def trial_begins(self, view: TrialView) -> None:
            super().trial_begins(view)
            if shows_graph:
                super()._write_graph()
            # The script may let go of it.
            self._view = replace(view, model=nn.Module())

        def _write_graph(self) -> None:
            """It is drawn."""

        def _write_scalars(self, values: dict[str, float], point: Point) -> None:
            with_place = point if point.samples else replace(point, samples=point.step)
            super()._write_scalars(values, with_place)

        def _hyper_parameters(self) -> dict[str, Any]:
            trial, found = self._view.trial, dict[str, Any]()
            if seen.optimizers:
                found = {"optimizer": seen.optimizers[0].name, "lr": seen.optimizers[0].highest_lr}
            found |= {"batch_size": seen.batch_size, "device": str(self._view.device)}
            found |= {"seed": trial.seed, "script": trial.workload}
            return found | {short_name(name): level for name, level in trial.levels.items()}

    return ScriptBoard(shows_samples=False)
