"""The command as a user meets it: its output, its exit code; in a process of its own where that matters."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from command import Verb
from trainlab.execute.signals import signals_interrupt

TRAINLAB = [sys.executable, "-m", "trainlab"]


def in_process(*words: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", **variables}
    return subprocess.run(
        [*TRAINLAB, *map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_json_prints_one_object_on_stdout_and_nothing_else(tmp_path: Path, tiny_file: Path) -> None:
    """In a process of its own; also where the user's code prints."""
    tiny_file.write_text(tiny_file.read_text() + "\nprint('hello from my file')\n")
    done = in_process("run", f"{tiny_file}:tiny", "--json", "--seed", "1,2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [trial["state"] for trial in told["trials"]] == ["done", "done"]
    assert (tmp_path / told["run"] / "study.json").is_file()
    assert "hello from my file" in done.stderr


def test_a_metric_of_the_users_own_is_shown(trainlab: Verb, tiny_file: Path) -> None:
    metric = "metrics={'mae': lambda o, t: (o[:, 1] - t).abs()}, defaults="
    tiny_file.write_text(tiny_file.read_text().replace("defaults=", metric))
    words = ["run", f"{tiny_file}:tiny", "--no-tensorboard"]
    shown = trainlab(*words, COLUMNS="50").stdout
    assert "mae" in shown
    assert "accuracy" not in shown
    assert "…" not in shown
    assert "trainlab board" not in shown


def test_quiet_prints_only_the_run_folder(trainlab: Verb, tiny_file: Path) -> None:
    done = trainlab("run", f"{tiny_file}:tiny", "-q", "--out", "here")
    assert (done.stdout, done.stderr) == ("here\n", "")


def test_a_run_shows_its_epochs_its_data_and_its_folder(trainlab: Verb) -> None:
    words = ["run", "fashion-mlp", "--data", "bundled", "--epochs", "1", "--out", "r"]
    done = trainlab(*words)
    assert "fashion-mlp epoch 1/1: train loss" in done.stderr
    for told in (
        "accuracy",
        "subset of fashion-mnist (bundled), 6,000 training",
        "Run folder: r",
        "trainlab report r",
    ):
        assert told in done.stdout


def test_a_subset_used_for_want_of_the_full_set_is_said_with_the_reason(
    trainlab: Verb, tmp_path: Path
) -> None:
    done = trainlab("run", "fashion-mlp", "--epochs", "1", TRAINLAB_CACHE=str(tmp_path / "none"))
    assert "subset of fashion-mnist (bundled)" in done.stdout
    assert "TRAINLAB_OFFLINE is set" in done.stdout


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("raise ValueError('no such file')", "tiny: data raised ValueError: no such file"),
        ("return None", "tiny: data gave None (is `return` missing?), must be trainlab.Dataset"),
    ],
)
def test_data_that_cannot_be_had_is_one_line(
    data: str, told: str, trainlab: Verb, tiny_file: Path
) -> None:
    tiny_file.write_text(
        tiny_file.read_text().replace("def data(choice):", f"def data(choice):\n    {data}")
    )
    assert told in trainlab("run", f"{tiny_file}:tiny", code=2).stderr
    assert told in trainlab("probes", f"{tiny_file}:tiny", code=2).stderr


def test_a_broken_model_fails_its_trials_with_probes_and_without(
    trainlab: Verb, tiny_file: Path
) -> None:
    tiny_file.write_text(
        tiny_file.read_text().replace("nn.Linear(8, hidden)", "nn.Linear(7, hidden)")
    )
    for words in ([], ["--probe", "0:activation:norm"]):
        done = trainlab("run", f"{tiny_file}:tiny", *words, code=2)
        assert "seed 1: failed: RuntimeError: mat1 and mat2 shapes" in done.stdout
    stderr = trainlab("probes", f"{tiny_file}:tiny", code=2).stderr
    told = "own_work.py:15: model, in layer 0 (Linear) raised RuntimeError: mat1"
    assert f"tiny: cannot run a batch: {told}" in stderr


