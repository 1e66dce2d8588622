"""Everything a run measured about the cost of one cell, gathered from the processes that measured it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainlab.analyse.cost.summary import CostSummary, summarise
from trainlab.record.cost import (
    CostRecord,
    LayersRecord,
    LimitsRecord,
    MemoryRecord,
    OperatorsRecord,
    ProbePriceRecord,
)
from trainlab.record.folder import RunFolder
from trainlab.record.schema import TrialRecord


@dataclass(frozen=True)
class Measurement:
    """One cell in one mode. Speeds come from the bare processes, shares from the watched ones."""

    trial: TrialRecord
    """The first of its timed trials: settings and what they became."""
    processes: tuple[str, ...]
    """The timed trials, by id."""
    costs: tuple[CostRecord, ...]
    """One per timed process."""
    summary: CostSummary
    operators: OperatorsRecord | None
    layers: LayersRecord | None
    memory: MemoryRecord | None
    limits: LimitsRecord | None
    probe_price: ProbePriceRecord | None = None

    @property
    def is_trained(self) -> bool:
        """Whether the weights came from a learn trial of the same run."""
        return self.trial.weights_of is not None

    def cost_of(self, trial_id: str) -> CostRecord | None:
        """The raw record of one of its timed trials."""
        return dict(zip(self.processes, self.costs, strict=True)).get(trial_id)


def measurements(folder: RunFolder) -> list[Measurement]:
    """One per cell, mode and weights, in the order planned; those without a timed process are left out."""
    return measurements_of(folder, folder.trials())


def measurements_of(folder: RunFolder, trials: Iterable[TrialRecord]) -> list[Measurement]:
    """The same, from trials that have been read already."""
    groups: dict[str, list[TrialRecord]] = {}
    for trial in trials:
        if trial.kind == "cost" and trial.state == "done":
            groups.setdefault(_cell(trial), []).append(trial)
    return [found for group in groups.values() if (found := _gathered(folder, group))]


def _cell(trial: TrialRecord) -> str:
    assert trial.cost is not None
    return repr((trial.cell, trial.again, trial.cost["mode"], trial.weights_of))


def _gathered(folder: RunFolder, trials: Sequence[TrialRecord]) -> Measurement | None:
    timed = [trial for trial in trials if trial.watch == "steps"]
    if not timed:
        return None
    costs = tuple(folder.trial(trial.id).cost.read() for trial in timed)
    homes = {trial.watch: folder.trial(trial.id) for trial in trials}
    operators, layers = homes.get("operators"), homes.get("layers")
    return Measurement(
        trial=timed[0],
        processes=tuple(trial.id for trial in timed),
        costs=costs,
        summary=summarise(costs),
        operators=None if operators is None else operators.operators.read(),
        layers=None if layers is None else layers.layers.read(),
        memory=None if layers is None else layers.memory.read(),
        limits=None if layers is None else layers.limits.read(),
        probe_price=(
            layers.probe_price.read()
            if layers is not None and layers.probe_price.exists()
            else None
        ),
    )
