"""Scripts that train with Keras, on each back end: what is recorded is what Keras itself says."""

import importlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import trainlab
from trainlab.lab.driving import drive
from trainlab.lab.opened import Run
from trainlab.lab.script_study import script_study
from trainlab.record.script_record import WatchedRecord
from trainlab.spec import CostSpec

WAYS = Path(__file__).parent / "scripts" / "keras" / "ways.py"
FOLDER = os.environ.get("TRAINLAB_KERAS", "")
"""Where Keras and its back ends were installed by `pip install --target`."""
NUM_STEPS = 3 + 3 + 4 + 4 + 2


@contextmanager
def keras_on(back_end: str) -> Iterator[None]:
    """What scripts find; skips where it is not installed."""
    for name in ("keras", back_end):
        if find_spec(name) is None and not (FOLDER and Path(FOLDER, name).exists()):
            pytest.skip(f"{name} is not here: pip install it, or name its folder in TRAINLAB_KERAS")
    with pytest.MonkeyPatch.context() as patch:
        paths = [one for one in (os.environ.get("PYTHONPATH"), FOLDER) if one]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("KERAS_BACKEND", back_end)
        patch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
        yield


@dataclass
class Watched:
    """A script that ran by itself and was watched."""

    run: Run
    record: WatchedRecord
    alone: str
    printed: str

    @property
    def said(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.alone)
        return said

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.run.trial("learn-seed1").curve() if line["kind"] == kind]


def watched_ways(back_end: str, folder: Path) -> Watched:
    with keras_on(back_end):
        done = subprocess.run(
            [sys.executable, WAYS], capture_output=True, text=True, check=True, cwd=folder
        )
        run = drive(script_study(WAYS), out=folder / "run", on="inline").run
        trial = run.trial("learn-seed1")
        (told,) = run.trials()
        assert told.error is None, told.error
        return Watched(run, trial.watched.read(), done.stdout, trial.output_file.read_text())


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """On JAX."""
    return watched_ways("jax", tmp_path_factory.mktemp("keras"))


def check(ways: Watched) -> None:
    """Steps, epochs and metrics are those of Keras' own histories."""
    said, epochs, steps = ways.said, ways.lines("epoch"), ways.lines("step")
    assert ways.record.num_steps == len(steps) == NUM_STEPS
    kept: list[dict[str, float]] = []
    for fit in said["fits"]:
        kept += [
            {name: values[place] for name, values in fit.items()}
            for place in range(len(fit["loss"]))
        ]
    for known, line in zip(kept, epochs, strict=False):
        for name, value in known.items():
            part = "val" if name.startswith("val_") else "train"
            assert line[f"{part}/{name.removeprefix('val_')}"] == value
    # What was trained batch by batch is no epoch of a fit.
    assert len(epochs) == len(kept) + 1
    assert [line["train/loss"] for line in steps[:6]] == said["means"]
    assert [line["train/loss"] for line in steps[-2:]] == [one[0] for one in said["alone"]]
    (trial,) = ways.run.trials()
    assert {name: trial.final[f"test/{name}"] for name in said["test"]} == said["test"]
    assert [line["samples"] for line in steps] == [32 * (step + 1) for step in range(NUM_STEPS)]


def test_a_script_of_keras_prints_the_same_and_its_records_are_what_keras_says(
    ways: Watched,
) -> None:
    assert ways.alone in ways.printed  # beside it what XLA warns of, if it does
    check(ways)


def test_the_record_says_what_trained_and_on_what(ways: Watched) -> None:
    record = ways.record
    assert record.framework.startswith("Keras 3.")
    assert ", JAX " in record.framework
    (model,) = record.models
    assert (model.name, model.num_parameters, model.devices) == ("Functional", 74, ["cpu"])
    (optimizer,) = record.optimizers
    assert (optimizer.name, optimizer.lr, optimizer.num_steps) == ("Adam", 0.01, NUM_STEPS)
    trained = [one for one in record.loaders if one.is_trained_on]
    assert [(one.batch_size, one.num_samples, one.order) for one in trained] == [
        (32, 96, "shuffled"),
        (32, 128, "in order"),
        (None, None, "own"),
    ]
    # The first step compiles, and stands apart; a step is one part, and none of torch's.
    steps = record.steps_ms
    assert {"data", "train_step"} <= steps.keys() <= {"data", "train_step", "other"}
    assert steps["train_step"][0] > statistics.median(steps["train_step"])
    assert record.parts_s["evaluation"] > 0
    assert sum(record.parts_s.values()) == pytest.approx(record.wall_s)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_report_of_a_script_of_keras_claims_nothing_of_torch(ways: Watched, lang: str) -> None:
    text = ways.run.report(lang=lang, formats=("md",)).read_text()
    assert ways.record.framework in text
    assert "backward was called" not in text
    assert "calls of torch" not in text
    assert "torch 调用" not in text


