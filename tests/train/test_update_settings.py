"""Clipping, accumulation, warm-up, averages, precision and validation give what a loop by hand gives."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

import trainlab
from training import Curve, curve_of
from trainlab import Dataset, Split, Workload
from trainlab.errors import SpecError, TrainlabError
from trainlab.train.callbacks import Progress
from trainlab.train.engines import tuned
from trainlab.train.seeds import data_order, seeded

SIZE, BATCH, SEED = 50, 8, 3
DRAWN = torch.Generator().manual_seed(0)
X = torch.randn(SIZE, 6, generator=DRAWN)
Y = (X.sum(1) > 0).long()
X_OTHER = torch.randn(40, 6, generator=DRAWN)
Y_OTHER = (X_OTHER.sum(1) > 0.3).long()


def net() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2)
    )


def workload(**fields: Any) -> Workload:
    data = Dataset("own", Split(X, Y), Split(X_OTHER, Y_OTHER))
    return Workload(
        **{"name": "own", "model": net, "data": data, "loss": F.cross_entropy, **fields}
    )


def trained(
    path: Path, own: Workload | None = None, engine: str = "eager", **settings: Any
) -> tuple[Curve, Progress, nn.Module]:
    return curve_of(own or workload(), path, engine, **settings)


def fresh() -> nn.Module:
    with seeded(SEED, "weights"):
        return net()


def batches(num_epochs: int = 2) -> Iterator[tuple[int, list[Tensor]]]:
    for epoch in range(1, num_epochs + 1):
        with seeded(SEED, "dropout", epoch):
            yield epoch, list(data_order(SEED, epoch, SIZE).split(BATCH))


def loss_on(model: nn.Module, x: Tensor = X_OTHER, y: Tensor = Y_OTHER) -> float:
    model.eval()
    with torch.no_grad():
        return float(F.cross_entropy(model(x), y))


@pytest.mark.parametrize("engine", ["eager", "tuned"])
def test_clipping_is_the_loop_by_hand_to_the_last_bit(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Compiled code rounds in another order.
    monkeypatch.setattr(tuned, "find_compiler", lambda: None)
    model, losses, norms = fresh(), [], []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _, pieces in batches():
        for rows in pieces:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X[rows]), Y[rows])
            loss.backward()
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.9)))
            optimizer.step()
            losses.append(float(loss.detach()))
    assert min(norms) < 0.9 < max(norms), "some are clipped and some are not"
    curve, _, _ = trained(tmp_path, clip_grad_norm=0.9, engine=engine)
    assert curve.losses == losses
    assert trained(tmp_path / "plain")[0].losses != losses


def accumulated_by_hand(model: nn.Module, per_update: int) -> list[list[float]]:
    """The losses of the batches of each update."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.05), []
    for _, pieces in batches():
        while group := pieces[:per_update]:
            pieces = pieces[per_update:]
            optimizer.zero_grad()
            losses.append([])
            for rows in group:
                loss = F.cross_entropy(model(X[rows]), Y[rows])
                (loss / len(group)).backward()
                losses[-1].append((float(loss.detach()), len(rows)))
            optimizer.step()
    return losses


@pytest.mark.parametrize("per_update", [3, 20])
@pytest.mark.parametrize("kind", ["tensors", "loader"])
def test_accumulation_is_the_loop_by_hand_to_the_last_bit(
    per_update: int, kind: str, tmp_path: Path
) -> None:
    """The last update of an epoch takes the batches that are left."""
    model = fresh()
    wanted = accumulated_by_hand(model, per_update)
    loader = DataLoader(TensorDataset(X, Y), BATCH, shuffle=True)
    own = workload() if kind == "tensors" else workload(data=Dataset("l", loader, Split(X, Y)))
    curve, progress, learned = trained(tmp_path, own, accumulate=per_update)
    means = [
        sum(loss * count for loss, count in update) / sum(count for _, count in update)
        for update in wanted
    ]
    assert curve.losses == pytest.approx(means, rel=1e-15)
    assert progress.steps_done == len(wanted) == 2 * -(-7 // per_update)
    assert [point.samples for point in curve.points][-1] == 2 * SIZE
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, learned.state_dict()[name]), name


def test_the_first_bad_update_is_counted_in_updates(tmp_path: Path) -> None:
    calls = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        calls.append(1)
        return F.cross_entropy(outputs, targets) * (float("nan") if len(calls) == 6 else 1)

    _, progress, _ = trained(tmp_path, workload(loss=loss), accumulate=2, log_every_steps=4)
    assert (progress.state, progress.diverged_at_step) == ("diverged", 3)


def test_the_learning_rate_rises_in_equal_parts_to_that_of_the_schedule(tmp_path: Path) -> None:
    curve, _, _ = trained(tmp_path, warmup_steps=10, schedule="cosine", epochs=3)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.05)
    schedule, rates = CosineAnnealingLR(optimizer, T_max=3), []
    for _ in range(3):
        rates += [schedule.get_last_lr()[0]] * 7
        optimizer.step()
        schedule.step()
    wanted = [rate * min(1, (step + 1) / 10) for step, rate in enumerate(rates)]
    assert [point.metrics["lr"] for point in curve.points] == pytest.approx(wanted)


def test_an_average_of_weights_is_what_is_tested_and_kept(tmp_path: Path) -> None:
    model, decay, tested = fresh(), 0.8, []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    average: nn.Module | None = None
    for _, pieces in batches():
        model.train()
        for rows in pieces:
            optimizer.zero_grad()
            F.cross_entropy(model(X[rows]), Y[rows]).backward()
            optimizer.step()
            if average is None:
                average = copy.deepcopy(model)
            else:
                with torch.no_grad():
                    for mean, own in zip(average.parameters(), model.parameters(), strict=True):
                        mean.lerp_(own, 1 - decay)
            average.load_state_dict(dict(average.state_dict(), **dict(model.named_buffers())))
        tested.append(loss_on(average))
    assert average is not None
    curve, _, kept = trained(tmp_path, ema=decay)
    assert [point.metrics["test/loss"] for point in curve.epochs] == pytest.approx(tested, abs=0)
    for name, tensor in average.state_dict().items():
        assert torch.equal(tensor, kept.state_dict()[name]), name


