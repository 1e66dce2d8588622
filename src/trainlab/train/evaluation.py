"""Evaluation: a whole test or validation set through a model in eval mode; and which classes it was taken
for, from the scores that the model gave to each class."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from heapq import nsmallest
from typing import Any

import torch
from torch import Tensor, nn

from trainlab.data.nesting import first_of
from trainlab.record.learning_record import (
    FEWEST_CLASSES,
    MOST_CLASSES,
    MOST_MISTAKES,
    ConfusionRecord,
    Mistake,
)
from trainlab.train.batches import Batch, Batches, SplitBatches
from trainlab.train.callbacks import Moments
from trainlab.train.metering import Means, Meter
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.step import Carried, Forward, StepOutcome
from trainlab.workloads.user_code import naming
from trainlab.workloads.workload import of_whole_set

Scores = tuple[Tensor, Tensor]
"""A row of scores per sample, and the class that each is of."""
KeptScores = list[Scores | None] | None
"""Of each batch of a set that was run, None where it has none; None: they are not kept."""
FEW = 16
"""Samples that a loss is looked at with."""


class Evaluation:
    """The test of one trial, its step made ready. `batches`: of another set than the test set. Where
    weights are averaged, of the average."""

    def __init__(self, setup: Setup, batches: Batches | None = None) -> None:
        if setup.average is not None:
            setup = replace(setup, model=setup.average.module)
        self._setup, self._is_test = setup, batches is None
        self._batches = setup.test_batches if batches is None else batches
        self._carried: Carried = {}
        self._step = Forward(setup, Moments([]), carried=self._carried, in_test=True)
        whole = of_whole_set(setup.workload.metrics, setup.device)
        self._meter = Meter(setup.workload.sample_metrics, setup.device, whole=whole)
        self._first: tuple[Any, Any] | None = None
        """A few outputs of the first batch that was run, with their targets."""
        self.kept: KeptScores = None

    def run(self, epoch: int) -> Means:
        """Means over the set; what it draws derives from (seed, epoch)."""
        self._meter.reset()
        self.kept = [] if self._is_test else None
        with self._running(epoch) as outcomes:
            for outcome in outcomes:
                self._meter.add(outcome)
                if self.kept is not None:
                    scores = scores_of(outcome)
                    # Copies: a model may write its next outputs where these are.
                    self.kept.append(scores and (scores[0].clone(), scores[1].clone()))
                if self._first is None and isinstance(outcome.outputs, Tensor):
                    self._first = first_of((outcome.outputs, outcome.targets), FEW)
            return self._meter.means()

    def confusion(self, epoch: int) -> ConfusionRecord | None:
        """Which classes the set was taken for in the last run; None where there are none. Where that run is
        not kept, the set is run once more, as in that epoch."""
        if self.kept is not None:
            return confusion_of(self.kept)
        with self._running(epoch) as outcomes:
            return confusion_of(map(scores_of, outcomes))

    @contextmanager
    def _running(self, epoch: int) -> Iterator[Iterator[StepOutcome]]:
        """The outcomes of the set's batches, as they come. A loss that is a module, with dropout say, is in
        eval mode too; afterwards each part of it is as it was."""
        setup = self._setup
        setup.model.eval()
        self._carried.clear()
        loss = None if setup.workload.loss is None else setup.loss
        parts = loss.modules() if isinstance(loss, nn.Module) else ()
        training = [one for one in parts if one.training]
        for one in training:
            one.training = False
        try:
            # Not inference_mode: a model may keep a tensor made here, a mask say, for its next update.
            with torch.no_grad(), seeded(setup.trial.seed, "test", epoch, setup.device):
                batches = naming("data", self._batches.in_order())
                yield (self._step(self._own(batch)) for batch in batches)
        finally:
            for one in training:
                one.training = True

    def _own(self, batch: Batch) -> Batch:
        """A copy of what the model could change in place, where the batch is a view of the stored set."""
        if not isinstance(self._batches, SplitBatches):
            return batch
        inputs, targets = batch
        return (inputs.clone() if inputs.is_floating_point() else inputs), targets

    def look_at_loss(self) -> None:
        """Notes where the loss of a batch is the sum of the losses of its halves, and not their mean: it
        then grows with the batch, and so does every update. Once training is over, as these are calls of
        the user's code that she does not make."""
        if self._setup.workload.loss is None or self._first is None:
            return
        setup, (outputs, targets) = self._setup, self._first
        # In eval mode, as the test; no batch of it is run.
        with suppress(Exception), self._running(epoch=0):
            half = len(outputs) // 2
            first, second, whole = (
                float(setup.loss(outputs[rows], targets[rows]))
                for rows in (slice(half), slice(half, 2 * half), slice(2 * half))
            )
            is_sum = math.isclose(whole, first + second, rel_tol=1e-4)
            is_mean = math.isclose(whole, (first + second) / 2, rel_tol=1e-4)
            if is_sum and not is_mean:
                setup.note_once("loss_is_sum")