def test_a_loop_of_jax_is_known_by_the_losses_that_it_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with keras_on("jax"):
        monkeypatch.setattr(sys, "path", [*sys.path, FOLDER])
        jax = importlib.import_module("jax")

    def loss_of(weight: Any) -> Any:
        return (weight - 3.0) ** 2

    step, weight = jax.jit(jax.value_and_grad(loss_of)), jax.numpy.zeros(())
    losses = []
    with trainlab.watch(out=tmp_path / "run") as lab:
        for _ in range(20):
            loss, gradient = step(weight)
            weight -= 0.1 * gradient
            losses.append(float(loss))
            lab.log(loss=loss)
        lab.log(**{"test/distance": abs(weight - 3.0)})
    (trial,) = lab.run.trials()
    curve = [line for line in lab.run.trial(trial.id).curve() if line["kind"] == "step"]
    assert [line["train/loss"] for line in curve] == losses
    assert trial.final["test/distance"] == pytest.approx(3.0 * 0.8**20, rel=1e-3)
    assert [note.code for note in trial.notes] == ["script_steps_logged"]


@pytest.mark.slow
def test_of_models_fitted_one_after_the_other_the_epochs_are_the_last_ones(tmp_path: Path) -> None:
    """Though nothing holds the first one any more."""
    script = tmp_path / "train.py"
    script.write_text(
        "import gc, keras, numpy as np\n"
        "def fit(epochs):\n"
        "    model = keras.Sequential([keras.layers.Dense(1)])\n"
        "    model.compile(optimizer='sgd', loss='mse')\n"
        "    model.fit(np.zeros((8, 4)), np.zeros((8, 1)), 4, epochs=epochs, verbose=0)\n"
        "fit(2)\n"
        "keras.backend.clear_session()\n"
        "gc.collect()\n"
        "fit(1)\n"
    )
    with keras_on("jax"):
        run = drive(script_study(script), out=tmp_path / "run", on="inline").run
    (trial,) = run.trials()
    assert (trial.steps_done, trial.epochs_done) == (6, 1)


@pytest.mark.slow
@pytest.mark.parametrize("back_end", ["torch", "tensorflow"])
def test_another_back_end_is_seen_alike(back_end: str, tmp_path: Path) -> None:
    ways = watched_ways(back_end, tmp_path)
    assert ways.alone in ways.printed  # beside it what XLA warns of, if it does
    check(ways)


@pytest.mark.slow
def test_steps_of_keras_are_timed_in_turns_and_seeds_change_what_is_learned(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        WAYS.read_text()
        .replace("keras.utils.set_random_seed(7)", "")
        .replace("epochs=2", "epochs=9")
    )
    cost = CostSpec(processes=1, max_processes=1, budget_s=0.2, warmup_steps=3)
    vary = {"env.KERAS_BACKEND": ["torch", "jax"]}
    with keras_on("jax"):
        study = script_study(script, vary=vary, seeds=(1, 2), cost=cost)
        run = drive(study, out=tmp_path / "run", on="inline").run
    finals: dict[str, set[float]] = {}
    for trial in run.trials():
        assert trial.error is None, trial.error
        if trial.kind == "learn":
            finals.setdefault(trial.cell, set()).add(trial.final["train/loss"] or 0.0)
        elif trial.watch == "steps":
            assert min(run.trial(trial.id).cost.read().step_ms) > 0.01
        elif trial.watch == "operators":
            is_of_torch = "torch" in trial.cell
            assert run.trial(trial.id).operators.path.exists() == is_of_torch
    assert [len(values) for values in finals.values()] == [2, 2]
