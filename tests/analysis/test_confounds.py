"""Whatever differs beyond what was asked about is named."""

from fabricate import DATA, ENVIRONMENT, Fabricated, made_study
from trainlab.analysis.evidence import pooling_problems, run_confounds, trial_confounds
from trainlab.plan import plan
from trainlab.record.trial_record import TrialRecord

NOTHING: frozenset[str] = frozenset()


def record(**update: object) -> TrialRecord:
    (trial,) = plan(made_study())[0].trials
    resolved = {"device": "cpu", "threads": 1, "lr": 0.001, "batch_size": 64}
    made = TrialRecord(**trial.model_dump(mode="json")).model_copy(
        update={"resolved": resolved, "data": DATA}
    )
    return made.model_copy(update=update)


def named(first: TrialRecord, second: TrialRecord, *factors: str) -> list[str]:
    return [str(one) for one in trial_confounds(first, second, frozenset(factors))]


def test_threads_that_differ_are_named_unless_they_are_the_factor() -> None:
    other = record(resolved={**record().resolved, "threads": 2})
    assert named(record(), other, "lr") == ["threads: 1 against 2"]
    assert named(record(), other, "threads") == named(record(), record()) == []


def test_a_device_brings_its_threads_along_and_a_batch_size_its_steps() -> None:
    changed = {**record().resolved, "device": "cuda", "threads": 8}
    assert named(record(), record(resolved=changed), "device") == []
    steps = record(resolved={**record().resolved, "batch_size": 1, "steps_per_epoch": 9})
    assert named(record(), steps, "batch_size") == []
    assert named(record(), steps) == [
        "batch_size: 64 against 1",
        "steps_per_epoch: not set against 9",
    ]


def test_an_optimizer_does_not_bring_another_learning_rate() -> None:
    settings = {**record().settings, "optimizer": "adadelta"}
    other = record(settings=settings, resolved={**record().resolved, "lr": 1.0})
    assert named(record(), other, "optimizer") == ["lr: 0.001 against 1.0"]
    assert named(record(), other, "optimizer", "lr") == []


def test_what_a_setting_became_counts_not_how_it_was_asked() -> None:
    asked = record(settings={**record().settings, "device": "cpu", "threads": 1})
    assert named(record(), asked) == []


def test_other_settings_and_other_data_are_named_once() -> None:
    settings = {**record().settings, "epochs": 9}
    data = DATA.model_copy(update={"is_subset": True, "num_train": 96})
    assert named(record(), record(settings=settings, data=data)) == [
        "epochs: 2 against 9",
        "data.is_subset: False against True",
        "data.num_train: 960 against 96",
    ]


def test_another_torch_is_named_between_runs() -> None:
    """What forbids pooling is told in test_side_by_side."""
    packages = {**ENVIRONMENT.packages, "torch": "2.10.0"}
    other = ENVIRONMENT.model_copy(update={"packages": packages, "git_dirty": True})
    assert [str(one) for one in run_confounds(ENVIRONMENT, other)] == [
        "packages.torch: 2.9.0+cpu against 2.10.0",
        "git_dirty: False against True",
    ]
    assert pooling_problems(ENVIRONMENT, Fabricated().environment) == ()
