"""Parameters of a workload's loss, step and data are settings, and so factors."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainlab
from trainlab import Dataset, Split, Workload
from trainlab.errors import TrainlabError

DRAWN = torch.Generator().manual_seed(0)
X = torch.randn(80, 5, generator=DRAWN)
Y = (X.sum(1) > 0).long()


def data(choice: str, fraction: float = 1.0) -> Dataset:
    num = round(fraction * len(X))
    return Dataset("own", Split(X[:num], Y[:num]), Split(X, Y))


def loss(outputs: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    return F.cross_entropy(outputs, targets, label_smoothing=label_smoothing)


def workload(**fields: Any) -> Workload:
    own = {"name": "own", "model": lambda: nn.Linear(5, 2), "data": data, "loss": loss}
    return Workload(**{**own, **fields})


def step(model: nn.Module, batch: Any, label_smoothing: float = 0.0) -> Tensor:
    return loss(model(batch[0]), batch[1], label_smoothing)


BY_STEP = {"loss": None, "step": step}


@pytest.mark.parametrize(
    ("fields", "engine"),
    [({}, "tuned"), ({}, "lanes"), (BY_STEP, "eager")],
    ids=["tuned", "lanes", "by_step"],
)
def test_a_parameter_of_the_loss_is_varied(
    fields: dict[str, Any], engine: str, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"batch_size": 8, "device": "cpu", "engine": engine, "seeds": 2}
    run = trainlab.run(
        workload(**fields), vary={"loss.label_smoothing": [0.0, 0.2]}, out=tmp_path / "r", **asked
    )
    by_hand = trainlab.run(
        workload(loss=lambda o, t: loss(o, t, 0.2)), out=tmp_path / "h", **asked
    ).trials()
    varied = [t for t in run.trials() if t.levels["loss.label_smoothing"] == 0.2]
    wanted = [t.final["train/loss"] for t in by_hand]
    assert [t.final["train/loss"] for t in varied] == pytest.approx(wanted, rel=1e-6)
    plain = [t for t in run.trials() if t.levels["loss.label_smoothing"] == 0.0]
    assert plain[0].final["train/loss"] != varied[0].final["train/loss"]
    assert {t.resolved["code"] for t in run.trials()} == {run.trials()[0].resolved["code"]}
    assert not run.evidence().trials[0].error
    assert "label_smoothing" in run.report().read_text()


def test_a_parameter_of_the_data_is_varied(tmp_path: Path) -> None:
    vary = {"data.fraction": [0.25, 1.0]}
    run = trainlab.run(workload(), vary=vary, out=tmp_path / "r", batch_size=8, device="cpu")
    assert [t.data and t.data.num_train for t in run.trials()] in ([20, 80], [80, 20])


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (lambda block=5: [f"block {block}"], "block 5"),
        (lambda choice="x", block=5: [f"{choice}, block {block}"], "bundled, block 5"),
        (lambda place, block=5: [f"{place}, block {block}"], "bundled, block 5"),
        (lambda *places: [str(places)], "('bundled',)"),
        (lambda *, block=5: [f"block {block}"], "block 5"),
    ],
)
def test_the_first_parameter_of_the_data_gets_the_choice_unless_it_has_a_default_of_its_own(
    given: Any, asked: str
) -> None:
    own = workload(data=given)
    assert own.dataset("bundled") == [asked]
    if "block" in asked:
        assert own.facts.data_parameters == ("block",)
        assert own.dataset("bundled", {"block": 7}) == [asked.replace("5", "7")]


def test_unknown_parameters_are_refused(tmp_path: Path) -> None:
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        (
            {"loss": {"smoothing": 1}},
            "loss.smoothing: own has no such parameter; it has label_smoo",
        ),
        (
            {"data_options": {"part": 1}},
            "data_options.part: own has no such parameter; it has fract",
        ),
    )
    for settings, told in refused:
        with pytest.raises(TrainlabError, match=told):
            trainlab.run(workload(), out=tmp_path / "r", **settings)
