"""Learn trials side by side: how many, with how many threads, and what one that dies does to the others."""

import os
from pathlib import Path

import pytest

import trainlab as product
from asking import study_of
from trainlab.errors import SpecError
from trainlab.execute.jobs import ONE_AT_A_TIME, Jobs, check_jobs, jobs_for, jobs_of
from trainlab.plan import plan
from trainlab.spec import CostSpec
from trainlab.train.callbacks import Instrument
from trainlab.workloads.workload import Workload


@pytest.fixture(autouse=True)
def _four_vcpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainlab.execute.jobs.usable_vcpus", lambda: 4)


def test_a_machine_never_runs_more_threads_than_it_has_vcpus(
    tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked, threads, seeds, on_cpu, fit, expected in (
        ("auto", None, 2, True, 99, Jobs(4, 1)),
        ("auto", None, 1, True, 99, ONE_AT_A_TIME),
        ("auto", None, 2, False, 99, ONE_AT_A_TIME),
        ("auto", 2, 2, True, 99, Jobs(2, 1)),
        ("auto", 3, 2, True, 99, ONE_AT_A_TIME),
        ("auto", None, 2, True, 3, Jobs(3, 1)),
        ("auto", None, 2, True, 1, ONE_AT_A_TIME),
        (1, None, 2, True, 99, ONE_AT_A_TIME),
        (2, None, 2, True, 99, Jobs(2, 2, on_gpu=2)),
        (3, None, 1, False, 0, Jobs(3, 1, on_gpu=3)),
    ):
        monkeypatch.setattr("trainlab.execute.jobs.copies_that_fit", lambda fit=fit: fit)
        study = study_of(f"{tiny_file}:tiny", {"device": "cpu"}, seeds=seeds, cost=CostSpec())
        settings = study.settings.model_copy(update={"threads": threads})
        study = study.model_copy(update={"settings": settings})
        found = jobs_for(jobs_of(asked), study, plan(study), lambda _, on_cpu=on_cpu: on_cpu)
        assert found == expected, (asked, threads, seeds, on_cpu, fit)


def test_jobs_that_cannot_be_had_are_refused_in_one_line(tiny_file: Path) -> None:
    told = "--jobs: got 5, but this machine has 4 CPUs; use at most 4"
    with pytest.raises(SpecError, match=told):
        jobs_of(5)
    study = study_of(f"{tiny_file}:tiny", {"device": "cpu"}, seeds=2)
    with pytest.raises(SpecError, match="--jobs: got 2, but --on inline runs one trial after"):
        check_jobs(2, "inline", study)
    asks_two = study.settings.model_copy(update={"threads": 2})
    study = study.model_copy(update={"settings": asks_two})
    check_jobs(2, "local", study)
    told = "--jobs: got 3, but with --threads 2 this machine has room for 2; use --jobs 2"
    with pytest.raises(SpecError, match=told):
        check_jobs(3, "local", study)


def test_objects_stay_in_this_process(tiny: Workload, tmp_path: Path) -> None:
    seen: list[int] = []

    class Watch(Instrument):
        def trial_begins(self, view: object) -> None:
            seen.append(os.getpid())

    asked = {"seeds": 2, "device": "cpu", "epochs": 1}
    run = product.run(tiny, out=tmp_path / "r", instruments=[Watch()], **asked)
    assert seen == [os.getpid()] * 2
    trials = [(trial.seed, trial.state, trial.workload) for trial in run.trials()]
    assert trials == [(1, "done", "tiny (given as an object)"), (2, "done", trials[0][2])]
    told = "--jobs: got 2, but instruments cannot go to another process; use jobs=1"
    with pytest.raises(SpecError, match=told):
        product.run(tiny, out=tmp_path / "s", jobs=2, instruments=[Watch()], **asked)
    told = "--on: got 'ray', but objects cannot go to a cluster; name the workload as FILE.py:NAME"
    with pytest.raises(SpecError, match=told):
        product.run(tiny, out=tmp_path / "s", on="ray", **asked)
