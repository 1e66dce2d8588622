"""Metrics of whole sets are computed of the whole set, not as a mean over batches or samples."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainlab
from asking import study_of
from trainlab import Dataset, OfWholeSet, Split, Workload
from trainlab.record.trial_record import TrialRecord
from trainlab.workloads.workload import directions

DRAWN = torch.Generator().manual_seed(0)
X, X_TEST = torch.randn(60, 5, generator=DRAWN), torch.randn(37, 5, generator=DRAWN)
Y, Y_TEST = ((x.sum(1) + x[:, 0] ** 2 > 0.5).long() for x in (X, X_TEST))
COMPILE = torch.compile


def rmse(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square().mean().sqrt()


def workload(**metrics: Any) -> Workload:
    return Workload(
        name="own",
        model=lambda: nn.Linear(5, 2),
        data=Dataset("own", Split(X, Y), Split(X_TEST, Y_TEST)),
        loss=F.cross_entropy,
        metrics=metrics,
    )


def trained(tmp_path: Path, own: Workload, **settings: Any) -> tuple[TrialRecord, nn.Module]:
    asked = {"batch_size": 7, "test_batch_size": 10, "epochs": 2, "device": "cpu", "lr": 0.1}
    run = trainlab.run(own, out=tmp_path / "r", save_model=True, **(asked | settings))
    (trial,) = run.trials()
    assert trial.state == "done", trial.error
    model = nn.Linear(5, 2)
    model.load_state_dict(torch.load(run.trial(trial.id).model_file, weights_only=True))
    return trial, model


@pytest.mark.parametrize("engine", ["eager", "tuned", "lanes", "compiled"])
def test_a_function_of_the_whole_set(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is traced runs as it was written: generating code would take half a minute.
    monkeypatch.setattr(torch, "compile", lambda model, options: COMPILE(model, backend="eager"))
    own = workload(rmse=OfWholeSet(rmse, higher_is_better=False), hit=lambda o, t: o.argmax(1) == t)
    trial, model = trained(tmp_path, own, engine=engine)
    with torch.no_grad():
        outputs = model(X_TEST)
    assert trial.final["test/rmse"] == pytest.approx(float(rmse(outputs, Y_TEST)), rel=1e-5)
    hits = float((outputs.argmax(1) == Y_TEST).double().mean())
    assert trial.final["test/hit"] == pytest.approx(hits)
    assert "train/rmse" not in trial.final, "the weights change while an epoch goes on"
    parts = [rmse(o, t) for o, t in zip(outputs.split(10), Y_TEST.split(10), strict=True)]
    assert trial.final["test/rmse"] != pytest.approx(float(torch.stack(parts).mean()), rel=1e-6)


def test_the_metrics_of_torchmetrics(tmp_path: Path) -> None:
    auroc = pytest.importorskip("torchmetrics.classification").MulticlassAUROC(2)
    trial, model = trained(tmp_path, workload(auroc=auroc))
    with torch.no_grad():
        outputs = model(X_TEST)
    positive, negative = (outputs.softmax(1)[c == Y_TEST, 1] for c in (1, 0))
    pairs = (positive[:, None] > negative).double() + 0.5 * (positive[:, None] == negative).double()
    assert trial.final["test/auroc"] == pytest.approx(float(pairs.mean()), abs=1e-6)
    assert not auroc.update_called, "the user's own object is left as it was"


def test_several_values_of_one_metric_go_by_their_names(tmp_path: Path) -> None:
    both = OfWholeSet(lambda o, t: {"low": o.min(), "high": o.max()})
    trial, _ = trained(tmp_path, workload(scores=both))
    assert trial.final["test/scores_low"] < trial.final["test/scores_high"]


def test_a_metric_says_itself_which_way_is_better(tmp_path: Path) -> None:
    assert directions({"bleu_error": OfWholeSet(rmse, higher_is_better=True)}) == {
        "bleu_error": True
    }
    own = workload(distance=OfWholeSet(rmse, higher_is_better=False))
    run = trainlab.run(own, out=tmp_path / "r", batch_size=7, device="cpu")
    study = run.study().to_study("study.json")
    assert study.is_better_lower("test/distance")
    assert study.is_better_lower("test/loss")
    assert not study_of("fashion-mlp", {}).is_better_lower("test/accuracy")


def test_a_metric_without_one_number_is_refused(tmp_path: Path) -> None:
    own = workload(every=OfWholeSet(lambda o, t: o.mean(0)))
    with pytest.warns(trainlab.TrialsFailedWarning, match="metrics.every: computed shape"):
        trainlab.run(own, out=tmp_path / "r", batch_size=7, device="cpu")


@pytest.mark.parametrize("engine", ["eager", "lanes"])
def test_a_loss_that_is_a_sum_is_noticed(engine: str, tmp_path: Path) -> None:
    for reduction, is_told in (("mean", False), ("sum", True)):
        own = replace(workload(), loss=nn.CrossEntropyLoss(reduction=reduction))
        trial, _ = trained(tmp_path / reduction, own, engine=engine, lr=0.001)
        assert ("loss_is_sum" in {one.code for one in trial.notes}) == is_told


def test_an_accuracy_in_per_cent_is_no_share(tmp_path: Path) -> None:
    """What another draw of the test set would change is told of shares only."""
    own = workload(accuracy=lambda o, t: 100.0 * (o.argmax(1) == t))
    run = trainlab.run(own, out=tmp_path / "r", epochs=1, batch_size=7, device="cpu", seeds=2)
    assert run.epochs()["test/accuracy"].max() > 1
    assert not any(finding.kind == "test_set" for finding in run.findings())
