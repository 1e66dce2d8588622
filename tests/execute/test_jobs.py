"""Learn trials side by side: how many, with how many threads, and what one that dies does to the others."""

import json
import os
import signal
import threading
import time
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

import trainlab as product
from asking import groups_of, study_of
from children import children
from command import Verb
from trainlab.errors import SpecError
from trainlab.execute import executors as processes
from trainlab.execute.executors import executor_for
from trainlab.execute.jobs import ONE_AT_A_TIME, Jobs, check_jobs, jobs_for, jobs_of
from trainlab.execute.planned_run import start_run
from trainlab.plan import Group, plan
from trainlab.record.run_folder import RunFolder
from trainlab.spec import CostSpec
from trainlab.train.callbacks import Instrument
from trainlab.train.loader import Loader
from trainlab.workloads.workload import Workload


@pytest.fixture(autouse=True)
def _four_vcpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainlab.execute.jobs.usable_vcpus", lambda: 4)


def started(tiny_file: Path, out: Path, seeds: int = 2, **settings: object) -> RunFolder:
    asked = {"device": "cpu", "epochs": 1, **settings}
    return start_run(study_of(f"{tiny_file}:tiny", asked, seeds=seeds, tensorboard=False), out)


def run_all(run: RunFolder, jobs: int = 2) -> None:
    with closing(executor_for("local", Loader(), jobs=jobs)) as executor:
        executor.run(run, groups_of(run), lambda: False)


