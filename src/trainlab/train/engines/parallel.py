"""Data parallel: eager updates of one trial by several processes, each on its share of the batch."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor

from trainlab.record.schema import note
from trainlab.train.checkpoint.state import State
from trainlab.train.engines.eager import EagerEngine, EagerSession, Step, make_training_step
from trainlab.train.engines.engine import Member, Update
from trainlab.train.moments import Moments
from trainlab.train.parallel.crew import Crew, crew_of, dismiss_crew
from trainlab.train.parallel.meter import SharedMeter
from trainlab.train.parallel.process_group import backend_for
from trainlab.train.seeds import derived_seed, seeded
from trainlab.train.setup import Setup
from trainlab.train.steps.forward import CallModel
from trainlab.train.steps.meter import Means
from trainlab.train.steps.outcome import Outcome


class ParallelEngine(EagerEngine):
    """Instruments see the first process and its share of each batch. Inference is not shared."""

    def open(self, group: Sequence[Member]) -> "LeadingSession":
        (member,) = group
        crew = crew_of(member.setup)
        _tell_of(member.setup)
        return LeadingSession(member, crew)

    def training_step(self, setup: Setup, moments: Moments) -> Update:
        crew = crew_of(setup)
        _tell_of(setup)
        step = _step(setup, moments, crew.model, lambda: setup.train_batches.size_of(0))

        def counted(rows: Tensor) -> Outcome:
            crew.num_steps += 1
            return step(rows)

        return counted


class SharingSession(EagerSession):
    """One process's part in the updates of a trial. What an update draws derives from the trial's seed, the
    process and the number of the update, so that it can go on after any of them."""

    def __init__(self, member: Member, model: CallModel) -> None:
        setup = member.setup
        meter = SharedMeter(setup.workload.sample_metrics, setup.device, stops_explosions=True)
        super().__init__(member, step=self._shared_step(member, model), meter=meter)
        self._epoch = self._number = 0
        """The update that comes next, of the current epoch."""

    @contextmanager
    def training(self, epoch: int, resumed: State | None = None) -> Iterator[None]:
        setup = self._setup
        self.begin_epoch(epoch, 0 if resumed is None else resumed.values["done"])
        with seeded(setup.trial.seed_of("dropout"), "dropout", epoch, setup.device):
            yield

    def begin_epoch(self, epoch: int, num_done: int) -> None:
        """Stands ready for the updates of an epoch after so many of them."""
        self._begin_epoch(epoch, num_done)
        self._epoch, self._number = epoch, num_done

    def _shared_step(self, member: Member, model: CallModel) -> Step:
        batches, seed = member.setup.train_batches, member.setup.trial.seed_of("dropout")
        purpose = f"dropout/{batches.rank.number}"
        step = _step(member.setup, member.moments, model, lambda: batches.size_of(self._number))

        def shared(rows: Tensor) -> Outcome:
            _seed(derived_seed(seed, purpose, self._epoch * len(batches) + self._number))
            outcome = step(rows)
            counts = batches.rank.num_in(batches.size_of(self._number)) > 0
            self._number += 1
            return outcome if counts else _uncounted(outcome)

        return shared


class LeadingSession(SharingSession):
    """The first process's: what it does, the crew does too."""

    def __init__(self, member: Member, crew: Crew) -> None:
        super().__init__(member, crew.model)
        self._crew = crew

    def begin_epoch(self, epoch: int, num_done: int) -> None:
        self._crew.tell("begin_epoch", epoch=epoch, num_done=num_done)
        super().begin_epoch(epoch, num_done)

    def advance(self, num_steps: int) -> Sequence[Means]:
        self._crew.tell("advance", num_steps=num_steps)
        try:
            return super().advance(num_steps)
        except Exception as error:
            if (reason := self._crew.reason_of(error)) is error:
                raise
            # Not from that error, which is none of the user's code: it names what another process lost.
            raise reason from None

    def change_learning_rates(self) -> None:
        self._crew.tell("change_learning_rates")
        super().change_learning_rates()

    def restore(self, state: State) -> None:
        self._crew.restore(state)
        super().restore(state)


@contextmanager
def stepping_together(setup: Setup) -> Iterator[None]:
    """Single steps inside this block are made by all processes of the trial. The others run freely: each of
    their steps waits for this process's gradients. They may have begun the next by the end of the block, so
    one more is made."""
    if setup.settings.processes == 1:
        yield
        return
    crew = crew_of(setup)
    crew.num_steps = 0
    crew.tell("run")
    try:
        yield
    except BaseException as error:
        reason = crew.reason_of(error) if isinstance(error, Exception) else error
        dismiss_crew()
        raise reason from error
    crew.tell("stop", num_steps=crew.num_steps + 1)
    ParallelEngine().training_step(setup, Moments([]))(setup.split_batches.first_rows())


def free_step(setup: Setup, model: CallModel) -> Callable[[], object]:
    """A step of another process than the first, always on the same samples."""
    batches = setup.split_batches
    step = _step(setup, Moments([]), model, lambda: batches.size_of(0))
    return partial(step, batches.first_rows())


def _uncounted(outcome: Outcome) -> Outcome:
    """Of a process without samples in this batch, which takes part for its gradients' sake alone."""
    none = outcome.outputs[:0], outcome.targets[:0]
    return outcome._replace(outputs=none[0], targets=none[1], num_samples=0)


def _step(setup: Setup, moments: Moments, model: CallModel, batch_size: Callable[[], int]) -> Step:
    """The update of a share; `batch_size` gives the size of the whole batch."""
    rank = setup.train_batches.rank

    def weighted(loss: Tensor) -> Tensor:
        weight = rank.weight_in(batch_size())
        return loss if weight == 1 else loss * weight

    return make_training_step(setup, moments, model, weighted)


def _tell_of(setup: Setup) -> None:
    """Records how the processes work together, and what differs from one alone."""
    setup.engine_facts["backend"] = backend_for(setup.device)
    norms = [
        m for m in setup.model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)
    ]
    told = note("parallel_batch_norm", processes=setup.settings.processes)
    if norms and told not in setup.notes:
        setup.notes.append(told)


def _seed(value: int) -> None:
    torch.manual_seed(value)
    random.seed(value)
    np.random.seed(value % 2**32)
