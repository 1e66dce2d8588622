"""Which classes a whole set was taken for, from the scores that a model gave to each class."""

import torch
from torch import Tensor

from trainlab.record.learning_record import (
    FEWEST_CLASSES,
    MOST_CLASSES,
    MOST_MISTAKES,
    ConfusionRecord,
    Mistake,
)
from trainlab.train.steps.outcome import Outcome

MOST_KEPT_BYTES = 64 << 20
"""Of the scores of a set; what has more is run once more when they are asked for."""

Scores = tuple[Tensor, Tensor]
"""A row of scores per sample, and the class that each is of."""


def scores_of(outcome: Outcome) -> Scores | None:
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

    def add(self, outcome: Outcome) -> None:
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
