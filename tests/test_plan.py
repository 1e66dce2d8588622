import pytest

from trainlab.plan import plan
from trainlab.spec import CostSpec, Study, TrainSpec


def test_plan_makes_one_trial_per_seed_in_order() -> None:
    study = Study(name="s", workload="fashion-mlp", settings=TrainSpec(), seeds=(3, 1, 2))
    trials = plan(study)
    assert [trial.seed for trial in trials] == [3, 1, 2]
    assert len({trial.id for trial in trials}) == 3
    assert all(trial.settings == study.settings for trial in trials)


def test_the_same_study_plans_the_same_trials() -> None:
    study = Study(name="s", workload="fashion-mlp", settings=TrainSpec(), seeds=(1, 2))
    assert plan(study) == plan(Study.model_validate_json(study.model_dump_json()))


def test_cost_is_timed_in_bare_processes_before_any_is_watched() -> None:
    cost = CostSpec(processes=2)
    study = Study(name="s", workload="mnist-cnn", settings=TrainSpec(), cost=cost, learn=False)
    trials = plan(study)
    assert [trial.watch for trial in trials] == ["steps", "steps", "operators", "layers"]
    assert len({trial.id for trial in trials}) == 4
    assert all(trial.kind == "cost" and trial.weights_of is None for trial in trials)


def test_trained_and_untrained_weights_take_turns() -> None:
    cost = CostSpec(processes=2, weights="both")
    study = Study(name="s", workload="mnist-cnn", settings=TrainSpec(), seeds=(4, 5), cost=cost)
    costs = [trial for trial in plan(study) if trial.kind == "cost"]
    assert [plan(study)[0].id, plan(study)[-1].id] == ["learn-seed4", "learn-seed5"]
    assert [trial.weights_of for trial in costs] == [None, "learn-seed4"] * 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"learn": False}, "nothing to do"),
        ({"learn": False, "cost": CostSpec(weights="trained")}, "nothing is trained here"),
    ],
)
def test_a_study_that_cannot_be_answered_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Study(name="s", workload="w", settings=TrainSpec(), **given)
