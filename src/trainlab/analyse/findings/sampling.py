"""How well an accuracy is known from the number of test samples alone: they are drawn too."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainlab.analyse.evidence import Evidence
from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.metric_table import MetricTable
from trainlab.analyse.metrics import num_test_samples
from trainlab.words import Words
from trainlab.words.numbers import is_share, metric_value


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
