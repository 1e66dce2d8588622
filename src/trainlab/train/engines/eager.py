"""eager: every operation launched from Python, one after the other. The reference for all engines."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from trainlab.data.nesting import moved
from trainlab.errors import TrainlabError
from trainlab.record.learning_record import ConfusionRecord
from trainlab.train.batches import Batch, Piece
from trainlab.train.callbacks import Grain, Moments
from trainlab.train.engines.engine import Member, State, Unsuited, Update, reason_of
from trainlab.train.evaluation import Evaluation, KeptScores
from trainlab.train.metering import Means, Meter
from trainlab.train.seeds import random_state, restore_random, seeded
from trainlab.train.setup import Setup
from trainlab.train.step import (
    CallModel,
    Carried,
    Context,
    Forward,
    StepOutcome,
    check_gradient,
    outcome_of,
)
from trainlab.workloads.user_code import BACKWARD, DATA, OPTIMIZER, SCHEDULE, UPDATE

Step = Callable[[Piece], StepOutcome]
"""An update as a function of the batch's rows, or whatever else tells which samples it is of."""


class EagerEngine:
    """Takes one trial at a time and shows every moment of it."""

    name = "eager"
    shows: Grain = "call"
    takes_many = False
    is_program = False

    def open(self, group: Sequence[Member]) -> "EagerSession":
        (member,) = group
        return EagerSession(member)

    def training_step(self, setup: Setup, moments: Moments) -> Update:
        return make_training_step(setup, moments)

    def inference_step(self, setup: Setup, moments: Moments) -> Update:
        return Forward(setup, moments, in_test=True)


