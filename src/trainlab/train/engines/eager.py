"""eager: every operation launched from Python, one after the other. The reference for all engines."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from torch import Tensor

from trainlab.train.checkpoint.state import (
    State,
    merged,
    model_state,
    optimizer_state,
    random_state,
    restore_model,
    restore_optimizer,
    restore_random,
)
from trainlab.train.engines.engine import Member, Update
from trainlab.train.evaluation import CallModel, Evaluation, Outcome, make_inference_step
from trainlab.train.meter import Means, Meter
from trainlab.train.moments import Grain, Moments
from trainlab.train.optimizers import make_schedule
from trainlab.train.seeds import data_order, seeded
from trainlab.train.setup import Setup


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
        return make_inference_step(setup, moments)


class EagerSession:
    """One trial, its steps made ready. `call_model`: in place of calling the model itself."""

    def __init__(self, member: Member, call_model: CallModel | None = None) -> None:
        setup, metrics = member.setup, member.setup.workload.metrics
        self._setup, self._moments, self._progress = setup, member.moments, member.progress
        self._step = make_training_step(setup, member.moments, call_model)
        self._meter = Meter(metrics, setup.device, stops_explosions=True)
        self._evaluation = Evaluation(setup, call_model)
        # Made before the first update, because torch's schedule counts the updates.
        self._schedule = make_schedule(setup.settings, setup.optimizer)
        self._batches: Iterator[Tensor] = iter(())
        self._done = 0
        """Updates of the current epoch."""

    def learning_rates(self) -> Sequence[float]:
        return [float(self._setup.optimizer.param_groups[0]["lr"])]

    @contextmanager
    def training(self, epoch: int, resumed: State | None = None) -> Iterator[None]:
        setup = self._setup
        setup.model.train()
        order = data_order(setup.trial.seed_of("order"), epoch, setup.train_batches.num_samples)
        self._done = 0 if resumed is None else resumed.values["done"]
        self._batches = iter(setup.train_batches.rows(order, self._done))
        with seeded(setup.trial.seed_of("dropout"), "dropout", epoch, setup.device):
            if resumed is not None:
                restore_random(setup.device, resumed)
            yield

    def advance(self, num_steps: int) -> Sequence[Means]:
        moments, progress, meter, step = self._moments, self._progress, self._meter, self._step
        meter.reset()
        for number, rows in enumerate(islice(self._batches, num_steps), progress.steps_done + 1):
            moments.step_begins(number)
            meter.add(*step(rows))
            moments.step_ends(number)
            progress.steps_done = number
        self._done += num_steps
        return [meter.means()]

    def test(self, epoch: int) -> Sequence[Means]:
        return [self._evaluation.run(epoch)]

    def change_learning_rates(self) -> None:
        if self._schedule is not None:
            self._schedule.step()

    def state(self) -> State:
        setup, schedule = self._setup, self._schedule
        own = {
            "done": self._done,
            "limit": self._meter.limit,
            "schedule": None if schedule is None else schedule.state_dict(),
        }
        return merged(
            model_state(setup.model, with_gradients=not setup.settings.zero_grad),
            optimizer_state(setup.optimizer),
            random_state(setup.device),
            State({}, own),
        )

    def restore(self, state: State) -> None:
        restore_model(self._setup.model, state)
        restore_optimizer(self._setup.optimizer, state)
        self._meter.keep_limit(state.values["limit"])
        if self._schedule is not None:
            self._schedule.load_state_dict(state.values["schedule"])


def make_training_step(
    setup: Setup, moments: Moments, call_model: CallModel | None = None
) -> Callable[[Tensor], Outcome]:
    """The update as a function of the batch's rows; everything it needs is looked up once, here."""
    model, optimizer, loss_of = call_model or setup.model, setup.optimizer, setup.workload.loss
    batches, prepare, autocast = setup.train_batches, setup.workload.prepare, setup.autocast
    resets_gradients = setup.settings.zero_grad
    phase_ends, batch_ready = moments.phase_ends, moments.batch_ready
    forward_begins = moments.forward_begins

    def step(rows: Tensor) -> Outcome:
        inputs, targets = batches.gather(rows)
        phase_ends("data")
        inputs, targets = batches.move(inputs, targets)
        phase_ends("transfer")
        inputs = prepare(inputs)
        phase_ends("prepare")
        batch_ready(inputs, targets)
        if resets_gradients:
            optimizer.zero_grad()
        phase_ends("zero_grad")
        forward_begins()
        with autocast():
            outputs = model(inputs)
            phase_ends("forward")
            loss = loss_of(outputs, targets)
        phase_ends("loss")
        loss.backward()
        phase_ends("backward")
        optimizer.step()
        phase_ends("optimizer")
        return loss, outputs, targets

    return step
