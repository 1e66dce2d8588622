"""Evaluation: a whole test or validation set through a model in eval mode."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from trainlab.record.learning_record import ConfusionRecord
from trainlab.record.schema import note
from trainlab.train.batches import Batches, SplitBatches
from trainlab.train.batches.batches import Batch
from trainlab.train.moments import Moments
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.steps.classified import Classified, KeptScores, scores_of
from trainlab.train.steps.forward import CallModel, Carried, Forward
from trainlab.train.steps.meter import Means, Meter
from trainlab.train.steps.outcome import Outcome
from trainlab.workloads.metrics import of_samples, of_whole_set
from trainlab.workloads.user_code import naming


class Evaluation:
    """The test of one trial, its step made ready. `call_model`: in place of calling the model itself;
    `batches`: of another set than the test set. Where weights are averaged, of the average."""

    def __init__(
        self, setup: Setup, call_model: CallModel | None = None, batches: Batches | None = None
    ) -> None:
        if setup.average is not None:
            setup, call_model = replace(setup, model=setup.average.module), None
        self._setup, self._batches = setup, batches or setup.test_batches
        self._carried: Carried = {}
        self._step = make_inference_step(setup, Moments([]), call_model, self._carried)
        metrics = setup.workload.metrics
        whole = of_whole_set(metrics, setup.device)
        self._meter = Meter(of_samples(metrics), setup.device, whole=whole)
        self._is_looked_at = False
        """Whether the loss has been seen to be a mean, or to be none."""
        self._is_stored = isinstance(self._batches, SplitBatches)
        self.kept: KeptScores | None = None
        """What the last run of a test set gave; None where this process has made none."""
        self._keeps = batches is None

    def run(self, epoch: int) -> Means:
        """Means over the set; what it draws derives from (seed, epoch)."""
        meter = self._meter
        meter.reset()
        kept = self.kept = KeptScores() if self._keeps else None
        with self._running(epoch) as outcomes:
            for outcome in outcomes:
                meter.add(outcome)
                if kept is not None:
                    kept.add(outcome)
                if not self._is_looked_at:
                    self._look_at(outcome)
            return meter.means()

    def confusion(self, epoch: int) -> ConfusionRecord | None:
        """Which classes the set was taken for in the last run; None where there are none. Where that run is
        not kept, the set is run once more, as in that epoch."""
        found = Classified()
        if self.kept is not None and self.kept.is_whole:
            for scores in self.kept.batches or ():
                found.add(*scores)
            return found.record()
        with self._running(epoch) as outcomes:
            for outcome in outcomes:
                if (again := scores_of(outcome)) is None:
                    return None
                found.add(*again)
        return found.record()

    @contextmanager
    def _running(self, epoch: int) -> Iterator[Iterator[Outcome]]:
        """The outcomes of the set's batches, as they come."""
        setup = self._setup
        setup.model.eval()
        self._carried.clear()
        draws = seeded(setup.trial.seed, "test", epoch, setup.device)
        # Not inference_mode: a model may keep a tensor made here, a mask say, for its next update.
        with torch.no_grad(), loss_in_eval_mode(setup), draws:
            batches = naming("data", self._batches.in_order())
            yield (self._step(self._own(batch)) for batch in batches)

    def _look_at(self, outcome: Outcome) -> None:
        """Notes where the loss of a batch is the sum of the losses of its halves, and not their mean: it
        then grows with the batch, and so does every update."""
        setup, self._is_looked_at = self._setup, True
        outputs, targets, half = outcome.outputs, outcome.targets, outcome.num_samples // 2
        are_tensors = isinstance(outputs, Tensor) and isinstance(targets, Tensor)
        if setup.workload.loss is None or half == 0 or not are_tensors:
            return
        if not len(outputs) == len(targets) == outcome.num_samples:
            return
        # Of the user's code, on a batch that it will never get; what it draws is not drawn from the test.
        with suppress(Exception), seeded(setup.trial.seed, "look", 0, setup.device):
            parts = [
                float(setup.loss(outputs[rows], targets[rows]))
                for rows in (slice(half), slice(half, 2 * half))
            ]
            whole = float(setup.loss(outputs[: 2 * half], targets[: 2 * half]))
            is_sum = math.isclose(whole, sum(parts), rel_tol=1e-4)
            told = note("loss_is_sum")
            if (
                is_sum
                and not math.isclose(whole, sum(parts) / 2, rel_tol=1e-4)
                and told not in setup.notes
            ):
                setup.notes.append(told)

    def _own(self, batch: Batch) -> Batch:
        """A copy of what the model could change in place, where the batch is a view of the stored set."""
        if not self._is_stored:
            return batch
        inputs, targets = batch
        return (inputs.clone() if inputs.is_floating_point() else inputs), targets


@contextmanager
def loss_in_eval_mode(setup: Setup) -> Iterator[None]:
    """Where the loss is a module, with dropout say; afterwards each part of it is as it was."""
    loss = None if setup.workload.loss is None else setup.loss
    modes = {one: one.training for one in loss.modules()} if isinstance(loss, nn.Module) else {}
    for one in modes:
        one.training = False
    try:
        yield
    finally:
        for one, mode in modes.items():
            one.training = mode


def make_inference_step(
    setup: Setup,
    moments: Moments,
    call_model: CallModel | None = None,
    carried: Carried | None = None,
) -> Callable[[Batch], Outcome]:
    """A forward pass as a function of a batch on the device, as stored; nothing is updated."""
    return Forward(setup, moments, call_model, carried, in_test=True)
