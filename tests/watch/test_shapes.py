"""Scripts of many shapes, watched unchanged: nothing of what they compute is another number, the curve is
what they differentiated, and the parts of their time add up."""

import math
import shutil
import subprocess
import sys
import time
from contextlib import closing
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from trainlab.plan import Trial
from trainlab.record.run_folder import TrialFolder
from trainlab.spec import TrainSpec
from trainlab.spec.script import ScriptSpec
from trainlab.watching.script_process import ScriptProcess

SHAPES = {path.stem: path for path in sorted(Path(__file__).parent.glob("scripts/shapes/*.py"))}
NEEDS = {"lightning_fit": ["lightning"], "hf_trainer": ["transformers", "accelerate"]}

pytestmark = pytest.mark.slow


def watch(shape: str, place: Path) -> tuple[dict[str, Any], TrialFolder]:
    """Runs the script as a learn trial does: its last words, and its records."""
    place.mkdir()
    path, processes = str(SHAPES[shape]), 2 if shape == "ddp" else 1
    script = ScriptSpec(path=path, arguments=("2",), folder=str(place), processes=processes)
    trial = Trial(id="learn-seed1", workload=shape, seed=1, settings=TrainSpec())
    folder = TrialFolder(place / "trial")
    folder.path.mkdir()
    with closing(ScriptProcess(script, trial, folder, "learn", 1)) as process:
        while "ended" not in (told := process.answer()):
            pass
        process.wait()
    assert told["ended"] == "done", told
    return told, folder


def losses_in(printed: str, word: str = "loss") -> list[float]:
    lines = (line.split() for line in printed.splitlines())
    return [float(words[1]) for words in lines if len(words) == 2 and words[0] == word]


@pytest.fixture(autouse=True)
def alike(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs, on one thread of the CPU; what cannot run is left out."""
    for name, value in {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    shape = getattr(request.node, "callspec", None) and request.node.callspec.params["shape"]
    for package in NEEDS.get(shape, []):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if shape == "compiled" and shutil.which("g++") is None:
        pytest.skip("torch.compile needs g++")


STEPS = {"gan": 3, "lstm_regression": 20}
"""Backward passes of a step, where it is not one."""
WITHOUT_DATA = {"lstm_regression"}
ORDERS = {"mnist": "in order", "gan": "shuffled"}
"""Loaders are seen by what they give."""


@pytest.mark.parametrize("shape", SHAPES)
def test_a_script_computes_the_same_watched_or_not_and_what_it_does_is_seen(
    shape: str, tmp_path: Path
) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [sys.executable, *(torchrun if shape == "ddp" else ()), str(SHAPES[shape]), "2"]
    (tmp_path / "alone").mkdir()
    alone = subprocess.run(
        command, cwd=tmp_path / "alone", capture_output=True, text=True, timeout=300
    )
    assert alone.returncode == 0, alone.stdout + alone.stderr
    start_s = time.monotonic()
    told, folder = watch(shape, tmp_path / "watched")
    wall_s = time.monotonic() - start_s
    printed, record = folder.output_file.read_text(), folder.watched.read()
    losses = losses_in(alone.stdout)
    assert len(losses) >= 20
    assert all(map(math.isfinite, losses))
    assert losses_in(printed) == losses
    assert record.losses == losses
    assert sum(record.parts_s.values()) == pytest.approx(record.wall_s)
    assert record.wall_s < wall_s
    assert record.overhead_s > 0  # its bounds are in benchmarks/watching.py
    if shape == "ddp":
        assert losses_in(printed, "loss1") == losses_in(alone.stdout, "loss1")
    elif shape != "compiled":
        check_seen(shape, told, folder)


def check_seen(shape: str, told: dict[str, Any], folder: TrialFolder) -> None:
    record, curve = folder.watched.read(), folder.curve()
    assert len(record.losses) == record.num_steps * STEPS.get(shape, 1)
    steps = [line for line in curve if line["kind"] == "step"]
    epochs = [line for line in curve if line["kind"] == "epoch"]
    assert [line["step"] for line in steps] == list(range(1, record.num_steps + 1))
    assert len(epochs) == told["epochs"] == 2
    assert epochs[-1]["train/loss"] == told["final"]["train/loss"]
    first = [line for line in steps if line["epoch"] == 1]
    # By samples, where a loader tells how many: a smaller last batch counts as what it is.
    seen = [0, *(line.get("samples", 0) for line in first)]
    weights = [after - before or 1 for before, after in pairwise(seen)]
    losses = [line["train/loss"] for line in first]
    assert epochs[0]["train/loss"] == pytest.approx(fmean(losses, weights))
    assert {"forward", "backward", "startup", "optimizer"} <= record.parts_s.keys()
    # What the generator draws after an epoch may be looked at; it is no test.
    assert ("inference" if shape == "gan" else "evaluation") in record.parts_s
    assert ("data" in record.parts_s) == (shape not in WITHOUT_DATA)
    trained_on = [loader for loader in record.loaders if loader.is_trained_on]
    assert len(trained_on) == (0 if shape in WITHOUT_DATA else 1)
    if shape in ORDERS:
        assert trained_on[0].order == ORDERS[shape]