def test_a_trial_that_fails_by_the_users_code_is_told_and_exit_code_2(
    trainlab: Verb, tmp_path: Path, tiny_file: Path
) -> None:
    tiny_file.write_text(
        tiny_file.read_text().replace("nn.Linear(hidden, 2)", "nn.Linear(hidden, 1)")
    )
    words = ["run", f"{tiny_file}:tiny", "--out", "r", "--device", "cpu"]
    done = trainlab(*words, code=2)
    assert "seed 1: failed: IndexError" in done.stdout
    record = json.loads((tmp_path / "r/trials/learn-seed1/trial.json").read_text())
    assert "Traceback" in record["error"]["traceback"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_interrupt_and_do_what_they_did_before_afterwards(number: signal.Signals) -> None:
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), signals_interrupt():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.default_int_handler
        signal.signal(number, signal.SIG_IGN)
        with signals_interrupt():
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)


@pytest.mark.slow
def test_an_interrupt_leaves_a_valid_run_and_exit_code_130(tmp_path: Path) -> None:
    number = signal.SIGTERM
    words = ["run", "fashion-mlp", "--data", "bundled", "--epochs", "1000", "--out", "r"]
    words.append("--no-tensorboard")
    process = subprocess.Popen(
        [*TRAINLAB, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The tests themselves may have been started with the signal ignored (in the background).
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL) and None,
    )
    curve = tmp_path / "r/trials/learn-seed1/curve.jsonl"
    deadline = time.monotonic() + 60
    while not (curve.exists() and curve.stat().st_size > 1000) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    record = json.loads((tmp_path / "r/trials/learn-seed1/trial.json").read_text())
    assert record["state"] == "interrupted"
    assert record["steps_done"] > 0
    for line in curve.read_text().splitlines():
        json.loads(line)


@pytest.mark.parametrize(
    ("extra", "file"),
    [
        ("'--no-tensorboard', '--log-every-steps', '1'", "curve.jsonl"),
        ("'--tensorboard'", "tensorboard"),
        ("'--no-tensorboard', '--log-every-steps', '1000', '--save-model'", "model.pt"),
    ],
)
@pytest.mark.slow
def test_a_full_disk_is_one_line_and_nothing_half_written(
    extra: str, file: str, tmp_path: Path
) -> None:
    # A limit on file size is the same to a writer as a disk that fills up while it runs.
    script = (
        "import resource, signal, sys;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000));"
        "sys.argv = ['trainlab', 'run', 'fashion-mlp', '--data', 'bundled', '--epochs', '1',"
        f" '--out', 'r', {extra}];"
        "from trainlab.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    (told,) = [line for line in done.stdout.splitlines() if "failed: " in line]
    assert f"{file}: cannot be written: File too large; free some space" in told
    record = json.loads((tmp_path / "r/trials/learn-seed1/trial.json").read_text())
    assert record["state"] == "failed"
    assert not list((tmp_path / "r").rglob("*.part"))


def test_data_verify_names_the_file_that_is_wrong(trainlab: Verb, tmp_path: Path) -> None:
    done = trainlab("data", "verify", "mnist", TRAINLAB_CACHE=str(tmp_path))
    assert done.stdout.count("ok") == 4
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{name}-ubyte").write_bytes(b"not it")
    done = trainlab("data", "verify", "mnist", code=2)
    assert len(done.stderr.splitlines()) == 4
    assert "train-images-idx3-ubyte" in done.stderr


def test_data_list_says_what_is_cached(trainlab: Verb, tmp_path: Path) -> None:
    done = trainlab("data", "list", TRAINLAB_CACHE=str(tmp_path))
    assert done.stdout.count("not fetched yet") == 2
    assert "60,000 + 10,000" in done.stdout


def test_env_tells_the_machine_for_people_and_for_programs(trainlab: Verb) -> None:
    assert "PyTorch threads" in trainlab("env").stdout
    record = json.loads(trainlab("env", "--json").stdout)
    assert record["packages"]["torch"] == torch.__version__


def test_version_and_workloads(tmp_path: Path) -> None:
    assert in_process("--version", cwd=tmp_path).stdout.startswith("trainlab 0.")
    shown = in_process("workloads", cwd=tmp_path).stdout
    assert "mnist-cnn" in shown
    assert "fashion-mlp" in shown
