"""The metrics of a run: which are compared, what they can be, and how finely they are known."""

from trainlab.analyse.evidence import Evidence
from trainlab.stats.means import SHARES, UNLIMITED, Interval
from trainlab.words.numbers import is_share

ACCURACY = "test/accuracy"
USUAL = (ACCURACY, "test/loss", "train/loss")
"""The metrics that people ask about, the most wanted first."""


def compared_metrics(evidence: Evidence) -> list[str]:
    """The usual ones, then any of the workload's own on the test set."""
    usual = [name for name in USUAL if name in evidence.metrics]
    own = [name for name in evidence.metrics if name.startswith("test/")]
    return list(dict.fromkeys([*usual, *own]))


def limits_of(metric: str) -> Interval:
    """What the metric can be at all."""
    return SHARES if is_share(metric) else UNLIMITED


def num_test_samples(evidence: Evidence) -> int | None:
    """The fewest that any learn trial was tested on; None where that is not recorded."""
    trials = (learned.trial for seeds in evidence.learned.values() for learned in seeds.values())
    return min((trial.data.num_test for trial in trials if trial.data is not None), default=None)


def resolution_of(evidence: Evidence, metric: str) -> float:
    """The step in which values of the metric come: an accuracy on n samples is a multiple of 1 / n."""
    num_samples = num_test_samples(evidence)
    return 1 / num_samples if metric == ACCURACY and num_samples else 0.0
