"""FollowedModel: shows instruments the moments of a script's training as the loop of a workload does."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

from trainlab.data.nesting import first_of
from trainlab.errors import SpecError
from trainlab.instruments.model_records import MOST_SAMPLES, Network
from trainlab.instruments.probe_instrument import Probes
from trainlab.plan import Trial
from trainlab.record.learning_record import ProbeRecord
from trainlab.record.run_folder import TrialFolder
from trainlab.record.schema import Note
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.study import short_name
from trainlab.train.callbacks import Arguments, Point, Progress, TrialView
from trainlab.train.opaque import is_opaque
from trainlab.train.seeds import seeded
from trainlab.watching.step_log import SeenLoader, StepLog
from trainlab.watching.tracer import Tracer

if TYPE_CHECKING:
    from trainlab.instruments.tensorboard import TensorBoard


class ScriptProbes(Probes):
    """The same probes as of a workload; calls are seen from the moment that the model itself was called."""

    def epoch_begins(self, epoch: int) -> None:
        self.probes.epoch = epoch

    def called(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """The model, or what holds it, has just been called for training. SpecError where nobody can see
        what it calls."""
        spec = next((spec for spec in self.specs if not spec.is_of_parameters), None)
        if spec is not None and is_opaque(module):
            rule = "the model is compiled or scripted, and what is inside it cannot be seen"
            raise SpecError([f"probe {spec}: {rule}; probe parameters, or leave the compiling out"])
        # For the call alone: between two of them nothing of ours is left in torch.
        self.probes.calls.install()
        self.forward_begins()
        self.probes.calls.watch.enter(module, arguments)

    def returned(self, result: Any = None) -> None:
        """That call has ended, or was given up."""
        self.probes.calls.watch.leave(result)
        self.probes.calls.watch.uninstall()


MOST_BYTES = 2**30
"""Of a model that is copied, to run the copy once for a picture of the network."""


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
        shows_network: bool = True,
        before_call: Callable[[], None] = lambda: None,
        refusal: Callable[[SpecError], BaseException] = lambda error: error,
    ) -> None:
        """`before_call` is called before any model is; `refusal`: what is raised in the script for probes
        that cannot be."""
        self._tracer, self._trial, self._folder = tracer, trial, folder
        self._model = None if model is None else plain_model(model)
        self._has_board, self._has_network = tensorboard, shows_network
        self._before_call, self._refusal = before_call, refusal
        self.notes: list[Note] = []
        self._board: TensorBoard | None = None
        self._probes: ScriptProbes | None = None
        if specs:
            self._probes = ScriptProbes(specs, [self._probe_logged])
        self._view: TrialView | None = None
        self._inputs: Arguments | None = None
        self._holders: dict[int, bool] = {}
        """Models that were called, and whether each holds the one that is followed."""
        self._has_trained = self._is_called = False
        self._epoch, self._is_in_epoch = 1, False
        self._is_in_step, self._num_steps, self._num_in_epoch = False, 0, 0

    def forward_begins(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Passes without gradients, or in eval mode of a model that trains in train mode, do not train."""
        self._before_call()
        if self._probes is None and self._num_steps:
            return  # it has had its one look
        is_training = torch.is_grad_enabled() and (module.training or not self._has_trained)
        self._has_trained |= is_training and module.training
        if not is_training:
            is_told = any(loader.is_trained_on for loader in self._tracer.log.loaders)
            if not is_told and self._model is not None and self._holds(module):
                self._epoch_ends()  # no loader tells where a pass over the data ends
            return
        if self._model is None:
            self._model = plain_model(module)
        if not self._holds(module):
            return
        if self._inputs is None and not self._num_steps and self._has_network:
            self._keep_inputs(module)
        if self._probes is not None:
            self._try(self._probe_call, module, arguments)

    def forward_ends(self, result: Any = None) -> None:
        if self._probes is not None and self._is_called:
            self._is_called = False
            self._probes.returned(result)

    def backward_ends(self) -> None:
        if self._probes is not None and self._view is not None:
            self._try(self._probes.phase_ends, "backward")
            if not self._tracer.has_optimizer:
                # The script updates the weights itself, and nobody tells when.
                self._try(self._update_by_hand)

    def update_begins(self, optimizer: Optimizer) -> None:
        if self._probes is not None and self._view is not None:
            which = frozenset(
                id(one) for group in optimizer.param_groups for one in group["params"]
            )
            self._begin_step()
            self._try(self._probes.gradients_ready, which)
            self._try(self._probes.update_begins, which)

    def update_ends(self) -> None:
        if self._probes is not None and self._view is not None:
            self._try(self._probes.phase_ends, "optimizer")

    def pass_begins(self, loader: SeenLoader) -> None:
        if loader.is_trained_on:
            self._epoch_ends()

    def step_ended(self, step: int) -> None:
        """An update has been made."""
        self._num_steps = step
        if step == 1 and self._model is not None and self._has_network:
            self._show_network()
        if self._probes is None:
            self._model = None
        elif self._view is not None:
            self._try(self._probe_step, step)

    def point_written(self, point: Point) -> None:
        """A line of the curve."""
        if self._board is not None:
            (self._board.epoch_ends if point.kind == "epoch" else self._board.point_logged)(point)

    def flush(self) -> None:
        """Lines have been written: it is time for what waits on the device as well."""
        if self._probes is not None and self._view is not None:
            self._probes.write_values()
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        """The script has ended; lines may still be written."""
        self.forward_ends()
        self._epoch_ends()

    def finish(self, progress: Progress) -> None:
        """The last line has been written."""
        probes, board = self._probes, self._board
        if probes is not None and self._view is not None:
            self._probes = None
            probes.trial_ends(progress)
        if board is not None:
            self._board = None
            board.trial_ends(progress)

    def _probe_call(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        assert self._probes is not None
        if self._view is None:
            self._view = self._made_view()
            self._probes.trial_begins(self._view)
        if not self._is_in_epoch:
            self._is_in_epoch = True
            self._probes.epoch_begins(self._epoch)
        self._begin_step()
        if self._is_called:  # the model raised, and the script has gone on
            self._probes.returned()
        self._is_called = True
        self._probes.called(module, arguments)

    def _update_by_hand(self) -> None:
        assert self._probes is not None
        self._probes.gradients_ready()
        self._probes.update_begins()

    def _probe_step(self, step: int) -> None:
        assert self._probes is not None
        epoch = self._tracer.log.epochs[-1]
        if epoch != self._epoch and self._num_in_epoch:
            self._probes.test_begins(self._epoch)
        if epoch != self._epoch or not self._is_in_epoch:
            self._epoch, self._is_in_epoch, self._num_in_epoch = epoch, True, 0
            self._probes.epoch_begins(epoch)
        self._num_in_epoch += 1
        self._probes.phase_ends("optimizer")
        self._probes.step_ends(step)
        if step == 1:
            self._probes.probes.calls.check(is_first_step=True)
        self._is_in_step = False

    def _begin_step(self) -> None:
        if self._probes is not None and not self._is_in_step:
            self._is_in_step = True
            self._probes.step_begins(self._num_steps + 1)

    def _epoch_ends(self) -> None:
        if self._probes is not None and self._is_in_epoch and self._view is not None:
            self._is_in_epoch = False
            if self._num_in_epoch:
                self._try(self._probes.test_begins, self._epoch)
                self._epoch += 1
            self._num_in_epoch = 0

    def _try(self, moment: Callable[..., None], *arguments: Any) -> None:
        """A probe that cannot be is refused in the first step; later the script goes on without them."""
        try:
            moment(*arguments)
        except SpecError as error:
            probes, self._probes = self._probes, None
            if probes is not None and self._view is not None:
                probes.trial_ends(Progress())
            if self._num_steps <= 1:
                raise self._refusal(error) from None
            self.notes.append(Note(code="probes_ended", values={"reason": str(error)}))

    def _holds(self, module: nn.Module) -> bool:
        key = id(module)
        if key not in self._holders:
            self._holders[key] = any(one is self._model for one in module.modules())
        return self._holders[key]

    def _keep_inputs(self, module: nn.Module) -> None:
        """What the model is called with this time, known when it returns; of a large batch a part."""

        def keep(module: nn.Module, arguments: Any, named: Any, output: object) -> None:
            handle.remove()
            if plain_model(module) is self._model:
                with torch.no_grad():
                    self._inputs = first_of((arguments, named), MOST_SAMPLES)

        handle = module.register_forward_hook(keep, with_kwargs=True)

    def _show_network(self) -> None:
        """By a copy of the model, with random numbers of its own: the training stays as it is."""
        view, is_large = self._view or self._made_view(), self._num_bytes > MOST_BYTES
        if is_large:
            view.note("network_too_large", mib=self._num_bytes // 2**20)
        with self._tracer.unseen(), seeded(self._trial.seed, "network", device=view.device):
            if not is_large:
                Network().trial_begins(view)
            if self._has_board:
                self._board = script_board(self._tracer.log, shows_graph=not is_large)
                self._board.trial_begins(view)
        self._inputs = None

    @property
    def _num_bytes(self) -> int:
        assert self._model is not None
        tensors = [*self._model.parameters(), *self._model.buffers()]
        return sum(one.numel() * one.element_size() for one in tensors)

    def _probe_logged(self, record: ProbeRecord) -> None:
        if self._board is not None:
            self._board.probe_logged(record)

    def _made_view(self) -> TrialView:
        assert self._model is not None
        parameter = next(self._model.parameters(), None)
        tracer = self._tracer
        return TrialView(
            trial=self._trial,
            device=torch.device("cpu") if parameter is None else parameter.device,
            model=self._model,
            folder=self._folder,
            num_steps=0,
            num_epochs=0,
            samples_by=lambda step: tracer.log.samples[step - 1] or step,
            stored_inputs=lambda num: None,
            model_inputs=self._first_inputs,
            notes=self.notes,
        )

    def _first_inputs(self, num: int) -> Arguments:
        if self._inputs is None:
            raise TypeError("the model is called by another one, and its inputs were not seen")
        inputs: Arguments = first_of(self._inputs, num)
        return inputs


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
            # Its graph is drawn: the script may let go of it.
            self._view = replace(view, model=nn.Module())

        def _write_graph(self) -> None:
            if shows_graph:
                super()._write_graph()

        def _write_scalars(self, values: dict[str, float], point: Point) -> None:
            with_place = point if point.samples else replace(point, samples=point.step)
            super()._write_scalars(values, with_place)

        def _hyper_parameters(self) -> dict[str, Any]:
            trial = self._view.trial
            varied = {short_name(name): level for name, level in trial.levels.items()}
            first = seen.optimizers[0] if seen.optimizers else None
            found = {
                "batch_size": seen.batch_size,
                "optimizer": None if first is None else first.name,
                "lr": None if first is None else first.lr,
                "device": str(self._view.device),
                "seed": trial.seed,
                "script": trial.workload,
            }
            return found | varied

    return ScriptBoard(shows_samples=False)
