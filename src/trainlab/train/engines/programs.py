"""A group of trials whose steps are a program: captured as a graph on a GPU, or called again and again."""

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from trainlab.errors import TrainlabError
from trainlab.record.learning_record import ConfusionRecord
from trainlab.record.trial_record import Progress
from trainlab.train.callbacks import Grain, Moments, ProgramView, program_watch
from trainlab.train.engines.capture import (
    DryStep,
    check_agreement,
    check_model,
    dry_step,
    repeated,
    restore,
)
from trainlab.train.engines.engine import Member, State, Unsuited, Update, reason_of
from trainlab.train.engines.lane_updates import LaneUpdate
from trainlab.train.engines.vectorized import (
    GroupStep,
    LaneGroup,
    LaneNoise,
    LaneSums,
    Stacked,
)
from trainlab.train.evaluation import Evaluation
from trainlab.train.metering import Means
from trainlab.train.seeds import derived_seed, random_state, restore_random, seeded
from trainlab.train.setup import Setup
from trainlab.train.step import Forward
from trainlab.train.updates import Rates


class ProgramSession:
    """Members must be sorted by `update_key` and alike in all but what lanes may differ in."""

    def __init__(self, members: Sequence[Member], *, is_vectorised: bool) -> None:
        self._members, self._is_vectorised = members, is_vectorised
        self._setups = [member.setup for member in members]
        setup = self._setups[0]
        if setup.own is not None:
            raise Unsuited("not_ours", what=setup.own)
        self._batches, self._device = setup.split_batches, setup.device
        for settings in (one.settings for one in self._setups):
            beyond = settings.set_beyond("programs")
            beyond += ["precision"] if settings.precision == "fp16" else []
            if beyond:
                raise Unsuited("not_step_by_step", what=beyond[0])
        if not self._batches.resident:
            raise Unsuited("not_resident")
        self._rates = [Rates(one.settings) for one in self._setups]
        self._evaluations = [Evaluation(one) for one in self._setups]
        self._validations = [
            None if one.val_batches is None else Evaluation(one, one.val_batches)
            for one in self._setups
        ]
        # Each trial draws from its own; one alone from torch's default, as eager does.
        self._generators = [torch.Generator(self._device) for _ in members] if is_vectorised else []
        self._done = 0
        self._num_changes = 0
        """Of the learning rates, since the start."""
        # vmap warns where it runs an operator trial by trial; what that costs is measured instead.
        warnings.filterwarnings("ignore", message="There is a performance drop")
        num_samples, size = self._batches.num_samples, self._batches.batch_size
        self._num_full, rest = divmod(num_samples, size)
        with torch.random.fork_rng(devices=[self._device] if self._device.type == "cuda" else []):
            self._build([count for count in (size if self._num_full else 0, rest) if count])
        # Instruments that look at points find the gradients where eager has them.
        for name, of_all in self._group.stacked.by_name(self._group.gradients).items():
            for one, gradient in zip(self._setups, of_all, strict=True):
                one.model.get_parameter(name).grad = gradient
        for one in self._setups:
            one.engine_facts.update(optimizer_code="program", trials_together=len(members))

    def learning_rates(self) -> Sequence[float]:
        return [rates.current for rates in self._rates]

    def change_learning_rates(self) -> None:
        for rates in self._rates:
            rates.change()
        self._num_changes += 1
        self._group.update.set_rates(self.learning_rates())

    def state(self) -> State:
        return {
            "program": self._changes(),
            "generators": [one.get_state() for one in self._generators],
            "limits": dict(self._group.sums.limits),
            "done": self._done,
            "rate_changes": self._num_changes,
            "random": random_state(self._device),
        }

    def restore(self, state: State) -> None:
        restore(self._changes(), state["program"])
        self._group.sums.limits.update(state["limits"])
        for _ in range(state["rate_changes"]):
            self.change_learning_rates()

    @contextmanager
    def training(self, epoch: int, resumed: State | None = None) -> Iterator[None]:
        seeds = [one.trial.seed_of("order") for one in self._setups]
        orders = torch.stack([self._batches.order(seed, epoch) for seed in seeds])
        orders = orders.to(self._device)
        num_full = self._num_full
        for size, step in self._steps.items():  # the rows of every step of the epoch
            if size == self._batches.batch_size:
                part = orders[:, : num_full * size].unflatten(1, (num_full, size))
                step.rows.copy_(part.transpose(0, 1))
            else:
                step.rows.copy_(orders[:, -size:].unsqueeze(0))
        self._done = 0 if resumed is None else resumed["done"]
        self._group.position.fill_(self._done)
        with self._drawing(epoch):
            if resumed is not None:
                restore_random(self._device, resumed["random"])
                for generator, saved in zip(self._generators, resumed["generators"], strict=True):
                    generator.set_state(saved)
            yield

    def advance(self, num_steps: int) -> Sequence[Means]:
        first, batches, watch = self._done, self._batches, self._watch
        if watch is not None:
            watch.go_on([member.progress.state == "running" for member in self._members])
        while left := first + num_steps - self._done:
            # Steps of one batch size, up to where the watch must be asked.
            num_full = self._num_full - self._done
            count = min(left, num_full) if num_full > 0 else 1
            if watch is not None:
                count = watch.next_steps(count)
            self._run(batches.size_of(self._done), count)
            self._done += count
        for member in self._members:
            if member.progress.state == "running":
                member.progress.steps_done += num_steps
        num_samples = min(self._done * batches.batch_size, batches.num_samples)
        num_samples -= first * batches.batch_size
        return self._group.sums.means(first, num_steps, num_samples)

    def _run(self, size: int, count: int) -> None:
        run = self._full if size == self._batches.batch_size else self._steps[size]
        for _ in range(count):
            run()  # on a GPU it is queued, not done
        if self._watch is not None:
            self._watch.steps_done(size, count)

    def step_on(self, rows: Tensor) -> None:
        """One step by itself on these rows of the data, of every trial."""
        self._group.position.zero_()
        self._steps[len(rows)].rows[0].copy_(rows)
        self._run(len(rows), 1)

    def test(self, epoch: int) -> Sequence[Means]:
        return [evaluation.run(epoch) for evaluation in self._evaluations]

    def validate(self, epoch: int) -> Sequence[Means | None]:
        return [None if one is None else one.run(epoch) for one in self._validations]

    def keep(self) -> None:
        raise AssertionError("trials that keep their best epoch are made step by step")

    def settle(self) -> None:
        """The weights are those of the last update."""
        for evaluation in self._evaluations:
            evaluation.look_at_loss()

    def confusion(self, number: int, epoch: int) -> ConfusionRecord | None:
        return self._evaluations[number].confusion(epoch)

    def _build(self, sizes: Sequence[int]) -> None:
        """Makes a dry step of every trial, then the steps, and looks whether they do the same."""
        setups, device, models = self._setups, self._device, [one.model for one in self._setups]
        for model in models:
            check_model(model)
        if any(one.settings.model != setups[0].settings.model for one in setups):
            raise Unsuited("not_alike")  # the modules of the first run for all
        orders = [self._batches.order(one.trial.seed_of("order"), 1).to(device) for one in setups]
        of_trials = list(zip(setups, orders, strict=True))
        with _faults_of_program():
            dry = {
                size: [dry_step(one, order[:size]) for one, order in of_trials] for size in sizes
            }
        learning = list(dry[sizes[0]][0].gradients)
        for some in dry.values():
            if any(list(one.gradients) != learning or one.draws != some[0].draws for one in some):
                raise Unsuited("not_alike")
        # Copies run: the models are as they were where no program comes of it, and modules that keep what
        # they are called with, as recurrent ones do vmap's tensors, keep it in a copy.
        copies = [copy.deepcopy(model) for model in models]
        runs = replace(setups[0], model=copies[0].train())
        stacked = Stacked(copies, learning)
        of_lanes = [*stacked.learned.values(), *stacked.fixed.values(), *stacked.buffers.values()]
        of_first = [*copies[0].parameters(), *copies[0].buffers()]
        view = ProgramView(
            model=copies[0],
            device=device,
            precision=setups[0].settings.precision,
            num_lanes=len(setups),
            is_vectorised=self._is_vectorised,
            parameters={**stacked.fixed, **stacked.learned},
            constants=of_lanes if self._is_vectorised else of_first,
        )
        self._watch = program_watch([member.moments for member in self._members], view)
        metrics = list(setups[0].workload.sample_metrics)
        resets = [one.settings.zero_grad for one in setups]
        self._group = LaneGroup(
            setup=runs,
            stacked=stacked,
            update=LaneUpdate([one.settings for one in setups], stacked.rows),
            gradients=torch.zeros_like(stacked.rows),
            resets=None if all(resets) else torch.tensor(resets, device=device).unsqueeze(1),
            sums=LaneSums(len(setups), metrics, len(self._batches), device),
            position=torch.zeros(1, dtype=torch.int64, device=device),
            is_vectorised=self._is_vectorised,
            watch=self._watch,
        )
        full_size = self._batches.batch_size
        self._steps: dict[int, GroupStep] = {}
        for size, some in dry.items():
            shape = self._num_full if size == full_size else 1, len(setups), size
            rows = torch.zeros(shape, dtype=torch.int64, device=device)
            draws = some[0].draws if self._is_vectorised else ()
            noise = LaneNoise(draws, self._generators) if draws else None
            step = self._steps[size] = GroupStep(self._group, rows, noise)
            self._check(step, torch.stack([order[:size] for order in orders]), some)
        self._group.gradients.zero_()  # as before the first step
        del dry
        if self._num_full:
            full = self._steps[full_size]
            self._full = repeated(full, device, self._changes(), self._generators)
        if self._watch is not None:
            self._watch.opened()
        stacked.hold(models)

    def _changes(self) -> list[Tensor]:
        group = self._group
        return [
            group.stacked.rows,
            *group.stacked.buffers.values(),
            *group.update.tensors,
            *group.sums.tensors,
            group.position,
            group.gradients,
            *([] if self._watch is None else self._watch.tensors),
        ]

    def _check(self, step: GroupStep, rows: Tensor, dry: Sequence[DryStep]) -> None:
        """Refuses a program whose first step is not that of the dry step."""
        buffers = self._group.stacked.buffers.values()
        kept = [buffer.clone() for buffer in buffers]
        try:
            if self._watch is not None:
                with self._watch.reference(rows.shape[1]) as forward:
                    dry_step(self._group.setup, rows[0], forward)
            with _faults_of_program(), self._drawing(epoch=1):
                losses, _, gradients = step.run(rows)
        finally:
            restore(buffers, kept)
        precision = self._setups[0].settings.precision
        check_agreement(losses, gradients, dry, self._group.stacked, precision)

    @contextmanager
    def _drawing(self, epoch: int) -> Iterator[None]:
        """All models in training mode; what each draws in this block comes from its own seed."""
        for one in self._setups:
            one.model.train()
        for one, generator in zip(self._setups, self._generators, strict=False):
            seed = derived_seed(one.trial.seed_of("dropout"), "dropout", epoch)
            generator.manual_seed(seed)
        seed = self._setups[0].trial.seed_of("dropout")
        with seeded(seed, "dropout", epoch, self._device):
            yield


@contextmanager
def _faults_of_program() -> Iterator[None]:
    """What the model raises in a first step is no fault yet: eager, which runs next, will tell."""
    try:
        yield
    except (TrainlabError, Unsuited, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise Unsuited("not_vectorisable", reason=reason_of(error)) from error


class ProgramEngine:
    """graphed: the whole step of one trial as a CUDA graph, launched at once. lanes: many trials, alike but
    for seed, optimizer, its settings and gradient resets, as rows of one vectorised program (`torch.func`),
    captured likewise. Where there is no GPU the same step is called again and again."""

    shows: Grain = "point"
    is_program = True

    def __init__(self, name: str, *, takes_many: bool) -> None:
        self.name, self.takes_many = name, takes_many

    def open(self, group: Sequence[Member]) -> ProgramSession:
        return ProgramSession(group, is_vectorised=self.takes_many)

    def training_step(self, setup: Setup, moments: Moments) -> Update:
        return self.open([Member(setup, moments, Progress())]).step_on

    def inference_step(self, setup: Setup, moments: Moments) -> Update:
        return Forward(setup, moments, in_test=True)
