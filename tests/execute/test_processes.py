import io
import json
import math
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from asking import groups_of, study_of
from children import children
from command import Verb
from trainlab import lab
from trainlab.analysis.evidence import gather
from trainlab.analysis.method import overheads
from trainlab.cli.run_summary import print_measurement
from trainlab.execute.executors import ProcessesExecutor
from trainlab.execute.planned_run import IsOver, start_run
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.spec import CostSpec
from trainlab.spec.probe import probe_of
from trainlab.train.loader import Loader
from trainlab.words import Words


def never() -> bool:
    return False


QUICK = CostSpec(processes=2, budget_s=0.1, warmup_steps=2, active_steps=2, trace_mb=0)


def started(tiny_file: Path, out: Path) -> RunFolder:
    study = study_of(f"{tiny_file}:tiny", {"device": "cpu"}, cost=QUICK, learn=False)
    return start_run(study, out)


def run_groups(
    folder: RunFolder,
    wanted: Callable[[Group], bool] = lambda group: True,
    is_over: IsOver = never,
) -> None:
    groups = [group for group in groups_of(folder) if wanted(group)]
    with closing(ProcessesExecutor(Loader())) as executor:
        executor.run(folder, groups, is_over)


@pytest.mark.slow
def test_every_timed_trial_has_a_process_and_watched_ones_share_another(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainlab.execute.executors.usable_vcpus", lambda: 4)
    seen = tmp_path / "seen"
    marker = f"""
import os
open({str(seen)!r}, "a").write(f"{{os.getpid()}}\\n")
"""
    folder = started(tiny_file, tmp_path / "r")
    tiny_file.write_text(tiny_file.read_text() + marker)
    run_groups(folder)
    assert len(set(seen.read_text().split())) == 3
    assert {trial.state for trial in folder.trials()} == {"done"}
    assert {trial.kind for trial in folder.trials()} == {"cost"}
    # A watched process never supplies a speed, and a timed one nothing else.
    homes = [(trial.watch, folder.trial(trial.id)) for trial in folder.trials()]
    assert [watch for watch, _ in homes] == ["steps", "steps", "layers", "operators"]
    for watch, home in homes:
        assert home.cost.exists() is (watch == "steps")
        assert home.operators.exists() is (watch == "operators")
        for record in (home.layers, home.memory, home.limits):
            assert record.exists() is (watch == "layers")


def test_no_process_is_left_behind_when_time_is_up(tiny_file: Path, tmp_path: Path) -> None:
    folder = started(tiny_file, tmp_path / "r")
    looks = iter([False, True, True])
    before = set(children())
    run_groups(folder, is_over=lambda: next(looks))
    assert [trial.state for trial in folder.trials()] == ["done", *["pending"] * 3]
    assert set(children()) == before


def test_a_process_that_is_killed_leaves_a_failed_trial(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = "\nimport os\nif os.environ.get('KILL'):\n    os.kill(os.getpid(), 9)\n"
    tiny_file.write_text(tiny_file.read_text() + killer)
    folder = started(tiny_file, tmp_path / "r")
    monkeypatch.setenv("KILL", "1")
    run_groups(folder, lambda group: group.ids[0].endswith("process1"))
    first = folder.trials()[0]
    assert first.state == "failed"
    assert first.error is not None
    assert first.error.message == "its process was ended by SIGKILL"


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
        with pytest.raises(KeyboardInterrupt):
            run_groups(folder, lambda group: group.ids[0].endswith("process1"))
    finally:
        signal.signal(signal.SIGINT, handler)
    thread.join()
    assert folder.trials()[0].state == "interrupted"
    assert set(children()) == before


@pytest.mark.parametrize("mode", ["train", "inference"])
@pytest.mark.slow
def test_profile_tells_the_cost_as_json_and_as_a_table(
    mode: str, trainlab: Verb, tiny_file: Path, tmp_path: Path
) -> None:
    processes = 2 if mode == "train" else 1
    words = ["profile", f"{tiny_file}:tiny", "--device", "cpu", "--budget-s", "0.1", "--mode", mode]
    words += ["--processes", str(processes), "--trace-mb", "0"]
    told = json.loads(trainlab(*words, "--json").stdout)
    folder = RunFolder(tmp_path / told["run"])
    assert told["batch_size"] == 10
    assert told["sample_us"]["value"] == pytest.approx(100 * told["step_ms"]["value"])
    assert len(folder.trials()) == processes + 2
    timed = [trial.id for trial in folder.trials() if trial.watch == "steps"]
    records = [folder.trial(name).cost.read() for name in timed]
    # The median over its undisturbed turns of the log of the median step of each.
    turns_ms = [[one.bare_turns_ms()[n] for n in one.quiet_turns()] for one in records]
    levels = [
        statistics.median(math.log(statistics.median(turn)) for turn in turns) for turns in turns_ms
    ]
    assert told["step_ms"]["value"] == pytest.approx(math.exp(statistics.mean(levels)))
    assert (told["step_ms"]["low"] is None) is (processes < 3)
    assert [layer["name"] for layer in told["layers"]][:3] == ["0", "1", "2"]
    assert told["memory"]["parameter_bytes"] == 4 * (8 * 8 + 8 + 8 * 2 + 2)
    shown = Console(file=io.StringIO(), width=120)
    (measurement,) = gather(folder).measured
    print_measurement(shown, "tiny", measurement, Words("en"))
    shown_text = shown.file.getvalue()
    times = ("ms per batch", "µs per sample", "samples per s", f"Fresh processes: {processes}")
    parts = ("forward", "addmm", "Outside all operators", "Layers as written", "First step beside")
    for part in (*times, *parts, "Memory of a step", "Profiling overhead"):
        assert part in shown_text


def test_a_workload_that_breaks_in_its_process_is_one_line(trainlab: Verb, tiny_file: Path) -> None:
    tiny_file.write_text(
        tiny_file.read_text().replace("nn.Linear(hidden, 2)", "nn.Linear(hidden, 1)")
    )
    words = ["profile", f"{tiny_file}:tiny", "--device", "cpu", "--processes", "1"]
    done = trainlab(*words, "--budget-s", "0.1", "--trace-mb", "0", code=2)
    assert "cost-train-process1: failed: IndexError" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_trained_model_is_profiled_with_the_weights_it_ended_with(
    tiny_file: Path, tmp_path: Path
) -> None:
    cost = {"processes": 1, "budget_s": 0.1, "warmup_steps": 2, "trace_mb": 0}
    run = lab.run(f"{tiny_file}:tiny", out=tmp_path / "r", device="cpu", profile=cost)
    assert {trial.state for trial in run.trials()} == {"done"}
    found = run.evidence().measured
    assert [part.is_trained for part in found] == [False, True]
    assert all(part.operators and part.layers and part.memory for part in found)


def test_weights_that_were_never_trained_are_missed_by_name(
    tiny_file: Path, tmp_path: Path
) -> None:
    cost = QUICK.model_copy(update={"weights": "trained"})
    study = study_of(f"{tiny_file}:tiny", {"device": "cpu"}, cost=cost)
    folder = start_run(study, tmp_path / "r")
    run_groups(folder, lambda group: group.ids == ("cost-train-trained-process1",))
    error = folder.trial("cost-train-trained-process1").read().error
    assert error is not None
    assert "trial learn-seed1 is pending, not trained" in error.message


@pytest.mark.slow
def test_what_the_probes_of_a_study_cost_is_among_the_overheads(
    tiny_file: Path, tmp_path: Path
) -> None:
    cost = {
        "processes": 1,
        "budget_s": 0.1,
        "warmup_steps": 2,
        "weights": "untrained",
        "trace_mb": 0,
    }
    run = lab.run(
        f"{tiny_file}:tiny",
        out=tmp_path / "r",
        device="cpu",
        profile=cost,
        probes=(probe_of("1:grad_input:sq_sum"), probe_of("*.weight:grad:norm@5")),
    )
    (found,) = run.evidence().measured
    assert found.probe_price is not None
    assert found.probe_price.probes == ["1:grad_input:sq_sum@epoch", "*.weight:grad:norm@5"]
    assert len(found.probe_price.bare_ms) == len(found.probe_price.watched_ms) > 5
    assert [one.instrument for one in overheads(found)][-1] == "probes"
    assert not run.trial("cost-train-layers").probes_file.exists()
    assert {trial.kind for trial in run.trials() if run.trial(trial.id).probes.exists()} == {
        "learn"
    }
