"""Everything a run measured about the cost of one cell, gathered from the processes that measured it."""

from dataclasses import dataclass

from trainlab.analyse.cost.summary import CostSummary
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
    summary: CostSummary
    operators: OperatorsRecord | None
    layers: LayersRecord | None
    memory: MemoryRecord | None
    limits: LimitsRecord | None
    probe_price: ProbeCostRecord | None = None

    @property
    def is_trained(self) -> bool:
        """Whether the weights came from a learn trial of the same run."""
        return self.trial.weights_of is not None

    def cost_of(self, trial_id: str) -> CostRecord | None:
        """The raw record of one of its timed trials."""
        return dict(zip(self.processes, self.costs, strict=True)).get(trial_id)
