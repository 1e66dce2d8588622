"""Study: a question about a workload, resolved into cells, with everything needed to answer it."""

from collections import Counter

from pydantic import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from trainlab.spec.base import RunName, Spec
from trainlab.spec.cell import BASE, Cell
from trainlab.spec.cost import CostSpec
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.script import ScriptSpec
from trainlab.spec.settings import TrainSpec
from trainlab.spec.target import WrittenTarget, lower_is_better


class Study(Spec):
    """One workload, its cells and the seeds to repeat each with."""

    name: RunName
    """Names the run folder."""
    title: str = ""
    """The question in words."""
    workload: str
    """A built-in workload's name, or `file.py:name` of your own."""
    settings: TrainSpec
    """The base, and all there is where nothing varies."""
    cells: tuple[Cell, ...] = ()
    """Every combination of levels that is compared; empty: the base alone."""
    same_as_base: tuple[str, ...] = ()
    """Cells that were asked for and are no other than the base: it stands for them."""
    seeds: tuple[NonNegativeInt, ...] = (1,)
    """One learn trial per cell and seed; initial weights, data order and dropout derive from it alone."""
    looks: tuple[PositiveInt, ...] = ()
    """Numbers of seeds after which verdicts are made, where seeds are added until all is decided; the
    error rate holds over all of them. Empty: one look, at the end."""
    learn: bool = True
    """Train every cell, once per seed."""
    cost: CostSpec | None = None
    """Measure what a step costs in every cell, in fresh processes."""
    targets: dict[str, WrittenTarget] = {}
    """Metric to the value whose reaching is timed."""
    higher_is_better: dict[str, bool] = {}
    """Of the metrics that say so themselves; of others it follows from their name."""
    margins: dict[str, PositiveFloat] = {}
    """Metric to the difference that would not matter."""
    spreads: dict[str, dict[str, PositiveFloat]] = {}
    """Standard deviation between seeds where it is known, by data (full, bundled) and metric: what can be
    shown is then said before training."""
    script: ScriptSpec | None = None
    """The script that is watched, where the study is of one; `workload` is then its file."""
    probes: tuple[ProbeSpec, ...] = ()
    """What to watch inside the network while it trains, as "relu:grad_input:sq_sum"."""
    tensorboard: bool = True
    """Write TensorBoard event files beside the records."""
    save_model: bool = False
    """Keep the trained weights."""

    def is_better_lower(self, metric: str) -> bool:
        """Whether a metric, as `test/auc`, is better when lower."""
        higher = self.higher_is_better.get(metric.rpartition("/")[2])
        return lower_is_better(metric) if higher is None else not higher

    @property
    def all_cells(self) -> tuple[Cell, ...]:
        """The cells, at least the base."""
        return self.cells or (Cell(id=BASE, settings=self.settings),)

    @property
    def num_learn(self) -> int:
        """Learn trials that are planned."""
        return len(self.all_cells) * len(self.seeds) if self.learn else 0

    @property
    def factors(self) -> tuple[str, ...]:
        """What varies, in the order asked."""
        return tuple(dict.fromkeys(name for cell in self.cells for name in cell.levels))

    @property
    def keeps_weights(self) -> bool:
        """Whether learn trials must leave their trained weights behind."""
        return self.save_model or (self.cost is not None and self.cost.weights != "untrained")

    @model_validator(mode="after")
    def _can_be_answered(self) -> "Study":
        if self.cost is None and not self.learn:
            raise ValueError(
                "learn: got false without a cost: there is nothing to do; add [cost] or leave it out"
            )
        if self.save_model and not self.learn:
            raise ValueError("save_model: got true, but nothing is trained here; leave it out")
        if self.cost is not None and self.cost.weights != "untrained" and not self.learn:
            raise ValueError(
                f"cost.weights: got {self.cost.weights}, but nothing is trained here; "
                "use `trainlab run … --profile`"
            )
        return self

    @field_validator("seeds")
    @classmethod
    def _seeds_are_distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if not seeds:
            raise ValueError("got none, must be at least one")
        twice = sorted(seed for seed, count in Counter(seeds).items() if count > 1)
        if twice:
            raise ValueError(f"got {twice[0]} twice, seeds must differ")
        return seeds
