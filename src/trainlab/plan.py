"""From a study to its trials. Pure: the same study always gives the same trials in the same order."""

from typing import Literal

from pydantic import NonNegativeInt

from trainlab.spec import Spec, Study, TrainSpec


class Trial(Spec):
    """One cell with one seed, run once."""

    id: str
    """Names the trial's folder; unique within a run."""
    kind: Literal["learn"] = "learn"
    """*learn* trials answer how well it learns."""
    workload: str
    seed: NonNegativeInt
    settings: TrainSpec


def plan(study: Study) -> tuple[Trial, ...]:
    """The trials that answer the study, in the order they should run."""
    return tuple(
        Trial(
            id=f"learn-seed{seed}",
            workload=study.workload,
            seed=seed,
            settings=study.settings,
        )
        for seed in study.seeds
    )
