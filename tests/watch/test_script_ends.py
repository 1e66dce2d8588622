"""However a script ends, what was seen of it is recorded, and why it ended is told."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from command import called
from trainlab.errors import SpecError
from trainlab.lab.driving import drive
from trainlab.lab.script_study import script_study
from trainlab.record.run_folder import RunFolder, TrialFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.watching.script_child import Answers
from trainlab.watching.script_process import module_file

ENDINGS = Path(__file__).parent / "scripts" / "endings"
HEEDS_INTERRUPTS = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("trainlab", run_name="__main__", alter_sys=True)
"""
"""These tests may have been started with the signal ignored, as in the background."""
IGNORES_INTERRUPTS = HEEDS_INTERRUPTS.replace("signal.default_int_handler", "signal.SIG_IGN")


@pytest.fixture(autouse=True)
def _in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the scripts write lands there."""
    monkeypatch.chdir(tmp_path)


def watched(script: str, folder: Path, *arguments: str) -> tuple[TrialRecord, TrialFolder]:
    """The trial of such a script."""
    path = script if script == "-m" else ENDINGS / script
    study = script_study(path, arguments, tensorboard=False)
    run = drive(study, out=folder / "r", on="inline").run
    (trial,) = run.trials()
    return trial, run.trial(trial.id)


def interrupted(folder: Path, by: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`trainlab watch` of a script that goes on for ever, interrupted by a signal to it or to all of its
    processes, as from a terminal or a scheduler."""
    sign, script = folder / "sign", str(ENDINGS / "goes_on.py")
    signs = [folder / f"sign{rank}" for rank in range(2 if "--nproc" in arguments else 1)]
    words = ["watch", script, "--sign", str(sign), *arguments, "--out", str(folder / "r")]
    start = IGNORES_INTERRUPTS if by == "SIGTERM in the background" else HEEDS_INTERRUPTS
    command = [sys.executable, "-P", "-c", start, *words, "--no-tensorboard"]
    process = subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    begun_s = time.monotonic()
    try:
        while not all(one.exists() for one in signs):
            assert process.poll() is None
            assert time.monotonic() < begun_s + 120
            time.sleep(0.05)
        send = os.killpg if by.endswith("to all") else os.kill
        send(process.pid, signal.Signals[by.split()[0]])
        out, err = process.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.mark.slow
def test_of_a_script_that_is_interrupted_all_that_was_seen_is_recorded_and_told(
    tmp_path: Path,
) -> None:
    """Also what it saves then, what it writes at last, and what is still in the buffers of its files."""
    metric = ("--metric", "accuracy=accuracy (.*)")
    ended = interrupted(tmp_path, "SIGTERM in the background", "--saves", *metric)
    assert ended.returncode == 130, ended.stderr
    assert ended.stderr.splitlines()[-1] == "trainlab: interrupted"
    run = RunFolder(tmp_path / "r")
    (trial,) = run.trials()
    assert (trial.state, trial.steps_done >= 150) == ("interrupted", True)
    watched = run.trial(trial.id).watched.read()
    assert watched.num_steps == trial.steps_done == watched.optimizers[0].num_steps
    told = " ".join(ended.stderr.split())
    assert f"The script was interrupted after {trial.steps_done:,} updates and " in told
    assert "of the run" not in told
    assert not trial.notes
    folder = run.trial(trial.id)
    assert folder.output_file.read_text() == "saved\nat the end\n"
    assert (tmp_path / "log.txt").read_text() == "not flushed"
    assert [file.name for file in tmp_path.glob("*.pt")] == ["saved.pt"]


@pytest.mark.slow
def test_a_script_of_several_ranks_that_is_interrupted_has_its_record(tmp_path: Path) -> None:
    ended = interrupted(tmp_path, "SIGINT to all", "--nproc", "2")
    assert ended.returncode == 130, ended.stderr
    folder = RunFolder(tmp_path / "r").trial("learn-seed1")
    assert folder.watched.read().num_steps >= 150


@pytest.mark.slow
def test_a_script_that_goes_on_all_the_same_is_ended_with_its_records(tmp_path: Path) -> None:
    assert interrupted(tmp_path, "SIGINT to all", "--stays").returncode == 130
    (trial,) = RunFolder(tmp_path / "r").trials()
    folder = RunFolder(tmp_path / "r").trial(trial.id)
    assert (trial.state, trial.epochs_done) == ("interrupted", 0)
    assert folder.watched.read().num_steps == trial.steps_done >= 150
    assert folder.output_file.read_text() == "I stay\nat the end\n"


@pytest.mark.slow
def test_processes_that_a_script_forks_leave_its_records_alone_and_leaving_at_once_does_not_lose_them(
    tmp_path: Path,
) -> None:
    trial, folder = watched("forks.py", tmp_path)
    assert (trial.state, trial.steps_done) == ("done", 7)
    assert [line["step"] for line in folder.curve() if line["kind"] == "step"] == list(range(1, 8))


@pytest.mark.slow
def test_a_script_that_leaves_with_a_code_says_why_and_comes_to_its_end(tmp_path: Path) -> None:
    trial, folder = watched("wrong_argument.py", tmp_path, "--bogus")
    assert trial.error is not None
    said = "wrong_argument.py: error: unrecognized arguments: --bogus"
    assert trial.error.message == f"the script ended with exit code 2, and printed last: {said}"
    assert not trial.notes
    assert folder.output_file.read_text().endswith("the end\n")
    files = {"last.txt": "heard", "unfinished.txt": "all of it"}
    assert {one.name: one.read_text() for one in tmp_path.glob("*.txt")} == files


@pytest.mark.slow
def test_a_module_runs_in_its_package_and_its_error_is_told_with_her_lines_and_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ENDINGS)
    trial, folder = watched("-m", tmp_path, "packaged.train", "--steps", "2")
    assert trial.workload == str(ENDINGS / "packaged" / "train.py")
    assert (trial.state, trial.steps_done, trial.notes) == ("failed", 2, ())
    assert folder.watched.read().num_steps == 2
    found = json.loads(called("show", tmp_path / "r", "--json").stdout)["findings"]
    (text,) = [one["sentence"] for one in found if one["kind"] == "script_time"]
    assert text.startswith("The script failed after 2 updates and ")
    assert trial.error is not None
    assert trial.error.mistake.startswith("train.py:19: script raised RuntimeError: mat1 and mat2")
    lines = trial.error.own_traceback.splitlines()
    assert [line.split(", ")[1] for line in lines if "File" in line] == ["line 23", "line 19"]


def test_a_module_is_found_as_python_finds_it_and_not_imported(tmp_path: Path) -> None:
    (tmp_path / "pack" / "inner").mkdir(parents=True)
    (tmp_path / "pack" / "__init__.py").write_text("1 / 0")
    train, main = tmp_path / "pack" / "train.py", tmp_path / "pack" / "inner" / "__main__.py"
    for path in (train, main):
        path.touch()
    assert module_file("pack.train", tmp_path) == ("pack.train", train)
    assert module_file("pack.inner", tmp_path) == ("pack.inner.__main__", main)
    for name in ("pack.tain", "nothing", "pack", "math", "", "pack..x"):
        with pytest.raises(SpecError, match="no such module here; give it as `python -m` takes"):
            module_file(name, tmp_path)


def test_a_process_whose_starter_is_gone_does_not_wait_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device or address"):
        Answers(str(tmp_path / "pipe"))
