"""Processes that take turns: one at a time, in rounds, whatever happens to one of them."""

import itertools
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from asking import groups_of, study_of
from trainlab.execute.executors import Retries, executor_for
from trainlab.execute.launch import WorkerExit, WorkerProcess
from trainlab.execute.planned_run import start_run
from trainlab.plan import Group, Trial
from trainlab.record.run_folder import RunFolder
from trainlab.spec import CostSpec, TrainSpec
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


def started(tiny_file: Path, out: Path, spec: CostSpec = SPEC, cells: int = 3) -> RunFolder:
    sizes = [2, 4, 10, 20, 50][:cells]
    settings = {"device": "cpu", "threads": 1}
    study = study_of(
        f"{tiny_file}:tiny", settings, vary={"batch_size": sizes}, cost=spec, learn=False
    )
    return start_run(study, out)


def run_timed(folder: RunFolder, on: str = "processes") -> None:
    groups = [group for group in groups_of(folder) if group.bench is not None]
    with closing(executor_for(on, Loader())) as executor:
        executor.run(folder, groups, lambda: False)


def timed(folder: RunFolder) -> list[str]:
    return [trial.id for trial in folder.trials() if trial.watch == "steps"]


@pytest.mark.parametrize("on", ["inline", "processes"])
@pytest.mark.slow
def test_the_processes_of_a_bench_run_in_rounds_one_at_a_time(
    on: str, tiny_file: Path, tmp_path: Path
) -> None:
    folder = started(tiny_file, tmp_path / "r")
    tiny_file.write_text(tiny_file.read_text() + SPANS.format(path=str(tmp_path / "spans")))
    run_timed(folder, on)
    records = [folder.trial(trial_id).cost.read() for trial_id in timed(folder)]
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
    if on == "processes":
        owners = [pid for pid, *_ in spans]
        assert len(set(owners)) == 5
        changes = sum(a != b for a, b in itertools.pairwise(owners))
        assert changes >= 4 * len(rounds[0])


@pytest.mark.parametrize("on", ["inline", "processes"])
@pytest.mark.slow
def test_a_trial_that_fails_in_the_middle_of_turns_leaves_the_others_alone(
    on: str, tiny_file: Path, tmp_path: Path
) -> None:
    """In processes by SIGKILL, in this process by an error."""
    act = "os.kill(os.getpid(), 9)" if on == "processes" else "raise RuntimeError('worn out')"
    breaking = f"""
import os, dataclasses
_calls, _plain = [], tiny.loss
def breaks(outputs, targets):
    if len(targets) == 4:
        _calls.append(1)
        if len(_calls) > 60:
            {act}
    return _plain(outputs, targets)
tiny = dataclasses.replace(tiny, loss=breaks)
"""
    folder = started(tiny_file, tmp_path / "r")
    tiny_file.write_text(tiny_file.read_text() + breaking)
    run_timed(folder, on)
    states = {trial.id: trial.state for trial in folder.trials() if trial.watch == "steps"}
    broken = "cost-train-batch_size=4-process1"
    assert states.pop(broken) == "failed"
    assert set(states.values()) == {"done"}, states
    error = folder.trial(broken).read().error
    assert error is not None
    expected = "its process was ended by SIGKILL" if on == "processes" else "worn out"
    assert error.message == expected
    # Killed, it may have been by chance: the bench was run once more, as a whole.
    attempts = {trial.attempt for trial in folder.trials() if trial.watch == "steps"}
    assert attempts == ({2} if on == "processes" else {1})
    # The others went on after it had gone.
    kept = folder.trial("cost-train-batch_size=2-process1").cost.read()
    assert len(kept.turns) >= 5


@pytest.mark.slow
def test_a_bench_of_which_a_process_is_killed_once_is_measured_once_more(
    tiny_file: Path, tmp_path: Path
) -> None:
    dying = f"""
import os, pathlib, dataclasses
_plain, _mark = tiny.loss, pathlib.Path({str(tmp_path / "mark")!r})
def dies(outputs, targets):
    if len(targets) == 4 and not _mark.exists():
        _mark.touch()
        os.kill(os.getpid(), 9)
    return _plain(outputs, targets)
tiny = dataclasses.replace(tiny, loss=dies)
"""
    folder = started(tiny_file, tmp_path / "r")
    tiny_file.write_text(tiny_file.read_text() + dying)
    run_timed(folder, "processes")
    timed_trials = [trial for trial in folder.trials() if trial.watch == "steps"]
    assert {(trial.state, trial.attempt) for trial in timed_trials} == {("done", 2)}
    told = {trial.id: [one.code for one in trial.notes] for trial in timed_trials}
    assert [one for one in told if "tried_again" in told[one]] == [
        "cost-train-batch_size=4-process1"
    ]
    benches = {folder.trial(trial.id).cost.read().bench for trial in timed_trials}
    assert len(benches) == 1


def test_a_bench_that_memory_ran_out_for_stands_ready_in_pairs() -> None:
    class Died:
        has_died = True

        def exit(self) -> WorkerExit:
            return WorkerExit(-9, ran_out_of_memory=True)

    class Alive:
        has_died = False

    trial = Trial(id="t", workload="w", seed=1, settings=TrainSpec(epochs=1))
    groups = [Group(trials=(trial.model_copy(update={"id": n}),), is_alone=True) for n in "abc"]
    known = Retries(RunFolder(Path("unread")))
    processes = cast(list[WorkerProcess], [Alive(), Died(), Alive()])
    assert known.of_bench(processes, groups) == 2