def test_fp16_is_autocast_with_a_scaler(tmp_path: Path) -> None:
    model, losses = fresh(), []
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.05), torch.amp.GradScaler("cpu")
    for _, pieces in batches():
        for rows in pieces:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(model(X[rows]), Y[rows])
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            scaler.step(optimizer)
            scaler.update()
            losses.append(float(loss.detach()))
    curve, _, _ = trained(tmp_path, precision="fp16", clip_grad_norm=0.3)
    assert curve.losses == losses


@pytest.mark.parametrize(("max_steps", "epochs"), [(1, 1), (7, 1), (8, 2), (20, 3)])
def test_training_ends_after_so_many_updates(max_steps: int, epochs: int, tmp_path: Path) -> None:
    curve, progress, _ = trained(tmp_path, max_steps=max_steps)
    whole, _, _ = trained(tmp_path / "whole", epochs=3)
    assert curve.losses == whole.losses[:max_steps]
    assert (progress.steps_done, progress.epochs_done, progress.state) == (
        max_steps,
        epochs,
        "done",
    )
    last = curve.losses[7 * (epochs - 1) :]
    sizes = [BATCH] * 6 + [2]
    mean = sum(loss * size for loss, size in zip(last, sizes, strict=False))
    assert progress.final["train/loss"] == pytest.approx(mean / sum(sizes[: len(last)]))


def with_val(x: Tensor = X_OTHER[:20], y: Tensor = Y_OTHER[:20]) -> Workload:
    return workload(data=Dataset("own", Split(X, Y), Split(X_OTHER, Y_OTHER), val=Split(x, y)))


def test_the_best_epoch_by_validation_is_kept(tmp_path: Path) -> None:
    """Labels of the validation set are wrong, so that learning makes it worse."""
    own = with_val(X_OTHER[:20], 1 - Y_OTHER[:20])
    curve, progress, model = trained(tmp_path, own, keep_best=True, epochs=5, lr=0.5)
    losses = [point.metrics["val/loss"] for point in curve.epochs]
    best = losses.index(min(losses))
    assert best < 4
    assert progress.best_epoch == best + 1
    assert progress.final == dict(curve.epochs[best].metrics)
    assert loss_on(model) == pytest.approx(progress.final["test/loss"], rel=1e-6)
    assert loss_on(model, X_OTHER[:20], 1 - Y_OTHER[:20]) == pytest.approx(min(losses), rel=1e-6)


@pytest.mark.parametrize("patience", [1, 2])
def test_training_stops_where_validation_has_not_been_better_for_long(
    patience: int, tmp_path: Path
) -> None:
    own = with_val(X_OTHER[:20], 1 - Y_OTHER[:20])
    curve, progress, _ = trained(tmp_path, own, patience=patience, epochs=30, lr=0.5)
    losses = [point.metrics["val/loss"] for point in curve.epochs]
    assert progress.state == "done"
    assert progress.epochs_done == len(losses) == losses.index(min(losses)) + 1 + patience < 30


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    asked: tuple[tuple[dict[str, Any], str], ...] = (
        ({"patience": 2}, "patience: decides by a validation set, and there is none"),
        ({"epochs": 2, "max_steps": 5}, "epochs: has no effect beside max_steps"),
        ({"accumulate": 0}, "accumulate: got 0, must be greater than 0"),
        ({"ema": 1.0}, "ema: got 1.0, must be less than 1"),
        ({"processes": 2, "ema": 0.9}, "ema: got 0.9, but only one process can train so"),
    )
    for settings, problem in asked:
        with pytest.raises(TrainlabError, match=problem):
            trainlab.run(workload(), **settings, out=str(tmp_path / "r"))
    own = workload(optimizer=lambda model, settings: torch.optim.SGD(model.parameters(), 0.1))
    vary = {"weight_decay": [0.0, 1.0]}
    with pytest.raises(SpecError, match="weight_decay: is varied, but the workload's own optimi"):
        trainlab.run(own, vary=vary, batch_size=8, out=str(tmp_path / "r"))


def test_what_a_run_says_of_these_settings_is_true(tmp_path: Path) -> None:
    given: dict[str, Any] = {"batch_size": 8, "device": "cpu"}
    run = trainlab.run(workload(), accumulate=3, out=tmp_path / "a", **given)
    assert not any("no more training samples" in one for one in run.sentences())
    run = trainlab.run(workload(), max_steps=5, out=tmp_path / "m", **given)
    report = run.report(formats=("md",)).read_text()
    assert "after 5 updates" in report
    assert "epochs = " not in report.partition("[settings]")[2]
    run = trainlab.run(
        workload(), epochs=3, keep_best=True, val_fraction=0.2, out=tmp_path / "k", **given
    )
    report = run.report(formats=("md",)).read_text()
    assert "in the epoch with the lowest validation loss" in report
    assert "after 3 epochs" not in report


def test_losses_by_different_losses_are_not_compared(tmp_path: Path) -> None:
    run = trainlab.run(
        workload(),
        vary={"loss.label_smoothing": [0.0, 0.5]},
        seeds=3,
        batch_size=8,
        device="cpu",
        out=tmp_path / "r",
    )
    assert {finding.subject for finding in run.findings()}.isdisjoint({"test/loss", "train/loss"})
