"""Studies that really train: pairs by seed, the budget, what the bench tells afterwards."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import trainlab
from trainlab import lab
from trainlab.lab import driving
from trainlab.spec import Question
from trainlab.train.callbacks import Instrument, TrialView


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
    run = trainlab.run(
        f"{tiny_file}:tiny",
        vary={"seed_parts": parts},
        seeds=3,
        out=tmp_path / "r",
        device="cpu",
        tensorboard=False,
    )
    losses = {
        part: {t.final["train/loss"] for t in run.trials() if t.levels["seed_parts"] == part}
        for part in parts
    }
    # The tiny model has no dropout: there all seeds are the same trial.
    sizes = {part: len(values) for part, values in losses.items()}
    assert sizes == {"all": 3, "weights": 3, "order": 3, "dropout": 1}
    told = " ".join(run.sentences())
    assert "Seeds that change the initial weights alone spread" in told
