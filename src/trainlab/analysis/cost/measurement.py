"""Everything a run measured about the cost of one cell, gathered from the processes that measured it."""

from dataclasses import dataclass

from trainlab.analysis.cost.summary import CostSummary
from trainlab.record.cost import (
    CostRecord,
    LayersRecord,
    LimitsRecord,
    MemoryRecord,
    OperatorsRecord,
    ProbeCostRecord,
)
from trainlab.record.trial import TrialRecord

MODES = ("train", "inference")


@dataclass(frozen=True)
class Measurement:
    """One cell in one mode. Speeds come from the bare processes, shares from the watched ones."""

    trial: TrialRecord
    """The first of its timed trials: its settings and what they became."""
    processes: tuple[str, ...]
    """The timed trials, by id."""
    costs: tuple[CostRecord, ...]
    """One per timed process."""
    process_ms: tuple[float, ...]
    """The step of each timed process, seen within the rounds of its bench."""
    summary: CostSummary
    operators: OperatorsRecord | None
    layers: LayersRecord | None
    memory: MemoryRecord | None
    limits: LimitsRecord | None
    probe_price: ProbeCostRecord | None = None

    @property
    def benches(self) -> tuple[str, ...]:
        """The bench of each timed process; in runs from before turns, its number."""
        return tuple(cost.bench or str(number) for number, cost in enumerate(self.costs, 1))

    @property
    def is_trained(self) -> bool:
        """Whether the weights came from a learn trial of the same run."""
        return self.trial.weights_of is not None

    @property
    def is_of_script(self) -> bool:
        """Whether a script was timed: its trials have the settings alone that it was given."""
        return "optimizer" not in self.trial.settings

    @property
    def accumulates(self) -> bool:
        """Whether a script's update is made of several batches: its batch size is then that of all."""
        return "accumulate" in self.trial.resolved

    @property
    def knows_epochs(self) -> bool:
        """Whether it is known how many steps a pass over the data has: a script may have no loader."""
        return not self.is_of_script or "train_samples" in self.trial.resolved

    def cost_of(self, trial_id: str) -> CostRecord | None:
        """The raw record of one of its timed trials."""
        return dict(zip(self.processes, self.costs, strict=True)).get(trial_id)

    def step_ms_of(self, trial_id: str) -> float:
        """The step of one of its timed trials."""
        return dict(zip(self.processes, self.process_ms, strict=True))[trial_id]
