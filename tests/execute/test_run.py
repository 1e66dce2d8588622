"""Runs that really train: their records, pairs by seed, the budget, what an interrupt leaves."""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import trainlab
from trainlab import lab
from trainlab.errors import Interrupted
from trainlab.lab import driving
from trainlab.record.schema import FORMAT
from trainlab.spec import Question
from trainlab.train.callbacks import Instrument, TrialView


def test_a_run_leaves_every_record_readable(tiny_file: Path, tmp_path: Path) -> None:
    folder = trainlab.run(f"{tiny_file}:tiny", seeds=(1, 2), out=tmp_path / "r", device="cpu")
    names = sorted(p.relative_to(folder.path).as_posix() for p in folder.path.rglob("*.json*"))
    (environment,), (events,), (driver,) = (
        [name for name in names if name.startswith(f"{part}/")]
        for part in ("environments", "events", "drivers")
    )
    assert all(f"{trial.environment}.json" in environment for trial in folder.trials())
    first = ("confusion.json", "curve.jsonl", "network.json", "trial.json")
    assert [name for name in names if name not in (environment, events, driver)] == [
        "study.json",
        *(f"trials/learn-seed1/{name}" for name in first),
        *(f"trials/learn-seed2/{name}" for name in first if name != "network.json"),
    ]
    for path in folder.path.rglob("*.json"):
        assert json.loads(path.read_text())["format"] == FORMAT
    for trial in folder.trials():
        assert (trial.state, trial.epochs_done, trial.steps_done) == ("done", 2, 20)
        assert trial.resolved["device"] == "cpu"
        assert trial.data is not None
        assert trial.data.num_train == 100
        last = folder.trial(trial.id).curve()[-1]
        assert {name: last[name] for name in trial.final} == trial.final


def test_saved_weights_load_into_a_plain_model(tiny_file: Path, tmp_path: Path) -> None:
    folder = trainlab.run(f"{tiny_file}:tiny", out=tmp_path / "r", save_model=True, device="cpu")
    state = torch.load(folder.trial("learn-seed1").model_file)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    model.load_state_dict(state)
    accuracy = folder.trials()[0].final["test/accuracy"]
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(130, 8, generator=draw)[100:]
    hits = (model(inputs).argmax(1) == (inputs[:, 0] > 0).long()).float().mean()
    assert float(hits) == pytest.approx(accuracy)


def test_an_interrupt_leaves_a_valid_run(tiny_file: Path, tmp_path: Path) -> None:
    class Interrupt(Instrument):
        def step_ends(self, step: int) -> None:
            if step == 13:
                raise Interrupted

    asked: dict[str, Any] = {"seeds": (1, 2), "instruments": [Interrupt()], "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        trainlab.run(f"{tiny_file}:tiny", out=tmp_path / "r", **asked)
    run = trainlab.RunFolder(tmp_path / "r")
    first, second = run.trials()
    assert (first.state, first.epochs_done) == ("interrupted", 1)
    assert second.state == "pending"
    assert len(run.trial(first.id).epochs()) == 1


class Watches(Instrument):
    """Keeps each trial's initial weights and the order its training samples come in."""

    def __init__(self) -> None:
        self.weights: dict[tuple[str, int], torch.Tensor] = {}
        self.inputs: dict[tuple[str, int], list[torch.Tensor]] = {}

    def trial_begins(self, view: TrialView) -> None:
        key = (view.trial.cell, view.trial.seed)
        flat = [parameter.detach().flatten() for parameter in view.model.parameters()]
        self.weights[key] = torch.cat(flat).clone()
        seen = self.inputs.setdefault(key, [])

        def look(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            if module.training:
                seen.append(inputs[0].clone())

        view.model.register_forward_pre_hook(look)


def test_a_seed_gives_the_same_weights_and_data_order_in_every_cell(
    tiny_file: Path, tmp_path: Path
) -> None:
    watch = Watches()
    vary = {"lr": [0.01, 0.001], "batch_size": [10, 20]}
    asked: dict[str, Any] = {"vary": vary, "seeds": 2, "device": "cpu", "tensorboard": False}
    trainlab.run(f"{tiny_file}:tiny", out=tmp_path / "r", instruments=[watch], **asked)
    cells = sorted({cell for cell, _ in watch.weights})
    assert len(cells) == 4
    inputs = {key: torch.cat(seen) for key, seen in watch.inputs.items()}
    for seen in (watch.weights, inputs):
        for cell in cells:
            assert all(torch.equal(seen[cell, seed], seen[cells[0], seed]) for seed in (1, 2))
        assert not torch.equal(seen[cells[0], 1], seen[cells[0], 2])


def test_a_run_answers_with_tables_and_findings(tiny_file: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"seeds": 2, "device": "cpu", "tensorboard": False}
    run = trainlab.run(f"{tiny_file}:tiny", vary={"hidden": [2, 8]}, out=tmp_path / "r", **asked)
    assert list(run.results()["model.hidden"]) == [t.cell[-1] for t in run.trials()]
    assert len(run.epochs()) == 2 * 2 * 2
    assert {"effect", "best", "test_set"} <= {one.kind for one in run.findings()}
    assert any("hidden 2 → 8" in told for told in run.sentences())
    assert any("个种子" in told for told in run.sentences("zh"))
    assert run.results_csv.is_file()
    assert trainlab.open_run(run.path).sentences() == run.sentences()


def test_once_the_budget_is_spent_no_trial_is_started(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = Question(
        workload=f"{tiny_file}:tiny", vary={"lr": (0.1, 0.2)}, seeds=3, tensorboard=False
    )
    clock = itertools.count(0.0, 60.0)
    monkeypatch.setattr(driving, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    # The clock is read once at the start, once for the timer and once before each trial.
    folder = lab.drive(question, out=tmp_path / "r", budget_s=210.0).run
    states = [trial.state for trial in folder.trials()]
    assert states == ["done", "done", "pending", "pending", "pending", "pending"]
    (unfinished,) = [f for f in trainlab.open_run(folder.path).findings() if f.kind == "unfinished"]
    assert unfinished.numbers["num_pending"] == 4


def test_a_seed_changes_only_the_part_it_is_asked_to(tiny_file: Path, tmp_path: Path) -> None:
    parts = ("all", "weights", "order", "dropout")
    asked: dict[str, Any] = {"vary": {"seed_parts": parts}, "seeds": 3, "device": "cpu"}
    run = trainlab.run(f"{tiny_file}:tiny", out=tmp_path / "r", tensorboard=False, **asked)
    losses = {
        part: {t.final["train/loss"] for t in run.trials() if t.levels["seed_parts"] == part}
        for part in parts
    }
    # The tiny model has no dropout: there all seeds are the same trial.
    assert {part: len(values) for part, values in losses.items()} == dict.fromkeys(parts, 3) | {
        "dropout": 1
    }
    assert "Seeds that change the initial weights alone spread" in " ".join(run.sentences())
