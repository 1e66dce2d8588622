"""One comparison of a gate: a figure of a setting, before and now."""

from dataclasses import dataclass

from trainlab.analysis.measurement import Reason
from trainlab.stats.means import Interval
from trainlab.stats.one_sided import Judgement

COST_SUBJECT = "step_ms"
USUAL_STD = 0.03
"""Of the log time of a process, for planning where two processes are not there to show it."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One figure of one cell in both runs."""

    cell: str
    subject: str
    """`train/step_ms`, `inference/step_ms`, or a metric."""
    baseline: float | None
    """Geometric mean over processes for a time, mean over the seeds of both for a metric; None without."""
    run: float | None
    change: float | None
    """How many times as long for a time, run less baseline for a metric."""
    margin: float
    """A share of the time, or an amount of the metric."""
    num_baseline: int
    """Processes, or seeds."""
    num_run: int
    interval: Interval | None = None
    """Of the change: each end is a bound on its side alone, the one that decides. None where too few show
    how much they vary."""
    verdict: Judgement = "cannot tell"
    needed: int | None = None
    """Processes, or seeds, of each run that would decide if the change is as it was seen; None: decided, or
    it cannot be said."""
    needed_unchanged: int | None = None
    """The same if nothing has changed."""
    has_diverged: bool = False
    """Of a metric: whether a larger share of seeds diverged in one run than in the other, which no number
    of seeds makes up for."""

    @property
    def is_cost(self) -> bool:
        """Whether it is the time of a step; otherwise a metric."""
        return self.subject.endswith(f"/{COST_SUBJECT}")


@dataclass(frozen=True)
class Disturbance:
    """Something else that ran while a run was timed: its times may be too long for that reason alone."""

    run: str
    """The run folder."""
    reason: Reason
    cores: float
