"""The command as a user meets it: its output, its exit code; in a process of its own where that matters."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from command import Verb

TRAINLAB = [sys.executable, "-m", "trainlab"]


def rewritten(file: Path, old: str, new: str) -> str:
    """A workload file with something else in it, and the workload in it."""
    file.write_text(file.read_text().replace(old, new))
    return f"{file}:tiny"


@pytest.mark.slow
def test_json_prints_one_object_on_stdout_and_nothing_else(tmp_path: Path, tiny_file: Path) -> None:
    """In a process of its own; also where the user's code prints."""
    own = rewritten(tiny_file, "import torch,", "print('hello from my file')\nimport torch,")
    words = [*TRAINLAB, "run", own, "--json", "--seed", "1,2"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [trial["state"] for trial in told["trials"]] == ["done", "done"]
    assert (tmp_path / told["run"] / "study.json").is_file()
    assert "hello from my file" in done.stderr


def test_a_metric_of_the_users_own_is_shown(trainlab: Verb, tiny_file: Path) -> None:
    metric = "metrics={'mae': lambda o, t: (o[:, 1] - t).abs()}, defaults="
    own = rewritten(tiny_file, "defaults=", metric)
    shown = trainlab("run", own, "--no-tensorboard", COLUMNS="50").stdout
    assert "mae" in shown
    for left_out in ("accuracy", "…", "trainlab board"):
        assert left_out not in shown


def test_quiet_prints_only_the_run_folder(trainlab: Verb, tiny_file: Path) -> None:
    done = trainlab("run", f"{tiny_file}:tiny", "-q", "--out", "here")
    assert (done.stdout, done.stderr) == ("here\n", "")


def test_a_run_shows_its_epochs_its_folder_and_that_its_data_is_a_subset_and_why(
    trainlab: Verb, tmp_path: Path
) -> None:
    words = ["run", "fashion-mlp", "--train-samples", "300", "--epochs", "1", "--out", "r"]
    done = trainlab(*words, TRAINLAB_CACHE=str(tmp_path / "none"))
    assert "fashion-mlp epoch 1/1: train loss" in done.stderr
    for told in (
        *("accuracy", "subset of fashion-mnist (bundled), 300 training", "TRAINLAB_OFFLINE is set"),
        *("Run folder: r", "trainlab report r"),
    ):
        assert told in done.stdout


def test_data_that_cannot_be_had_is_one_line(trainlab: Verb, tiny_file: Path) -> None:
    start, sound = "def data(choice):", tiny_file.read_text()
    for data, told in (
        ("raise ValueError('no such file')", "tiny: data raised ValueError: no such file"),
        ("return None", "tiny: data gave None (is `return` missing?), must be trainlab.Dataset"),
    ):
        tiny_file.write_text(sound)
        own = rewritten(tiny_file, start, f"{start}\n    {data}")
        for verb in ("run", "probes"):
            assert told in trainlab(verb, own, code=2).stderr


def test_a_broken_model_fails_its_trials_with_probes_and_without(
    trainlab: Verb, tiny_file: Path
) -> None:
    own = rewritten(tiny_file, "nn.Linear(8, hidden)", "nn.Linear(7, hidden)")
    for words in ([], ["--probe", "0:activation:norm"]):
        out = f"r{len(words)}"
        done = trainlab("run", own, *words, "--out", out, code=2)
        assert "seed 1: failed: RuntimeError: mat1 and mat2 shapes" in done.stdout
        record = json.loads(Path(out, "trials/learn-seed1/trial.json").read_text())
        assert "Traceback" in record["error"]["traceback"]
    told = "own_work.py:15: model, in layer 0 (Linear) raised RuntimeError: mat1"
    assert f"tiny: cannot run a batch: {told}" in trainlab("probes", own, code=2).stderr


@pytest.mark.slow
def test_an_interrupt_leaves_a_valid_run_and_exit_code_130(tmp_path: Path) -> None:
    number = signal.SIGTERM
    words = "run fashion-mlp --data bundled --max-steps 5,100000 --jobs 2 --out r --no-tensorboard"
    process = subprocess.Popen(
        [*TRAINLAB, *words.split()],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The tests themselves may have been started with the signal ignored (in the background).
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL) and None,
    )
    trial = tmp_path / "r/trials/learn-max_steps=100000-seed1"
    curve = trial / "curve.jsonl"
    deadline = time.monotonic() + 60
    ended = tmp_path / "r/trials/learn-max_steps=5-seed1/trial.json"
    while time.monotonic() < deadline and not (
        (curve.exists() and curve.stat().st_size > 1000)
        and json.loads(ended.read_text())["state"] == "done"
    ):
        time.sleep(0.05)
    process.send_signal(number)
    shown, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    # What there is so far, where it lies, how to go on.
    lead, *_, last = shown.splitlines()
    assert lead == "Question and answer so far"
    assert "\nmax_steps=5 " in shown
    assert "\nRun folder: r\n" in shown
    assert last == "Go on with it: trainlab resume r"
    record = json.loads((trial / "trial.json").read_text())
    assert record["state"] == "interrupted"
    assert record["steps_done"] > 0
    for line in curve.read_text().splitlines():
        json.loads(line)


def test_data_is_listed(trainlab: Verb, tmp_path: Path) -> None:
    listed = trainlab("data", "list", TRAINLAB_CACHE=str(tmp_path)).stdout
    assert listed.count("not fetched yet") == 2
    assert "60,000 + 10,000" in listed


def test_the_machine_the_version_and_the_workloads_are_told(trainlab: Verb) -> None:
    assert "PyTorch threads" in trainlab("env").stdout
    record = json.loads(trainlab("env", "--json").stdout)
    assert record["packages"]["torch"] == torch.__version__
    assert trainlab("--version").stdout.startswith("trainlab 0.")
    shown = trainlab("workloads").stdout
    assert all(told in shown for told in ("mnist-cnn", "fashion-mlp"))
