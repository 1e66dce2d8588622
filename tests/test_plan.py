from trainlab.plan import plan
from trainlab.spec import Study, TrainSpec


def test_plan_makes_one_trial_per_seed_in_order() -> None:
    study = Study(name="s", workload="fashion-mlp", settings=TrainSpec(), seeds=(3, 1, 2))
    trials = plan(study)
    assert [trial.seed for trial in trials] == [3, 1, 2]
    assert len({trial.id for trial in trials}) == 3
    assert all(trial.settings == study.settings for trial in trials)


def test_the_same_study_plans_the_same_trials() -> None:
    study = Study(name="s", workload="fashion-mlp", settings=TrainSpec(), seeds=(1, 2))
    assert plan(study) == plan(Study.model_validate_json(study.model_dump_json()))
