"""Whatever differs beyond what was asked about is named; times of two machines are not compared."""

from pathlib import Path

from fabricate import DATA, ENVIRONMENT, Fabricated, made_study
from trainlab.analysis.evidence import gather, trial_confounds
from trainlab.plan import plan
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import CostSpec

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


def test_a_device_brings_its_threads_along_a_batch_size_its_steps_an_optimizer_nothing() -> None:
    changed = {**record().resolved, "device": "cuda", "threads": 8}
    assert named(record(), record(resolved=changed), "device") == []
    steps = record(resolved={**record().resolved, "batch_size": 1, "steps_per_epoch": 9})
    assert named(record(), steps, "batch_size") == []
    assert named(record(), steps) == [
        "batch_size: 64 against 1",
        "steps_per_epoch: not set against 9",
    ]
    # An optimizer does not bring another learning rate.
    settings = {**record().settings, "optimizer": "adadelta"}
    other = record(settings=settings, resolved={**record().resolved, "lr": 1.0})
    assert named(record(), other, "optimizer") == ["lr: 0.001 against 1.0"]
    assert named(record(), other, "optimizer", "lr") == []


def test_what_a_setting_became_counts_and_other_settings_and_data_are_named_once() -> None:
    asked = record(settings={**record().settings, "device": "cpu", "threads": 1})
    assert named(record(), asked) == []
    settings = {**record().settings, "epochs": 9}
    data = DATA.model_copy(update={"is_subset": True, "num_train": 96})
    assert named(record(), record(settings=settings, data=data)) == [
        "epochs: 2 against 9",
        "data.is_subset: False against True",
        "data.num_train: 960 against 96",
    ]


def test_cost_that_another_machine_measured_is_left_out_and_named(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": (1, 64)}, seeds=1, cost=CostSpec(processes=3))
    run = Fabricated().write(tmp_path / "r", study)
    other = run.write_environment(ENVIRONMENT.model_copy(update={"host": "spare"}))
    moved = "cost-train-batch_size=1-process3"
    assert gather(run).damaged == ()
    trial = run.trial(moved).read()
    run.trial(moved).write(trial.model_copy(update={"environment": other}))
    evidence = gather(run)
    told = [(one.trial, one.reason) for one in evidence.damaged]
    reason = f"{moved}: measured on spare, most others on {ENVIRONMENT.host}"
    assert told == [(moved, reason)]
    assert {len(m.processes) for m in evidence.measured_in("train")} == {2, 3}
