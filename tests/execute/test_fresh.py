import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainlab.execute.fresh import run_fresh
from trainlab.execute.run import make_study, start_run
from trainlab.execute.worker import Loader
from trainlab.record.folder import RunFolder
from trainlab.spec import CostSpec

QUICK = CostSpec(processes=2, budget_s=0.2, warmup_steps=2)


def started(tiny_file: Path, out: Path) -> RunFolder:
    study = make_study(Loader(), f"{tiny_file}:tiny", {"device": "cpu"}, (1,), cost=QUICK)
    return start_run(study, out)


def test_every_cost_trial_runs_in_a_process_of_its_own(tiny_file: Path, tmp_path: Path) -> None:
    marker = f"\nimport os\nopen({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
    tiny_file.write_text(tiny_file.read_text() + marker)
    folder = started(tiny_file, tmp_path / "r")
    for trial_id in folder.study().trials:
        run_fresh(folder, trial_id)
    pids = set((tmp_path / "pids").read_text().split())
    assert len(pids) == 4
    assert str(os.getpid()) in pids
    assert {trial.state for trial in folder.trials()} == {"done"}
    assert {trial.kind for trial in folder.trials()} == {"cost"}
    # A profiled process never supplies a speed, and a timed one no operators.
    homes = [(trial.profiled, folder.trial(trial.id)) for trial in folder.trials()]
    assert [profiled for profiled, _ in homes] == [False, False, True]
    for profiled, home in homes:
        assert home.cost_file.exists() is not profiled
        assert home.operators_file.exists() is profiled


def test_a_process_that_is_killed_leaves_a_failed_trial(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = "\nimport os\nif os.environ.get('KILL'):\n    os.kill(os.getpid(), 9)\n"
    tiny_file.write_text(tiny_file.read_text() + killer)
    folder = started(tiny_file, tmp_path / "r")
    monkeypatch.setenv("KILL", "1")
    run_fresh(folder, folder.study().trials[0])
    first = folder.trials()[0]
    assert first.state == "failed"
    assert first.error is not None
    assert first.error.message == "its process ended with code -9"


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_profile_tells_the_cost_as_json_and_as_a_table(
    mode: str, tiny_file: Path, tmp_path: Path
) -> None:
    words = [
        *("profile", f"{tiny_file}:tiny", "--device", "cpu", "--budget-s", "0.2"),
        "--mode",
        mode,
    ]
    command = [sys.executable, "-m", "trainlab", *words, "--processes", "2"]
    done = subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, text=True)
    told = json.loads(done.stdout)
    folder = RunFolder(tmp_path / told["run"])
    assert told["batch_size"] == 10
    assert told["sample_us"]["value"] == pytest.approx(100 * told["step_ms"]["value"])
    assert len(folder.trials()) == 3
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    times = ("ms per batch", "µs per sample", "samples per s", "2 fresh processes")
    for part in (*times, "forward", "addmm", "outside operators"):
        assert part in shown


def test_a_workload_that_breaks_in_its_process_is_one_line(tiny_file: Path, tmp_path: Path) -> None:
    tiny_file.write_text(
        tiny_file.read_text().replace("nn.Linear(hidden, 2)", "nn.Linear(hidden, 1)")
    )
    words = ["profile", f"{tiny_file}:tiny", "--device", "cpu", "--processes", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "trainlab", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("trainlab: cost-train-process1: IndexError")
