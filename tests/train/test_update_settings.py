"""Clipping, accumulation, warm-up, averages, precision and validation give what a loop by hand gives."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import trainlab
from training import ON_A_GPU, curve_of
from trainlab import Dataset, Split, Workload
from trainlab.errors import SpecError, TrainlabError
from trainlab.train.engines import tuned
from trainlab.train.seeds import data_order, seeded

SIZE, BATCH, SEED, LR = 50, 8, 3, 0.05
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


def loss_on(model: nn.Module, x: Tensor = X_OTHER, y: Tensor = Y_OTHER) -> float:
    with torch.no_grad():
        return float(F.cross_entropy(model.eval()(x), y))


def by_hand(
    device: str = "cpu",
    clip_grad_norm: float | None = None,
    accumulate: int = 1,
    warmup_steps: int = 0,
    ema: float | None = None,
    precision: str = "fp32",
) -> tuple[list[float], list[float], nn.Module]:
    """The losses of every update, those of the test after each epoch, and the model that is tested."""
    with seeded(SEED, "weights"):
        model = net().to(device)
    (x, y), (x_test, y_test) = (
        (a.to(device), b.to(device)) for a, b in ((X, Y), (X_OTHER, Y_OTHER))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16")
    average, losses, tested = None, [], []
    for epoch in (1, 2):
        model.train()
        with seeded(SEED, "dropout", epoch, torch.device(device)):
            pieces = list(data_order(SEED, epoch, SIZE).split(BATCH))
            while group := pieces[:accumulate]:
                pieces = pieces[accumulate:]
                optimizer.zero_grad()
                total = 0.0
                for rows in group:
                    with torch.autocast(device, torch.float16, enabled=precision == "fp16"):
                        loss = F.cross_entropy(model(x[rows]), y[rows])
                    scaler.scale(loss / len(group)).backward()
                    total += float(loss.detach()) * len(rows)
                losses.append(total / sum(map(len, group)))
                if clip_grad_norm is not None:
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), clip_grad_norm)
                if warmup_steps:
                    optimizer.param_groups[0]["lr"] = LR * min(1, len(losses) / warmup_steps)
                scaler.step(optimizer)
                scaler.update()
                if ema is None:
                    continue
                if average is None:
                    average = copy.deepcopy(model)
                else:
                    for mean, value in zip(average.parameters(), model.parameters(), strict=True):
                        mean.data.lerp_(value.data, 1 - ema)
                average.load_state_dict(dict(average.state_dict(), **dict(model.named_buffers())))
        with torch.autocast(device, torch.float16, enabled=precision == "fp16"):
            tested.append(loss_on(average or model, x_test, y_test))
    return losses, tested, average or model


FROM_A_LOADER = Dataset(
    "l", DataLoader(TensorDataset(X, Y), BATCH, shuffle=True), Split(X_OTHER, Y_OTHER)
)
UPDATES: list[dict[str, Any]] = [
    {"clip_grad_norm": 0.9},
    {"accumulate": 3},  # the last update of an epoch takes the batches that are left
    {"accumulate": 20},
    {"warmup_steps": 10},
    {"ema": 0.8},
    {"precision": "fp16", "clip_grad_norm": 0.3},
    {"clip_grad_norm": 0.5, "accumulate": 2, "warmup_steps": 4, "ema": 0.9},
]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
@pytest.mark.parametrize("settings", UPDATES, ids=str)
def test_an_update_is_the_one_by_hand(
    settings: dict[str, Any], device: str, tmp_path: Path
) -> None:
    """On the CPU to the last bit."""
    losses, tested, model = by_hand(device, **settings)
    curve, progress, learned = curve_of(workload(), tmp_path, device=device, **settings)
    is_exact = device == "cpu"
    assert curve.losses == pytest.approx(losses, rel=1e-15 if is_exact else 1e-3)
    tests = [point.metrics["test/loss"] for point in curve.epochs]
    assert tests == pytest.approx(tested, rel=1e-6 if is_exact else 1e-3)
    assert progress.steps_done == 2 * -(-7 // settings.get("accumulate", 1))
    assert [point.samples for point in curve.points][-1] == 2 * SIZE
    for name, tensor in model.state_dict().items():
        theirs = learned.state_dict()[name]
        assert torch.equal(tensor, theirs) if is_exact else torch.allclose(tensor, theirs, rtol=0.1)
    assert (losses, tested) != by_hand(device)[:2]


def test_clipping_by_tuned_and_accumulation_of_a_loader_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Compiled code rounds in another order.
    monkeypatch.setattr(tuned, "find_compiler", lambda: None)
    curve, _, _ = curve_of(workload(), tmp_path, "tuned", clip_grad_norm=0.9)
    assert curve.losses == by_hand(clip_grad_norm=0.9)[0]
    curve, _, _ = curve_of(workload(data=FROM_A_LOADER), tmp_path, accumulate=3)
    assert curve.losses == pytest.approx(by_hand(accumulate=3)[0], rel=1e-15)


def test_the_first_bad_update_is_counted_in_updates(tmp_path: Path) -> None:
    calls = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        calls.append(1)
        return F.cross_entropy(outputs, targets) * (float("nan") if len(calls) == 6 else 1)

    own = workload(loss=loss)
    _, progress, _ = curve_of(own, tmp_path, accumulate=2, log_every_steps=4)
    assert (progress.state, progress.diverged_at_step) == ("diverged", 3)


def test_the_learning_rate_rises_in_equal_parts_to_that_of_the_schedule(tmp_path: Path) -> None:
    curve, _, _ = curve_of(workload(), tmp_path, warmup_steps=10, schedule="cosine", epochs=3)
    cosine = [rate for rate in (LR, 0.75 * LR, 0.25 * LR) for _ in range(7)]
    wanted = [rate * min(1, (step + 1) / 10) for step, rate in enumerate(cosine)]
    assert [point.metrics["lr"] for point in curve.points] == pytest.approx(wanted)


@pytest.mark.parametrize(("max_steps", "epochs"), [(1, 1), (7, 1), (20, 3)])
def test_training_ends_after_so_many_updates(max_steps: int, epochs: int, tmp_path: Path) -> None:
    curve, progress, _ = curve_of(workload(), tmp_path, max_steps=max_steps)
    whole, _, _ = curve_of(workload(), tmp_path / "whole", epochs=3)
    assert curve.losses == whole.losses[:max_steps]
    ended = progress.steps_done, progress.epochs_done, progress.state
    assert ended == (max_steps, epochs, "done")
    last = curve.losses[7 * (epochs - 1) :]
    sizes = [BATCH] * 6 + [2]
    mean = sum(loss * size for loss, size in zip(last, sizes, strict=False))
    assert progress.final["train/loss"] == pytest.approx(mean / sum(sizes[: len(last)]))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
def test_the_best_epoch_is_kept_and_training_stops_where_none_is_better_for_long(
    device: str, tmp_path: Path
) -> None:
    """Labels of the validation set are wrong, so that learning makes it worse."""
    x, y = X_OTHER[:20], 1 - Y_OTHER[:20]
    data = Dataset("own", Split(X, Y), Split(X_OTHER, Y_OTHER), val=Split(x, y))
    for patience in (1, 2):
        asked: dict[str, Any] = {"patience": patience, "keep_best": True, "epochs": 30, "lr": 0.5}
        own = workload(data=data)
        curve, progress, model = curve_of(own, tmp_path, device=device, **asked)
        losses = [point.metrics["val/loss"] for point in curve.epochs]
        best = losses.index(min(losses))
        assert (progress.state, progress.best_epoch) == ("done", best + 1)
        assert progress.epochs_done == len(losses) == best + 1 + patience < 30
        assert progress.final == dict(curve.epochs[best].metrics)
        model.cpu()
        assert loss_on(model) == pytest.approx(progress.final["test/loss"], rel=1e-5)
        assert loss_on(model, x, y) == pytest.approx(min(losses), rel=1e-5)


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


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Has no length."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(X, Y, strict=True)


def test_validation_data_may_be_a_stream(tmp_path: Path) -> None:
    data = Dataset("own", Stream(), Stream(), val=Stream())
    asked: dict[str, Any] = {"keep_best": True, "patience": 1, "batch_size": 8, "device": "cpu"}
    run = trainlab.run(workload(data=data), out=tmp_path / "r", **asked)
    (trial,) = run.trials()
    assert trial.state == "done"
    assert trial.data is not None
    assert (trial.data.num_train, trial.data.num_val) == (50, 50)
    assert run.report().is_file()