class EagerSession:
    """One trial, its steps made ready. `step`, `meter`: in place of those that are made here."""

    def __init__(
        self, member: Member, step: Step | None = None, meter: Meter | None = None
    ) -> None:
        setup, metrics = member.setup, member.setup.workload.sample_metrics
        self._setup, self._moments, self._progress = setup, member.moments, member.progress
        self._carried: Carried = {}
        self._step = step or make_training_step(setup, member.moments, carried=self._carried)
        self._meter = meter or Meter(
            metrics,
            setup.device,
            stops_explosions=True,
            per_step=setup.settings.accumulate,
            needs_outputs=setup.workload.evaluate is None,
        )
        self._evaluation, self._validation = Evaluation(setup), None
        if setup.val_batches is not None:
            self._validation = Evaluation(setup, setup.val_batches)
        self._own_model: nn.Module = getattr(setup.model, "_orig_mod", setup.model)
        average = setup.average
        self._tested = self._own_model if average is None else average.module
        """The model with the weights that tests are of."""
        self._schedule, self._warmups = setup.schedule, setup.warmups
        self._rate = float(setup.optimizer.param_groups[0]["lr"])
        """That of the last update."""
        self._best: dict[str, Tensor] | None = None
        """The weights of the best epoch, where they are to be kept."""
        self._best_scores: KeptScores = None
        self._batches: Iterator[Piece] = iter(())
        self._done = 0

    def learning_rates(self) -> Sequence[float]:
        return [self._rate]

    @contextmanager
    def training(self, epoch: int, resumed: State | None = None) -> Iterator[None]:
        setup = self._setup
        self.begin_epoch(epoch, 0 if resumed is None else resumed["done"])
        with seeded(setup.trial.seed_of("dropout"), "dropout", epoch, setup.device):
            if resumed is not None:
                self._carried.update(moved(resumed["carried"], setup.device))
                restore_random(setup.device, resumed["random"])
            yield

    def begin_epoch(self, epoch: int, num_done: int) -> None:
        """Stands ready for the updates of an epoch after so many of them."""
        setup = self._setup
        setup.model.train()
        self._carried.clear()
        pieces = setup.train_batches.epoch(setup.trial.seed_of("order"), epoch, num_done)
        self._done, self._batches = num_done, iter(pieces)

    def advance(self, num_steps: int) -> Sequence[Means]:
        moments, progress, meter, step = self._moments, self._progress, self._meter, self._step
        warmups, group = self._warmups, self._setup.optimizer.param_groups[0]
        schedule = self._schedule if self._setup.optimizers.changes_each == "step" else None
        meter.reset()
        for number, rows in enumerate(islice(self._batches, num_steps), progress.steps_done + 1):
            for warmup in warmups:
                warmup.begin(number)
            moments.step_begins(number)
            meter.add(step(rows))
            moments.step_ends(number)
            self._rate = float(group["lr"])
            for warmup in warmups:
                warmup.end()
            if schedule is not None:
                with SCHEDULE:
                    schedule.step()
            progress.steps_done = number
        self._done += num_steps
        return [meter.means()]

    def test(self, epoch: int) -> Sequence[Means]:
        return [self._evaluation.run(epoch)]

    def validate(self, epoch: int) -> Sequence[Means | None]:
        return [None if self._validation is None else self._validation.run(epoch)]

    def keep(self) -> None:
        self._best = {name: one.detach().clone() for name, one in self._tested.state_dict().items()}
        self._best_scores = self._evaluation.kept

    def settle(self) -> None:
        if self._best is not None:
            self._tested.load_state_dict(self._best)
            self._evaluation.kept = self._best_scores
        if self._setup.average is not None:
            self._own_model.load_state_dict(self._tested.state_dict())
        self._evaluation.look_at_loss()

    def confusion(self, number: int, epoch: int) -> ConfusionRecord | None:
        return self._evaluation.confusion(epoch)

    def change_learning_rates(self) -> None:
        if self._schedule is not None and self._setup.optimizers.changes_each == "epoch":
            with SCHEDULE:
                self._schedule.step()

    def state(self) -> State:
        setup, model = self._setup, self._setup.model
        parameters = {} if setup.settings.zero_grad else dict(model.named_parameters())
        return {
            "model": model.state_dict(),
            "buffers": dict(model.named_buffers()),  # those too that are not saved with the model
            "gradients": {name: one.grad for name, one in parameters.items()},
            "optimizers": {n: one.state_dict() for n, one in setup.optimizers.by_name.items()},
            "schedule": None if self._schedule is None else self._schedule.state_dict(),
            "scaler": None if setup.scaler is None else setup.scaler.state_dict(),
            "average": None if setup.average is None else setup.average.state_dict(),
            "best": self._best,
            "carried": dict(self._carried),
            "done": self._done,
            "limit": self._meter.limit,
            "rate": self._rate,
            "random": random_state(setup.device),
        }

    def restore(self, state: State) -> None:
        setup, model = self._setup, self._setup.model
        model.load_state_dict(state["model"])
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(state["buffers"][name])
        for name, gradient in state["gradients"].items():
            parameters[name].grad = moved(gradient, setup.device)
        for name, one in setup.optimizers.by_name.items():
            one.load_state_dict(state["optimizers"][name])
        for part, name in (
            (self._schedule, "schedule"),
            (setup.scaler, "scaler"),
            (setup.average, "average"),
        ):
            if part is not None:
                part.load_state_dict(state[name])
        self._best, self._rate, self._meter.limit = state["best"], state["rate"], state["limit"]


def make_training_step(
    setup: Setup,
    moments: Moments,
    call_model: CallModel | None = None,
    weighted: Callable[[Tensor], Tensor] | None = None,
    carried: Carried | None = None,
) -> Step:
    """The update as a function of the batch's rows; everything it needs is looked up once, here.
    `weighted`: what is differentiated in place of the loss itself."""
    batches, phase_ends = setup.forward_batches, moments.phase_ends

    def fetched(piece: Piece) -> Batch:
        with DATA:
            batch = batches.gather(piece)
            phase_ends("data")
            batch = batches.move(batch)
        phase_ends("transfer")
        return batch

    if setup.workload.update is not None:
        own_update = _own_update(setup, moments, {} if carried is None else carried)
        return lambda piece: own_update(fetched(piece))
    descent = Descent(setup, moments, Forward(setup, moments, call_model, carried), weighted)
    if setup.settings.accumulate > 1:
        return lambda pieces: descent.update([partial(fetched, piece) for piece in pieces])
    return lambda piece: descent.update([partial(fetched, piece)])


