"""What the test set shows: how well an accuracy is known from its size, and which classes are confused."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainlab.analysis.classes.confusion import best_confusion
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding
from trainlab.analysis.metric_table import MetricTable
from trainlab.analysis.metrics import num_test_samples
from trainlab.words import Words
from trainlab.words.numbers import is_share, metric_value, percent


@dataclass(frozen=True, kw_only=True)
class SamplingError(Finding):
    """How well an accuracy is known from the number of test samples alone."""

    kind = "test_set"
    text = "test_set"
    section = "method"

    num_samples: int
    value: float
    """The accuracy it is computed for, that of the best cell."""
    half_width: float
    """Of its 95% interval over test sets of this size."""
    half_width_difference: float
    """Of the difference of two such accuracies; less where both settings fail on the same samples."""

    def phrases(self, words: Words) -> dict[str, object]:
        def points(value: float) -> str:
            return self.difference_text(words, value).lstrip("+")

        return super().phrases(words) | {
            "value_text": metric_value(self.subject, self.value),
            "error_text": points(self.half_width),
            "difference_text": points(self.half_width_difference),
        }


@dataclass(frozen=True, kw_only=True)
class ConfusedClasses(Finding):
    """The two classes that the best setting confuses most often."""

    kind = "confused_classes"
    section = "classes"

    first: str
    """The class whose samples are taken for the second at least as often as the other way."""
    second: str
    num_taken: int
    """Samples of the first that were taken for the second; this and the next over all seeds."""
    num_first: int
    """Samples of the first."""
    num_other_way: int
    num_second: int
    num_wrong: int
    """Samples of any class that were taken for another."""
    share: float
    """Of these, those of the two classes that were taken for each other."""
    num_tested: int
    num_samples: int
    """Of the test set, which every seed is tested on."""
    num_settings: int

    def statement(self, words: Words) -> str:
        where = self.fill(words, "confused_where") if self.num_settings > 1 else ""
        each = "confused_of_one" if self.n == 1 else "confused_of_some"
        counted = self.fill(words, each)
        return self.fill(
            words, self.kind, where=where, counted=counted, share_text=percent(self.share)
        )

    def phrases(self, words: Words) -> dict[str, object]:
        return super().phrases(words) | {"first": self.first, "second": self.second}


def confused_findings(evidence: Evidence) -> Iterator[Finding]:
    """One, where the test set has classes and a sample was taken for the wrong one."""
    confusion = best_confusion(evidence)
    if confusion is None:
        return
    for pair in confusion.pairs()[:1]:
        counts = confusion.counts
        num_wrong = confusion.num_tested - confusion.num_right
        yield ConfusedClasses(
            subject=confusion.metric,
            cells=(confusion.cell,),
            first=confusion.classes[pair.first],
            second=confusion.classes[pair.second],
            num_taken=counts[pair.first][pair.second],
            num_first=confusion.num_of(pair.first),
            num_other_way=counts[pair.second][pair.first],
            num_second=confusion.num_of(pair.second),
            num_wrong=num_wrong,
            share=confusion.num_confused(pair) / num_wrong,
            num_tested=confusion.num_tested,
            num_samples=confusion.num_samples,
            num_settings=len(evidence.learned),
            n=len(confusion.seeds),
        )


def sampling_findings(evidence: Evidence, table: MetricTable) -> Iterator[Finding]:
    """For the best of the cells, where the metric is an accuracy."""
    num_samples = num_test_samples(evidence)
    if not is_share(table.metric) or not num_samples or not table.cells:
        return
    value = float(np.nanmax(table.means))
    if not 0 <= value <= 1:
        return  # no share, whatever its name says
    # Two right and two wrong more: without them nothing would be left to chance at 100%.
    share = (value * num_samples + 2) / (num_samples + 4)
    # Both test sets are drawn: this one and the other.
    half_width = 1.96 * math.sqrt(2 * share * (1 - share) / num_samples)
    yield SamplingError(
        subject=table.metric,
        cells=(),
        num_samples=num_samples,
        value=value,
        half_width=half_width,
        half_width_difference=math.sqrt(2) * half_width,
        n=num_samples,
    )
