"""From a study to its trials. Pure: the same study always gives the same trials in the same order."""

from typing import Literal

from pydantic import NonNegativeInt

from trainlab.spec import CostSpec, Spec, Study, TrainSpec

Watch = Literal["steps", "operators", "layers"]


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
    watch: Watch | None = None
    """What a cost trial looks at. Only `steps` runs bare and supplies speeds; the others tell shares."""
    weights_of: str | None = None
    """The learn trial whose trained weights a cost trial starts from."""


def plan(study: Study) -> tuple[Trial, ...]:
    """The trials that answer the study, in the order they should run."""
    return (*_learn_trials(study), *_cost_trials(study))


def _learn_trials(study: Study) -> list[Trial]:
    if not study.learn:
        return []
    return [
        Trial(
            id=f"learn-seed{seed}",
            workload=study.workload,
            seed=seed,
            settings=study.settings,
        )
        for seed in study.seeds
    ]


def _cost_trials(study: Study) -> list[Trial]:
    """Timed processes first, so that no profiler has warmed or worn the machine before them."""
    if study.cost is None:
        return []
    seed, cost = study.seeds[0], study.cost
    sources = {"untrained": None, "trained": f"learn-seed{seed}"}
    chosen = sources if cost.weights == "both" else {cost.weights: sources[cost.weights]}
    looks: list[tuple[Watch, str]] = [
        ("steps", f"process{number}") for number in range(1, cost.processes + 1)
    ]
    looks += [("operators", "operators"), ("layers", "layers")]
    return [
        Trial(
            id=f"cost-{cost.mode}-{weights}-{name}",
            kind="cost",
            workload=study.workload,
            seed=seed,
            settings=study.settings,
            cost=cost,
            watch=watch,
            weights_of=source,
        )
        for watch, name in looks
        for weights, source in chosen.items()
    ]
