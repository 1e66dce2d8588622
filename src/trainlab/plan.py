"""From a study to its trials. Pure: the same study always gives the same trials in the same order."""

from typing import Literal

from pydantic import NonNegativeInt

from trainlab.spec import CostSpec, Spec, Study, TrainSpec


class Trial(Spec):
    """One cell with one seed, run once."""

    id: str
    """Names the trial's folder; unique within a run."""
    kind: Literal["learn", "cost"] = "learn"
    """*learn* answers how well it learns; *cost* what a step costs, alone in a fresh process."""
    workload: str
    seed: NonNegativeInt
    settings: TrainSpec
    cost: CostSpec | None = None
    profiled: bool = False
    """A cost trial under the profiler: it tells operators and never a speed."""


def plan(study: Study) -> tuple[Trial, ...]:
    """The trials that answer the study, in the order they should run."""
    if study.cost is not None:
        timed = [f"process{number}" for number in range(1, study.cost.processes + 1)]
        return tuple(
            Trial(
                id=f"cost-{study.cost.mode}-{name}",
                kind="cost",
                workload=study.workload,
                seed=study.seeds[0],
                settings=study.settings,
                cost=study.cost,
                profiled=name == "operators",
            )
            for name in (*timed, "operators")
        )
    return tuple(
        Trial(
            id=f"learn-seed{seed}",
            workload=study.workload,
            seed=seed,
            settings=study.settings,
        )
        for seed in study.seeds
    )