@pytest.mark.parametrize(
    ("asked", "threads", "seeds", "on_cpu", "fit", "expected"),
    [
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
    ],
)
def test_a_machine_never_runs_more_threads_than_it_has_vcpus(
    asked: int | str,
    threads: int | None,
    seeds: int,
    on_cpu: bool,
    fit: int,
    expected: Jobs,
    tiny_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainlab.execute.jobs.copies_that_fit", lambda: fit)
    study = study_of(f"{tiny_file}:tiny", {"device": "cpu"}, seeds=seeds, cost=CostSpec())
    cell = study.settings.model_copy(update={"threads": threads})
    study = study.model_copy(update={"settings": cell})
    assert jobs_for(jobs_of(asked), study, plan(study), lambda _: on_cpu) == expected


def test_a_study_of_both_devices_fills_the_vcpus_and_runs_one_at_a_time_on_the_gpu(
    tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_on_cpu(group: Group) -> bool:
        return group.trials[0].settings.batch_size == 8

    monkeypatch.setattr("trainlab.execute.jobs.copies_that_fit", lambda: 99)
    monkeypatch.setattr(processes, "_is_on_cpu", is_on_cpu)
    study = study_of(f"{tiny_file}:tiny", {}, vary={"batch_size": [8, 16]}, seeds=4)
    groups = plan(study)
    jobs = jobs_for("auto", study, groups, is_on_cpu)
    assert jobs == Jobs(4, 1, on_gpu=1)
    waiting, running, most = list(groups), list[Group](), 0
    while waiting or running:
        while group := processes._next(waiting, running, jobs):
            running.append(group)
            waiting.remove(group)
        most = max(most, len(running))
        assert sum(not is_on_cpu(group) for group in running) <= 1
        running.pop(0)
    assert most == 4


def test_jobs_that_cannot_be_had_are_refused_in_one_line(tiny_file: Path) -> None:
    with pytest.raises(
        SpecError, match="--jobs: got 5, but this machine has 4 CPUs; use at most 4"
    ):
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

    product.run(tiny, seeds=2, device="cpu", epochs=1, out=tmp_path / "r", instruments=[Watch()])
    assert seen == [os.getpid()] * 2
    told = "--jobs: got 2, but instruments cannot go to another process; use jobs=1"
    with pytest.raises(SpecError, match=told):
        product.run(tiny, seeds=2, device="cpu", out=tmp_path / "s", jobs=2, instruments=[Watch()])
    told = "--on: got 'ray', but objects cannot go to a cluster; name the workload as FILE.py:NAME"
    with pytest.raises(SpecError, match=told):
        product.run(tiny, seeds=2, device="cpu", out=tmp_path / "s", on="ray")


@pytest.mark.slow
def test_curves_are_the_same_side_by_side_and_one_after_the_other(
    tiny_file: Path, tmp_path: Path
) -> None:
    def curve_lines(jobs: int) -> list[str]:
        run = started(tiny_file, tmp_path / f"jobs{jobs}", seeds=3, threads=1)
        run_all(run, jobs)
        assert {trial.resolved["threads"] for trial in run.trials()} == {1}
        lines = [line for trial in run.trials() for line in run.trial(trial.id).curve()]
        timeless = [{n: v for n, v in one.items() if not n.endswith("_s")} for one in lines]
        return [json.dumps(one) for one in timeless]

    first = curve_lines(1)
    assert len(first) >= 3
    assert curve_lines(2) == first


@pytest.mark.slow
def test_trials_run_at_the_same_time_with_their_share_of_threads(
    tiny_file: Path, tmp_path: Path
) -> None:
    spans = tmp_path / "spans"
    spans.mkdir()
    waiting = f"""
import os, pathlib, time
def meet(choice):
    here = pathlib.Path({str(spans)!r})
    (here / str(os.getpid())).touch()
    end = time.monotonic() + 60
    while len(list(here.iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    return data(choice)
"""
    run = started(tiny_file, tmp_path / "r")
    text = tiny_file.read_text().replace("data=data", "data=meet")
    tiny_file.write_text(text.replace("tiny = Workload", f"{waiting}\ntiny = Workload"))
    start_s = time.monotonic()
    run_all(run)
    assert time.monotonic() - start_s < 60, "each waited for the other in vain"
    assert len(list(spans.iterdir())) == 2
    assert [trial.resolved["threads"] for trial in run.trials()] == [2, 2]


@pytest.mark.parametrize(
    ("act", "told", "attempts"),
    [
        ("os._exit(3)", "its process ended with code 3", 1),
        ("__import__('ctypes').string_at(0)", "its process was ended by SIGSEGV", 1),
        # It may have been somebody else: such a trial is tried once more.
        ("os.kill(os.getpid(), 9)", "its process was ended by SIGKILL", 2),
    ],
)
@pytest.mark.slow
def test_a_trial_whose_process_dies_is_the_only_one_that_fails(
    act: str, told: str, attempts: int, tiny_file: Path, tmp_path: Path
) -> None:
    dying = f"""
import dataclasses, os
def dies(hidden=8):
    if hidden == 5:
        {act}
    return model(hidden)
"""
    study = study_of(
        f"{tiny_file}:tiny",
        {"device": "cpu", "epochs": 1},
        vary={"hidden": [4, 5, 6]},
        tensorboard=False,
    )
    run = start_run(study, tmp_path / "r")
    tiny_file.write_text(
        f"{tiny_file.read_text()}\n{dying}\ntiny = dataclasses.replace(tiny, model=dies)\n"
    )
    run_all(run)
    for trial in run.trials():
        assert trial.state == ("failed" if trial.cell == "hidden=5" else "done"), trial.id
        if trial.error is not None:
            assert trial.error.message == told
        assert trial.attempt == (attempts if trial.cell == "hidden=5" else 1)


@pytest.mark.slow
def test_short_trials_share_processes_and_one_that_crashes_still_fails_alone(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SHORT_S", 60.0)
    monkeypatch.setattr(processes, "IN_TURN_S", 600.0)
    crashing = """
import dataclasses, os, random
def crashes(hidden=8):
    made = model(hidden)
    if hidden == 5 and random.random() < 0.3:  # as the seed of the weights has it
        os._exit(3)
    return made
tiny = dataclasses.replace(tiny, model=crashes)
"""
    study = study_of(
        f"{tiny_file}:tiny",
        {"device": "cpu", "epochs": 1},
        seeds=16,
        vary={"hidden": [4, 5]},
        tensorboard=False,
    )
    run = start_run(study, tmp_path / "r")
    tiny_file.write_text(f"{tiny_file.read_text()}\n{crashing}")
    run_all(run)
    lines = [file.read_text().splitlines() for file in (run.path / "events").glob("*.jsonl")]
    events = [json.loads(line) for line in chain(*lines)]
    sizes = [len(event["trials"]) for event in events if event["kind"] == "group_begins"]
    assert max(sizes) > 2
    failed = [trial for trial in run.trials() if trial.state == "failed"]
    assert 0 < len(failed) < 16
    assert {trial.cell for trial in failed} == {"hidden=5"}
    assert {trial.state for trial in run.trials() if trial.cell == "hidden=4"} == {"done"}
    assert {trial.error.message for trial in failed if trial.error} == {
        "its process ended with code 3"
    }


@pytest.mark.slow
def test_an_interrupt_ends_all_that_run_and_starts_no_more(tiny_file: Path, tmp_path: Path) -> None:
    run = started(tiny_file, tmp_path / "r", seeds=3)
    tiny_file.write_text(
        f"{tiny_file.read_text()}\nimport dataclasses, time\n"
        "tiny = dataclasses.replace(tiny, loss=lambda *given: time.sleep(600))\n"
    )
    before = set(children())

    def interrupt() -> None:
        while [trial.state for trial in run.trials()].count("running") < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    # The tests themselves may have been started with the signal ignored (in the background).
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run_all(run)
    finally:
        signal.signal(signal.SIGINT, handler)
    thread.join()
    assert sorted(t.state for t in run.trials()) == ["interrupted", "interrupted", "pending"]
    assert set(children()) == before


@pytest.mark.slow
def test_seeds_that_are_added_get_the_same_threads(
    trainlab: Verb, tiny_file: Path, tmp_path: Path
) -> None:
    words = ["run", f"{tiny_file}:tiny", "--vary", "hidden=8,9", "--seeds", "2", "--no-report"]
    words += ["--until-decided", "--max-seeds", "3", "--device", "cpu", "--no-tensorboard"]
    trainlab(*words, "--jobs", "4", "--out", tmp_path / "r")
    trials = RunFolder(tmp_path / "r").trials()
    assert len(trials) == 6
    assert {trial.resolved["threads"] for trial in trials} == {1}
