"""Where a script runs, and as what: a single run as Python would run it, several in copies."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from command import Verb
from torchless import Torchless
from trainlab.errors import SpecError
from trainlab.lab.driving import drive
from trainlab.lab.script_study import diagnosis_study, script_study
from trainlab.record.run_folder import RunFolder
from trainlab.spec import CostSpec
from trainlab.spec.script import DiagnosisSpec
from trainlab.watching.script_process import folder_of

SHOWS = """
import __main__, json, os, random, sys
names = {name: str(value).split(" at 0x")[0] for name, value in vars(__main__).items() if name[0] == "_"}
shown = {
    "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "path": sys.path, "flags": str(sys.flags),
    "environment": dict(os.environ), "names": names, "folder": os.getcwd(), "stdin": sys.stdin.read(),
    "is_main": sys.modules["__main__"] is __main__,
}
print(json.dumps(shown))
import torch
parameter = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([parameter], 0.1)
for _ in range(2):
    parameter.sum().backward()
    optimizer.step()
with open("written.txt", "a") as file:
    file.write("w")
sys.exit(3)
"""


@pytest.mark.slow
def test_a_single_run_is_as_python_runs_it(
    trainlab: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees the same, writes into the same folder and ends with the same code."""
    monkeypatch.setenv("PYTHONPATH", "of_hers")
    (tmp_path / "train.py").write_text(SHOWS)
    command = [sys.executable, "train.py", "--lr", "1"]
    given: dict[str, Any] = {"cwd": tmp_path, "stdin": subprocess.DEVNULL, "env": dict(os.environ)}
    alone = subprocess.run(command, stdout=subprocess.PIPE, check=False, **given)
    assert alone.returncode == 3
    trainlab("watch", "train.py", "--lr", "1", "--out", "r", code=3)
    folder = RunFolder(tmp_path / "r").trial("learn-seed1")
    assert json.loads(folder.output_file.read_text()) == json.loads(alone.stdout)
    assert not folder.work_folder.exists()
    assert (tmp_path / "written.txt").read_text() == "ww"


def test_the_driver_of_a_single_run_imports_no_torch(torchless: Torchless, tmp_path: Path) -> None:
    """Records and answer included; what the environment says of torch is told by the script's process."""
    (tmp_path / "train.py").write_text(SHOWS)
    answer = torchless.ask(["watch", "train.py", "--out", "r"], tmp_path)
    assert (answer.code, answer.imported_torch) == (3, False), answer.stderr
    run = RunFolder(tmp_path / "r")
    trial = run.trial("learn-seed1").read()
    assert (trial.steps_done, trial.state) == (2, "failed")
    machine = run.machine(trial.environment or "").read()
    assert machine.packages["torch"] == torch.__version__
    assert machine.torch_threads


READS = """
import argparse, random, torch
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=7)
parser.add_argument("--missing", default="")
asked = parser.parse_args()
scale = float(Path("../../data/scale.txt").read_text())
before = Path("best.txt").read_text() if Path("best.txt").exists() else "none"
parameter = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([parameter], asked.lr)
for _ in range(2):
    (scale * parameter.sum()).backward()
    optimizer.step()
Path("best.txt").write_text(f"seed {asked.seed}")
with open("log.csv", "w") as log:
    log.write("accuracy\\n0.25\\n0.5\\n")
print("before:", before, "seed:", asked.seed, "drawn:", random.random(), torch.rand(()).item())
if asked.missing:
    open(asked.missing)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose script reads data two folders above it."""
    folder = tmp_path / "code" / "project"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(READS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "scale.txt").write_text("2")
    monkeypatch.chdir(folder)
    return folder


def printed(run: RunFolder) -> list[str]:
    """By each of its trials, what comes before what was drawn."""
    texts = [run.trial(trial.id).output_file.read_text() for trial in run.trials()]
    return sorted(text.partition(" drawn:")[0] for text in texts)


@pytest.mark.slow
def test_each_of_several_runs_has_a_copy_in_which_data_two_folders_above_are_found(
    project: Path, tmp_path: Path
) -> None:
    """Neither writes what the other reads; each is given the script's own default seed."""
    study = script_study("train.py", vary={"lr": [0.1, 0.2]}, tensorboard=False)
    run = drive(study, out=tmp_path / "r", on="inline").run
    assert [trial.state for trial in run.trials()] == ["done", "done"]
    assert printed(run) == ["before: none seed: 7"] * 2
    assert not (project / "best.txt").exists()
    for trial in run.trials():
        (best,) = run.trial(trial.id).work_folder.rglob("best.txt")
        assert best.read_text() == "seed 7"


@pytest.mark.slow
def test_with_workdir_all_run_in_one_folder(project: Path, tmp_path: Path) -> None:
    (project / "best.txt").write_text("old")
    study = script_study("train.py", workdir=Path(), seeds=(1, 2), tensorboard=False)
    run = drive(study, out=tmp_path / "r", on="inline").run
    assert printed(run) == ["before: old seed: 1", "before: seed 1 seed: 2"]


@pytest.mark.slow
def test_in_a_copy_an_error_for_want_of_a_file_says_so(project: Path) -> None:
    study = script_study("train.py", ["--missing", "x"], workdir=Path(), tensorboard=False)
    for own, is_told in ((study, False), (study.model_copy(update={"seeds": (1, 2)}), True)):
        if is_told:
            assert own.script is not None
            own = own.model_copy(update={"script": own.script.model_copy(update={"workdir": ""})})
        for trial in drive(own, out=project / f"r{is_told}", on="inline").run.trials():
            assert trial.error is not None
            assert ("the file is in the folder, add --workdir ." in trial.error.mistake) == is_told


@pytest.mark.slow
def test_a_metric_comes_from_the_file_of_this_run_though_it_is_as_it_was(
    project: Path, tmp_path: Path
) -> None:
    """Of a single run, where it lies; without seeds two runs draw different numbers."""
    drawn = []
    for name in ("first", "again"):
        study = script_study(
            "train.py", metric_files={"accuracy": "log.csv:accuracy"}, tensorboard=False
        )
        run = drive(study, out=tmp_path / name, on="inline").run
        (trial,) = run.trials()
        assert trial.final["test/accuracy"] == 0.5
        drawn.append(run.trial(trial.id).output_file.read_text().partition("drawn:")[2])
    assert drawn[0] != drawn[1]


def test_only_a_single_run_is_in_the_folder_itself(project: Path) -> None:
    def folder(**asked: Any) -> str:
        study = script_study("train.py", **asked)
        assert study.script is not None
        return folder_of(study.script, study)

    assert folder() == folder(seeds=(3,)) == folder(max_steps=5) == str(project)
    assert folder(seeds=(1, 2)) == folder(vary={"lr": [1, 2]}) == folder(cost=CostSpec()) == ""
    assert folder(seeds=(1, 2), workdir=Path("..")) == str(project.parent)
    diagnosed = diagnosis_study("train.py", (), 30, DiagnosisSpec(most=1, processes=2))
    assert diagnosed.script is not None
    assert folder_of(diagnosed.script, diagnosed) == folder_of(diagnosed.script, None) == ""
    with pytest.raises(SpecError, match="--workdir nowhere: no such folder"):
        script_study("train.py", workdir=Path("nowhere"))
