"""Trials whose code does the worst: each ends by itself, its record says how, and the others train."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from asking import groups_of, study_of
from trainlab.execute import launch
from trainlab.execute.executors import executor_for
from trainlab.execute.planned_run import start_run
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import CostSpec
from trainlab.train.loader import Loader

FAULTS = {
    "none": "pass",
    "hangs": "time.sleep(600)",
    "exits": "sys.exit(0)",
    "leaves": "os._exit(0)",
    "crashes": "ctypes.string_at(0)",
    "killed": "os.kill(os.getpid(), 9) if not once('killed') else None",
    "told to end": "os.kill(os.getpid(), 15) if not once('told') else None",
    "always killed": "os.kill(os.getpid(), 9)",
    "lacks memory": "resource.setrlimit(resource.RLIMIT_AS, (2**36, 2**36)), torch.empty(2**40)",
    "asks": "input()",
    "prints": "print('\\ud800', 'x' * 3_000_000, 'the end'), os._exit(3)",
    "goes away": "os.chdir('/')",
}

DOING = """
import ctypes, dataclasses, os, pathlib, resource, subprocess, sys, time
def once(name):
    mark = pathlib.Path(MARKS, name)
    was_there = mark.exists()
    mark.touch()
    return was_there
def faulty_model(fault="none"):
    global current
    current = fault
    return model()
def faulty_loss(outputs, targets):
    exec(FAULTS[current])
    return F.cross_entropy(outputs, targets)
faulty = dataclasses.replace(tiny, model=faulty_model, loss=faulty_loss)
"""


@pytest.fixture
def faulty(tiny_file: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A workload whose parameter `fault` says what happens when it trains; two trials run at a time."""
    monkeypatch.setattr("trainlab.execute.jobs.usable_vcpus", lambda: 2)
    # Another for every test: the server would be started anew.
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    marks = tiny_file.parent / "marks"
    marks.mkdir()
    known = f"MARKS, FAULTS = {str(marks)!r}, {FAULTS!r}\n"
    tiny_file.write_text(tiny_file.read_text() + known + DOING)
    return f"{tiny_file}:faulty"


def started(workload: str, out: Path, faults: list[str]) -> RunFolder:
    settings = {"device": "cpu", "threads": 1, "epochs": 1, "engine": "eager"}
    asked = {"vary": {"fault": faults}, "tensorboard": False, "name": "faults"}
    return start_run(study_of(workload, settings, **asked), out)


def run_groups(folder: RunFolder, groups: Sequence[Group], limit_s: float = 300.0) -> None:
    executor = executor_for("processes", Loader(), jobs=2, trial_timeout_s=limit_s)
    executor.run(folder, groups, lambda: False)


def by_fault(run: RunFolder) -> dict[str, TrialRecord]:
    return {str(trial.levels["model.fault"]): trial for trial in run.trials()}


@pytest.mark.slow
def test_each_fault_ends_its_own_trial_and_is_told(
    faulty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    started(faulty, tmp_path / "r", [fault for fault in FAULTS if fault != "hangs"])
    folder = RunFolder(Path("r"))
    run_groups(folder, groups_of(folder))
    trials = by_fault(folder)
    well = {"none", "killed", "told to end", "goes away"}
    assert {fault for fault, trial in trials.items() if trial.state == "done"} == well
    assert {trial.state for trial in trials.values()} == {"done", "failed"}
    expected = {
        "exits": ("SystemExit", "0"),
        "leaves": ("ProcessDied", "its process ended with code 0"),
        "crashes": ("ProcessDied", "its process was ended by SIGSEGV"),
        "always killed": ("ProcessDied", "its process was ended by SIGKILL"),
        "lacks memory": ("OutOfMemory", "memory"),
        "asks": ("EOFError", "EOF when reading a line"),
        "prints": ("ProcessDied", "its process ended with code 3"),
    }
    for fault, (kind, message) in expected.items():
        error = trials[fault].error
        assert error is not None
        assert error.kind == kind, error
        assert message in error.message
    again = {fault for fault, trial in trials.items() if trial.attempt > 1}
    assert again == {"killed", "told to end", "always killed"}
    # The records say where, as far as the process could.
    traces = {fault: trial.error.traceback for fault, trial in trials.items() if trial.error}
    assert "in string_at" in traces["crashes"]
    assert traces["prints"].endswith("the end\n")
    assert len(traces["prints"]) < 10_000


def test_of_trials_in_one_process_only_the_one_that_crashes_fails(
    faulty: str, tmp_path: Path
) -> None:
    folder = started(faulty, tmp_path / "r", ["none", "crashes", "goes away"])
    together = tuple(trial for group in groups_of(folder) for trial in group.trials)
    run_groups(folder, [Group(trials=together, is_alone=False)])
    states = {fault: trial.state for fault, trial in by_fault(folder).items()}
    assert states == {"none": "done", "crashes": "failed", "goes away": "done"}


def test_what_the_system_kills_for_memory_is_told_so_and_not_tried_again(
    faulty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its count of such kills is made up: memory that really runs out would end others, too."""
    folder = started(faulty, tmp_path / "r", ["always killed", "none"])
    kills = count()
    monkeypatch.setattr(launch, "num_killed_for_memory", lambda: next(kills))
    run_groups(folder, groups_of(folder))
    trial = by_fault(folder)["always killed"]
    assert trial.error is not None
    assert (trial.attempt, trial.error.kind) == (1, "OutOfMemory")
    told = "its process was killed because memory ran out; use a smaller batch, or fewer --jobs"
    assert trial.error.message == told
    assert by_fault(folder)["none"].state == "done"


def test_what_hangs_fails_when_its_time_is_up(faulty: str, tmp_path: Path) -> None:
    settings = {"device": "cpu", "threads": 1, "model": {"fault": "hangs"}}
    quick = CostSpec(processes=1, budget_s=0.1, warmup_steps=2, trace_mb=0)
    study = study_of(faulty, settings, cost=quick, tensorboard=False)
    folder = start_run(study, tmp_path / "r")
    watches = (None, "steps")
    groups = [group for group in groups_of(folder) if group.trials[0].watch in watches]
    run_groups(folder, groups, 1.0)
    trials = [trial for trial in folder.trials() if trial.watch in watches]
    assert [trial.kind for trial in trials] == ["learn", "cost"]
    for trial in trials:
        assert trial.error is not None
        assert trial.error.message.startswith("took longer than 1 s; give it more with --trial-t")
        assert (trial.state, trial.error.kind) == ("failed", "TimedOut")
        assert "most recent call first" in trial.error.traceback
