"""Processes that take turns: one at a time, in rounds, whatever happens to one of them."""

import itertools
import os
import signal
import threading
import time
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from asking import groups_of, study_of
from children import children
from trainlab.execute.executors import executor_for
from trainlab.execute.planned_run import start_run
from trainlab.execute.retries import Retries
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import Failure, TrialRecord
from trainlab.spec import CostSpec
from trainlab.train.loader import Loader

SPEC = CostSpec(
    processes=1, budget_s=0.4, warmup_steps=1, active_steps=2, trace_mb=0, extra_s=0, tight=1e-9
)

SPANS = """
import os, time
_loss = tiny.loss
def spanned(outputs, targets):
    began = time.monotonic()
    result = _loss(outputs, targets)
    open({path!r}, "a").write(f"{{os.getpid()}} {{began}} {{time.monotonic()}}\\n")
    return result
import dataclasses
tiny = dataclasses.replace(tiny, loss=spanned)
"""


def started(tiny_file: Path, out: Path, cells: int = 3) -> RunFolder:
    settings = {"device": "cpu", "threads": 1}
    asked = {"vary": {"batch_size": [2, 4, 10, 20][:cells]}, "cost": SPEC, "learn": False}
    return start_run(study_of(f"{tiny_file}:tiny", settings, **asked), out)


def run_timed(folder: RunFolder) -> list[TrialRecord]:
    groups = [group for group in groups_of(folder) if group.bench is not None]
    with closing(executor_for("processes", Loader())) as executor:
        executor.run(folder, groups, lambda: False)
    return [trial for trial in folder.trials() if trial.watch == "steps"]


@pytest.mark.slow
def test_the_processes_of_a_bench_run_in_rounds_one_at_a_time(
    tiny_file: Path, tmp_path: Path
) -> None:
    folder = started(tiny_file, tmp_path / "r")
    tiny_file.write_text(tiny_file.read_text() + SPANS.format(path=str(tmp_path / "spans")))
    records = [folder.trial(trial.id).cost.read() for trial in run_timed(folder)]
    # Three cells, and the smallest and the largest once more.
    assert len(records) == 5
    assert len({record.bench for record in records} - {""}) == 1
    rounds = [[turn.round for turn in record.turns] for record in records]
    assert all(one == rounds[0] for one in rounds)
    assert rounds[0] == list(range(1, len(rounds[0]) + 1))
    assert len(rounds[0]) >= 5
    spans = [line.split() for line in (tmp_path / "spans").read_text().splitlines()]
    times = [float(number) for _, *span in spans for number in span]
    assert times == sorted(times), "two processes ran at once"
    owners = [pid for pid, *_ in spans]
    assert len(set(owners)) == 5
    assert sum(a != b for a, b in itertools.pairwise(owners)) >= 4 * len(rounds[0])


@pytest.mark.slow
def test_a_bench_of_which_processes_are_killed_is_measured_once_more(
    tiny_file: Path, tmp_path: Path
) -> None:
    """One is killed by chance, another one always, and one fails in the middle of its turns."""
    dying = f"""
import os, pathlib, dataclasses
_plain, _mark, _calls = tiny.loss, pathlib.Path({str(tmp_path / "mark")!r}), []
def dies(outputs, targets):
    _calls.append(1)
    if len(targets) == 10 or (len(targets) == 4 and not _mark.exists()):
        _mark.touch()
        os.kill(os.getpid(), 9)
    if len(targets) == 20 and len(_calls) > 60:
        raise RuntimeError("worn out")
    return _plain(outputs, targets)
tiny = dataclasses.replace(tiny, loss=dies)
"""
    folder = started(tiny_file, tmp_path / "r", cells=4)
    tiny_file.write_text(tiny_file.read_text() + dying)
    trials = run_timed(folder)
    assert {trial.attempt for trial in trials} == {2}
    errors = {trial.cell: trial.error.message for trial in trials if trial.error is not None}
    killed = "its process was ended by SIGKILL"
    assert errors == {"batch_size=10": killed, "batch_size=20": "worn out"}
    done = [trial for trial in trials if trial.state == "done"]
    assert {trial.cell for trial in done} == {"batch_size=2", "batch_size=4"}
    costs = [folder.trial(trial.id).cost.read() for trial in done]
    assert len({cost.bench for cost in costs}) == 1
    assert min(len(cost.turns) for cost in costs) >= 5, "the others went on"
    told = {trial.cell for trial in done if "tried_again" in [one.code for one in trial.notes]}
    assert told == {"batch_size=4"}


def test_an_interrupted_process_leaves_interrupted_trials_and_is_gone(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that does not answer the interrupt and has to be killed."""
    deaf = "\nimport os, signal, time\nif os.environ.get('DEAF'):\n"
    deaf += "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(600)\n"
    folder = started(tiny_file, tmp_path / "r")
    tiny_file.write_text(tiny_file.read_text() + deaf)
    monkeypatch.setenv("DEAF", "1")
    monkeypatch.setattr("trainlab.execute.launch.INTERRUPTED_S", 0.5)
    before = set(children())

    def interrupt() -> None:
        first = folder.trial(folder.trials()[0].id)
        while first.read().state != "running":
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    # The tests themselves may have been started with the signal ignored (in the background).
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        executor = executor_for("processes", Loader())
        with pytest.raises(KeyboardInterrupt), closing(executor):
            executor.run(folder, groups_of(folder)[:1], lambda: False)
    finally:
        signal.signal(signal.SIGINT, handler)
    thread.join()
    assert folder.trials()[0].state == "interrupted"
    assert set(children()) == before


def test_what_lacked_memory_on_a_gpu_runs_once_more_alone(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainlab.execute.retries.is_cpu", lambda device: False)
    run = started(tiny_file, tmp_path / "r")
    group, folder = groups_of(run)[0], run.trial(run.study().trials[0])
    error = Failure(kind="OutOfMemory", message="", traceback="")
    folder.end(folder.read().model_copy(update={"state": "failed", "error": error}))
    retries, ended = Retries(run), Mock(unfinished=list)
    assert retries.of_group(group, ended) == [Group(trials=group.trials, is_alone=True)]
    assert retries.of_group(group, ended) == []
