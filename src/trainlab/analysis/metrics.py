"""The metrics of a run: which are compared, what they can be, and how finely they are known."""

import math
from collections.abc import Iterable

from trainlab.analysis.evidence import Evidence
from trainlab.spec.study import lower_is_better
from trainlab.stats.means import NOT_NEGATIVE, SHARES, UNLIMITED, Interval
from trainlab.words.numbers import is_share

ACCURACY = "test/accuracy"
USUAL = (ACCURACY, "test/loss", "train/loss")
"""The metrics that people ask about, the most wanted first."""


OF_ONE = frozenset(
    {"f1", "auc", "auroc", "roc_auc", "precision", "recall", "iou", "dice", "map", "specificity"}
)
"""Metrics of the usual names that lie between 0 and 1."""


def compared_metrics(evidence: Evidence) -> list[str]:
    """Those of the run that are compared, the most wanted first. Losses of different losses are not."""
    names = in_order(evidence.metrics)
    if any(factor.startswith("loss.") for factor in evidence.factors):
        return [name for name in names if not name.endswith("/loss")]
    return names


def in_order(metrics: Iterable[str]) -> list[str]:
    """The usual ones, then any of the workload's own on the test set; where there are none of that, as in
    scripts that know only a validation set, those on it."""
    names = list(metrics)
    usual = [name for name in USUAL if name in names]
    part = "test/" if any(name.startswith("test/") for name in names) else "val/"
    return list(dict.fromkeys([*usual, *(name for name in names if name.startswith(part))]))


def limits_of(metric: str, values: Iterable[float] = ()) -> Interval:
    """What the metric can be at all: a share is one of 1, unless its values are in per cent, and a loss or
    an error of which none of the values is negative is taken to have no negative ones."""
    finite = [value for value in values if math.isfinite(value)]
    if is_share(metric) or metric.rpartition("/")[2].lower() in OF_ONE:
        return SHARES if max(finite, default=0.0) <= 1 else UNLIMITED
    if finite and min(finite) >= 0 and lower_is_better(metric):
        return NOT_NEGATIVE
    return UNLIMITED


def num_test_samples(evidence: Evidence) -> int | None:
    """The fewest that any learn trial was tested on; None where that is not recorded."""
    trials = (learned.trial for seeds in evidence.learned.values() for learned in seeds.values())
    return min((trial.data.num_test for trial in trials if trial.data is not None), default=None)


def resolution_of(evidence: Evidence, metric: str) -> float:
    """The step in which values of the metric come: an accuracy on n samples is a multiple of 1 / n."""
    num_samples = num_test_samples(evidence)
    return 1 / num_samples if metric == ACCURACY and num_samples else 0.0
