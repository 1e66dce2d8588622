"""Confusion: which classes the best setting takes for which, its seeds together."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.metrics import ACCURACY, compared_metrics
from trainlab.record.learning_record import MOST_MISTAKES, ConfusionRecord, Mistake

Counts = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SeenMistake:
    """A mistake, and the seed of the trial that made it."""

    seed: int
    mistake: Mistake


@dataclass(frozen=True)
class ConfusedPair:
    """Two classes by number; the first is taken for the second at least as often as the other way."""

    first: int
    second: int


@dataclass(frozen=True)
class Confusion:
    """The test samples of one cell, counted once for each seed."""

    cell: str
    metric: str
    """The cell is the best of those that were trained by this one."""
    seeds: tuple[int, ...]
    classes: tuple[str, ...]
    """Their names; their numbers where the data has no names."""
    counts: Counts
    """By the class that samples are of, then by the class that they were taken for; of all seeds."""
    num_samples: int
    """Of the test set."""
    worst: tuple[SeenMistake, ...]
    """The surest mistakes of any seed, each sample once."""

    @property
    def num_tested(self) -> int:
        """Over all seeds."""
        return sum(map(sum, self.counts))

    @property
    def num_right(self) -> int:
        """Over all seeds."""
        return sum(row[number] for number, row in enumerate(self.counts))

    def num_of(self, number: int) -> int:
        """Samples of one class, over all seeds."""
        return sum(self.counts[number])

    def pairs(self) -> list[ConfusedPair]:
        """Two classes of which one was taken for the other, those that were so most often first."""
        found = []
        for one, other in combinations(range(len(self.counts)), 2):
            if self.counts[one][other] >= self.counts[other][one]:
                found.append(ConfusedPair(one, other))
            else:
                found.append(ConfusedPair(other, one))
        found = [pair for pair in found if self.counts[pair.first][pair.second]]
        return sorted(found, key=lambda pair: -self.num_confused(pair))

    def num_confused(self, pair: ConfusedPair) -> int:
        """Samples of either that were taken for the other."""
        first, second = pair.first, pair.second
        return self.counts[first][second] + self.counts[second][first]


def best_confusion(evidence: Evidence) -> Confusion | None:
    """Of the setting with the best accuracy, or where none was measured with the best of what is compared
    first; None where no trial recorded any."""
    metrics = [ACCURACY] if ACCURACY in evidence.metrics else compared_metrics(evidence)[:1]
    for metric in metrics:
        for cell in _best_first(evidence, metric):
            records = _records(evidence, cell)
            if records:
                return _together(cell, metric, records)
    return None


def _best_first(evidence: Evidence, metric: str) -> list[str]:
    """The cells that learned; those in which a seed diverged come last."""
    sign = 1 if evidence.study.is_better_lower(metric) else -1

    def place(cell: str) -> tuple[bool, float]:
        values = list(evidence.values(cell, metric).values())
        finite = [value for value in values if math.isfinite(value)]
        mean = sum(finite) / len(finite) if finite else math.inf * sign
        return len(finite) < len(values) or not finite, sign * mean

    return sorted((cell.id for cell in evidence.cells if cell.id in evidence.learned), key=place)


def _records(evidence: Evidence, cell: str) -> dict[int, ConfusionRecord]:
    """By seed; only those of the same classes and as many samples as the first."""
    found: dict[int, ConfusionRecord] = {}
    for seed, learned in sorted(evidence.learned[cell].items()):
        record = learned.read_confusion() if learned.trial.state == "done" else None
        first = next(iter(found.values()), record)
        if record is not None and first is not None and _shape(record) == _shape(first):
            found[seed] = record
    return found


def _shape(record: ConfusionRecord) -> object:
    return record.num_classes, record.num_samples, record.classes


def _together(cell: str, metric: str, records: Mapping[int, ConfusionRecord]) -> Confusion:
    first = next(iter(records.values()))
    each = [record.counts for record in records.values()]
    number = range(first.num_classes)
    return Confusion(
        cell=cell,
        metric=metric,
        seeds=tuple(records),
        classes=first.classes or tuple(map(str, number)),
        counts=tuple(
            tuple(sum(one[row][column] for one in each) for column in number) for row in number
        ),
        num_samples=first.num_samples,
        worst=_surest(
            SeenMistake(seed, mistake)
            for seed, record in records.items()
            for mistake in record.worst
        ),
    )


def _surest(mistakes: Iterable[SeenMistake]) -> tuple[SeenMistake, ...]:
    by_sample: dict[int, SeenMistake] = {}
    surest = sorted(
        mistakes,
        key=lambda one: (-one.mistake.said_probability, one.mistake.true_probability, one.seed),
    )
    for one in surest:
        by_sample.setdefault(one.mistake.index, one)
    return tuple(by_sample.values())[:MOST_MISTAKES]