class Descent:
    def __init__(
        self,
        setup: Setup,
        moments: Moments,
        forward: Forward,
        weighted: Callable[[Tensor], Tensor] | None,
    ) -> None:
        (self._optimizer,) = setup.optimizers.by_name.values()
        groups = self._optimizer.param_groups
        self._parameters = [parameter for group in groups for parameter in group["params"]]
        self._forward, self._weighted, self._phase_ends = forward, weighted, moments.phase_ends
        self._scaler, self._average, self._model = setup.scaler, setup.average, setup.model
        self._resets_gradients = setup.settings.zero_grad
        self._most = setup.settings.clip_grad_norm
        self._where = "loss" if setup.workload.step is None else "step"

        def step_begins(*_: object) -> None:
            moments.update_begins()
            moments.gradients_ready()

        if moments.is_watched("gradients_ready") or moments.is_watched("update_begins"):
            # Last among the hooks of the optimizer: the workload's own, which may clip, have run then.
            self._optimizer.register_step_pre_hook(step_begins)

    def update(self, batches: Sequence[Callable[[], Batch]]) -> StepOutcome:
        """By the mean gradient of some batches, which count the same; each is fetched when the one before
        is done with."""
        outcomes: list[StepOutcome] = []
        for number, fetched in enumerate(batches, start=1):
            batch = self._forward.prepare(fetched())
            if number == 1 and self._resets_gradients:
                self._optimizer.zero_grad()
            self._phase_ends("zero_grad")
            outcome = self._forward.run(batch)
            outcomes.append(outcome)
            loss = outcome.loss if self._weighted is None else self._weighted(outcome.loss)
            check_gradient(loss, self._where)
            loss = loss if len(batches) == 1 else loss / len(batches)
            with BACKWARD:
                (loss if self._scaler is None else self._scaler.scale(loss)).backward()
            if self._scaler is not None and number == len(batches):  # the gradients are whole
                self._scaler.unscale_(self._optimizer)
            self._phase_ends("backward")
        if self._most is not None:
            clip_grad_norm_(self._parameters, self._most)
        with OPTIMIZER:
            if self._scaler is None:
                self._optimizer.step()
            else:
                self._scaler.step(self._optimizer)
                self._scaler.update()
        if self._average is not None:
            self._average.update_parameters(self._model)
        self._phase_ends("optimizer")
        *before, last = outcomes
        return last._replace(before=tuple(before)) if before else last


def _own_update(setup: Setup, moments: Moments, state: Carried) -> Callable[[Batch], StepOutcome]:
    """The workload's, which makes its own passes and steps."""
    own, average = setup.workload.update, setup.average
    assert own is not None
    context = Context(setup, moments, state)

    def update(batch: Batch) -> StepOutcome:
        moments.batch_ready(batch, ())
        moments.forward_begins()
        with setup.autocast(), context.watching(), UPDATE:
            given = own(context, batch)
        moments.passes_end()
        outcome = outcome_of(given, batch, "update")
        if average is not None:
            average.update_parameters(setup.model)
        moments.phase_ends("optimizer")
        return outcome

    return update


# compiled: the model compiled by `torch.compile`, its steps else as eager makes them.


class CompiledEngine(EagerEngine):
    """Takes one trial at a time. Compiling takes seconds to minutes, before the first update."""

    name = "compiled"
    shows: Grain = "phase"

    def open(self, group: Sequence[Member]) -> EagerSession:
        (member,) = group
        return EagerSession(replace(member, setup=_compiled(member.setup)))

    def training_step(self, setup: Setup, moments: Moments) -> Update:
        return make_training_step(_compiled(setup), moments)

    def inference_step(self, setup: Setup, moments: Moments) -> Update:
        return Forward(_compiled(setup), moments, in_test=True)


def _compiled(setup: Setup) -> Setup:
    """The set-up with a compiled model that shares the weights of its own."""
    if setup.workload.update is not None:
        raise Unsuited("not_ours", what="update")

    def compiled(model: nn.Module) -> Setup:
        # Random numbers from torch's own operators: dropout then drops what it drops in eager.
        model = cast(nn.Module, torch.compile(model, options={"fallback_random": True}))
        return replace(setup, model=model)

    with torch.random.fork_rng(devices=[setup.device] if setup.device.type == "cuda" else []):
        try:
            # A copy is tried: a model may count its calls, or keep what it sees.
            tried = compiled(copy.deepcopy(setup.model))
            tried.model.train()
            with torch.enable_grad():
                outcome = Forward(tried, Moments([]))(tried.train_batches.sample())
                parameters = [one for one in tried.model.parameters() if one.requires_grad]
                torch.autograd.grad(outcome.loss, parameters, allow_unused=True)
            return compiled(setup.model)
        except TrainlabError:
            raise
        except Exception as error:
            raise Unsuited("not_compilable", reason=reason_of(error)) from error