# Which classes a set was taken for.


def scores_of(outcome: StepOutcome) -> Scores | None:
    """None where a batch gave something else than a score per class and has no class per sample."""
    outputs, targets = outcome.outputs, outcome.targets
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return None
    if outputs.dim() != 2 or not outputs.is_floating_point():
        return None
    is_of_classes = FEWEST_CLASSES <= outputs.shape[1] <= MOST_CLASSES
    is_whole_number = not (targets.is_floating_point() or targets.is_complex())
    has_one_each = tuple(targets.shape) == (len(outputs),) == (outcome.num_samples,)
    if not (is_of_classes and is_whole_number and has_one_each) or targets.dtype == torch.bool:
        return None
    return outputs.detach(), targets


def confusion_of(batches: Iterable[Scores | None]) -> ConfusionRecord | None:
    """Counts the classes of a set, batch by batch in its order, with the worst mistakes. None where a batch
    has no scores of classes, a target was none of the classes, or a score was not a number."""
    counts: Tensor | None = None
    num_samples, are_probabilities = 0, False
    worst: list[tuple[float, float, int, int, int]] = []
    for batch in batches:
        if batch is None:
            return None
        # Before they are moved: as the accuracy does.
        said = batch[0].argmax(dim=-1).cpu()
        scores, targets = batch[0].cpu().double(), batch[1].cpu().long()
        number = scores.shape[1]
        if counts is None:
            counts = torch.zeros(number, number, dtype=torch.int64)
            # Where no score is below 0 and they add up to 1, a softmax is part of the model.
            is_share = bool(((scores.sum(dim=-1) - 1).abs() < 1e-3).all())
            are_probabilities = is_share and bool((scores >= 0).all())
        is_known = bool(((targets >= 0) & (targets < number)).all())
        if not is_known or len(counts) != number or bool(scores.isnan().any()):
            return None
        counts += torch.bincount(targets * number + said, minlength=number**2).view(number, number)
        chances = scores if are_probabilities else scores.softmax(dim=-1)
        worst = nsmallest(MOST_MISTAKES, [*worst, *_mistakes(chances, said, targets, num_samples)])
        num_samples += len(targets)
    if counts is None:
        return None
    mistakes = (
        Mistake(index=row, true=true, said=said, said_probability=-sure, true_probability=right)
        for sure, right, row, true, said in worst
    )
    rows = tuple(tuple(row) for row in counts.tolist())
    return ConfusionRecord(num_samples=num_samples, counts=rows, worst=tuple(mistakes))


def _mistakes(
    chances: Tensor, said: Tensor, targets: Tensor, num_before: int
) -> Iterator[tuple[float, float, int, int, int]]:
    """Those of a batch, to be sorted: the surest first, of equal ones the one with the least likely truth.
    Minus the probability of the class said, that of the true one, the sample's number, both classes."""
    # Scores that are all infinite have no probabilities.
    rows = ((said != targets) & ~chances.isnan().any(dim=1)).nonzero()[:, 0]
    sure, right = (chances[rows, one[rows]].clamp(0, 1) for one in (said, targets))
    columns = (-sure, right, rows + num_before, targets[rows], said[rows])
    return zip(*(column.tolist() for column in columns), strict=True)
