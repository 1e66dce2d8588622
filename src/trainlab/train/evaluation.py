"""Which classes a whole set was taken for, from the scores that a model gave to each class."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from trainlab.record.learning_record import (
    FEWEST_CLASSES,
    MOST_CLASSES,
    MOST_MISTAKES,
    ConfusionRecord,
    Mistake,
)
from trainlab.record.schema import note
from trainlab.train.batches import Batch, Batches, SplitBatches
from trainlab.train.callbacks import Moments
from trainlab.train.metering import Means, Meter
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.step import Carried, Forward, StepOutcome
from trainlab.workloads.user_code import naming
from trainlab.workloads.workload import of_samples, of_whole_set

MOST_KEPT_BYTES = 64 << 20
"""Of the scores of a set; what has more is run once more when they are asked for."""

Scores = tuple[Tensor, Tensor]
"""A row of scores per sample, and the class that each is of."""


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


class KeptScores:
    """Copies of the scores of a set as it is run, which cost next to nothing beside it."""

    def __init__(self) -> None:
        self.is_whole = True
        """Whether all are here, or it is known that they are no scores of classes."""
        self.batches: list[Scores] | None = []
        """None where they are no scores of classes."""
        self._num_bytes = 0

    def add(self, outcome: StepOutcome) -> None:
        """Takes in a batch."""
        if self.batches is None or not self.is_whole:
            return
        scores = scores_of(outcome)
        if scores is None:
            self.batches = None
            return
        outputs, targets = scores
        self._num_bytes += outputs.nbytes + targets.nbytes
        if self._num_bytes > MOST_KEPT_BYTES:
            self.is_whole, self.batches = False, []
            return
        # Copies: a model may write its next outputs where these are.
        self.batches.append((outputs.clone(), targets.clone()))


class Classified:
    """Counts the classes of a set, batch by batch, and remembers the worst mistakes."""

    def __init__(self) -> None:
        self._num_samples = 0
        self._counts: Tensor | None = None
        self._are_probabilities = False
        self._is_sound = True
        self._worst: list[Mistake] = []

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Takes in a batch, in the order of the set."""
        # Before they are moved: as the accuracy does.
        said = outputs.argmax(dim=-1).cpu()
        scores, targets = outputs.cpu().double(), targets.cpu().long()
        number = scores.shape[1]
        if self._counts is None:
            self._counts = torch.zeros(number, number, dtype=torch.int64)
            self._are_probabilities = _are_probabilities(scores)
        is_known = bool(((targets >= 0) & (targets < number)).all())
        if not is_known or len(self._counts) != number or bool(scores.isnan().any()):
            self._is_sound = False
        if not self._is_sound:
            return
        pairs = torch.bincount(targets * number + said, minlength=number**2)
        self._counts += pairs.view(number, number)
        chances = scores if self._are_probabilities else scores.softmax(dim=-1)
        self._remember(chances, said, targets)
        self._num_samples += len(targets)

    def record(self) -> ConfusionRecord | None:
        """None where a target was none of the classes, or a score was not a number."""
        if self._counts is None or not self._is_sound:
            return None
        return ConfusionRecord(
            num_samples=self._num_samples,
            counts=tuple(tuple(row) for row in self._counts.tolist()),
            worst=tuple(self._worst),
        )

    def _remember(self, chances: Tensor, said: Tensor, targets: Tensor) -> None:
        rows = (said != targets).nonzero()[:, 0]
        # A few more than are kept: of equal ones the least likely truth comes first.
        sure = chances[rows, said[rows]].clamp(0, 1)
        if len(rows) > MOST_MISTAKES:
            limit = sure.topk(MOST_MISTAKES).values[-1]
            rows, sure = rows[sure >= limit], sure[sure >= limit]
        right = chances[rows, targets[rows]].clamp(0, 1)
        columns = (one.tolist() for one in (rows, targets[rows], said[rows], sure, right))
        found = [
            Mistake(
                index=self._num_samples + row,
                true=true,
                said=taken,
                said_probability=share,
                true_probability=rest,
            )
            for row, true, taken, share, rest in zip(*columns, strict=True)
            if share == share  # not of scores that are all infinite
        ]
        every = sorted(
            [*self._worst, *found],
            key=lambda one: (-one.said_probability, one.true_probability, one.index),
        )
        self._worst = every[:MOST_MISTAKES]


def _are_probabilities(scores: Tensor) -> bool:
    """Whether each row has none below 0 and adds up to 1: a softmax is then part of the model."""
    sums = scores.sum(dim=-1)
    return bool((scores >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all())


# Evaluation: a whole test or validation set through a model in eval mode.


class Evaluation:
    """The test of one trial, its step made ready. `batches`: of another set than the test set. Where
    weights are averaged, of the average."""

    def __init__(self, setup: Setup, batches: Batches | None = None) -> None:
        if setup.average is not None:
            setup = replace(setup, model=setup.average.module)
        self._setup, self._batches = setup, batches or setup.test_batches
        self._carried: Carried = {}
        self._step = make_inference_step(setup, Moments([]), self._carried)
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
    def _running(self, epoch: int) -> Iterator[Iterator[StepOutcome]]:
        """The outcomes of the set's batches, as they come."""
        setup = self._setup
        setup.model.eval()
        self._carried.clear()
        draws = seeded(setup.trial.seed, "test", epoch, setup.device)
        # Not inference_mode: a model may keep a tensor made here, a mask say, for its next update.
        with torch.no_grad(), loss_in_eval_mode(setup), draws:
            batches = naming("data", self._batches.in_order())
            yield (self._step(self._own(batch)) for batch in batches)

    def _look_at(self, outcome: StepOutcome) -> None:
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
    setup: Setup, moments: Moments, carried: Carried | None = None
) -> Callable[[Batch], StepOutcome]:
    """A forward pass as a function of a batch on the device, as stored; nothing is updated."""
    return Forward(setup, moments, carried=carried, in_test=True)
