"""Scripts of many shapes, watched unchanged: nothing of what they compute is another number, the curve is
what they differentiated, and the parts of their time add up."""

import math
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from trainlab.plan import Trial
from trainlab.record.run_folder import TrialFolder
from trainlab.record.script_record import WatchedRecord
from trainlab.spec import TrainSpec
from trainlab.spec.script import ScriptSpec
from trainlab.watching.script_process import ScriptProcess

SHAPES = {path.stem: path for path in sorted(Path(__file__).parent.glob("scripts/shapes/*.py"))}
NEEDS = {"lightning_fit": ["lightning"], "hf_trainer": ["transformers", "accelerate"]}
ADDS_UP_WITHIN = 0.03

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Watched:
    """A script that was watched to its end."""

    told: dict[str, Any]
    folder: TrialFolder
    wall_s: float

    @property
    def record(self) -> WatchedRecord:
        return self.folder.watched.read()


def watch(path: Path, arguments: list[str], place: Path, processes: int = 1) -> Watched:
    """Runs the script as a learn trial does."""
    place.mkdir()
    script = ScriptSpec(
        path=str(path), arguments=tuple(arguments), folder=str(place), processes=processes
    )
    trial = Trial(id="learn-seed1", workload=path.name, seed=1, settings=TrainSpec())
    folder = TrialFolder(place / "trial")
    folder.path.mkdir()
    start_s = time.monotonic()
    process = ScriptProcess(script, trial, folder, "whole", 1)
    try:
        wall_s = 0.0
        while "ended" not in (told := process.answer()):
            wall_s = time.monotonic() - start_s
        process.wait()
    finally:
        process.close()
    return Watched(told, folder, wall_s)


def run_alone(path: Path, arguments: list[str], place: Path, processes: int) -> None:
    place.mkdir()
    python = [sys.executable]
    if processes > 1:
        python += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [*python, str(path), *arguments],
        cwd=place,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def floats(path: Path) -> list[float]:
    return [float(line) for line in path.read_text().splitlines()]


def skip_what_cannot_run(shape: str) -> None:
    for package in NEEDS.get(shape, []):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if shape == "compiled" and shutil.which("g++") is None:
        pytest.skip("torch.compile needs g++")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_script_computes_the_same_watched_or_not(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_what_cannot_run(shape)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    processes = 2 if shape == "ddp" else 1
    length = ["--steps" if shape == "lstm_regression" else "--epochs", "1"]

    def arguments(name: str) -> list[str]:
        return [*length, "--seed", "1", "--losses", str(tmp_path / name)]

    run_alone(SHAPES[shape], arguments("alone.txt"), tmp_path / "alone", processes)
    watched = watch(SHAPES[shape], arguments("watched.txt"), tmp_path / "watched", processes)
    assert watched.told["ended"] == "done", watched.told
    losses = floats(tmp_path / "alone.txt")
    assert len(losses) >= 20
    assert all(map(math.isfinite, losses))
    assert floats(tmp_path / "watched.txt") == losses
    record = watched.record
    assert record.losses == losses
    # Of a short script a second of Python's own beginning and end is much.
    allowed_s = max(ADDS_UP_WITHIN * watched.wall_s, 0.3)
    if processes == 1:  # torchrun takes seconds itself
        assert abs(sum(record.parts_s.values()) - watched.wall_s) < allowed_s
    assert sum(record.parts_s.values()) == pytest.approx(record.wall_s)
    assert record.overhead_s > 0  # its bounds are in benchmarks/watching.py
    if processes == 2:
        other = watched.folder.watched_by(1).read()
        assert other.rank == 1
        assert other.losses == floats(tmp_path / "watched.txt.rank1")


STEPS = {"gan": 3, "lstm_regression": 20}
"""Backward passes of a step, where it is not one."""
WITHOUT_DATA = {"lstm_regression"}


@pytest.mark.parametrize("shape", [name for name in SHAPES if name not in ("ddp", "compiled")])
def test_what_is_seen_of_a_script(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_what_cannot_run(shape)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    length = ["--steps" if shape == "lstm_regression" else "--epochs", "2"]
    watched = watch(SHAPES[shape], [*length, "--seed", "1"], tmp_path / "watched")
    record, curve = watched.record, watched.folder.curve()
    assert record.num_backward == record.num_steps * STEPS.get(shape, 1)
    steps = [line for line in curve if line["kind"] == "step"]
    epochs = [line for line in curve if line["kind"] == "epoch"]
    assert [line["step"] for line in steps] == list(range(1, record.num_steps + 1))
    assert len(epochs) == watched.told["epochs"] == 2
    assert epochs[-1]["train/loss"] == watched.told["final"]["train/loss"]
    first = [line["train/loss"] for line in steps if line["epoch"] == 1]
    assert epochs[0]["train/loss"] == pytest.approx(fmean(first))
    assert record.num_evaluation_passes > 0
    assert record.parts_s["evaluation"] > 0
    assert {"forward", "backward", "startup"} <= record.parts_s.keys()
    assert ("data" in record.parts_s) == (shape not in WITHOUT_DATA)
    assert "optimizer" in record.parts_s
    trained_on = [loader for loader in record.loaders if loader.is_trained_on]
    assert len(trained_on) == (0 if shape in WITHOUT_DATA else 1)


def test_a_loader_that_does_not_shuffle_is_seen_by_what_it_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    orders = {}
    for shape in ("mnist", "gan"):
        watched = watch(SHAPES[shape], ["--epochs", "2", "--seed", "1"], tmp_path / shape)
        (loader,) = (one for one in watched.record.loaders if one.is_trained_on)
        orders[shape] = loader.order, loader.begins_alike
    assert orders == {"mnist": ("in order", True), "gan": ("shuffled", False)}
