"""The settings of an update give on a GPU what a loop by hand gives there."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainlab
from trainlab import Dataset, Split, Workload
from trainlab.train.seeds import data_order, seeded

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

SIZE, BATCH, SEED, EPOCHS, LR = 50, 8, 3, 2, 0.05
DRAWN = torch.Generator().manual_seed(0)
X = torch.randn(SIZE, 6, generator=DRAWN)
Y = (X.sum(1) > 0).long()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def own(**fields: Any) -> Workload:
    data = Dataset("own", Split(X, Y), Split(X, Y))
    return Workload(
        **{"name": "own", "model": net, "data": data, "loss": F.cross_entropy, **fields}
    )


def loss_on(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float(F.cross_entropy(model.eval()(x), y))


def by_hand(
    clip_grad_norm: float | None = None,
    accumulate: int = 1,
    warmup_steps: int = 0,
    ema: float | None = None,
    precision: str = "fp32",
) -> tuple[list[float], float]:
    """The losses of every update, and that of the test at the end."""
    with seeded(SEED, "weights"):
        model = net()
    x, y, model = X.cuda(), Y.cuda(), model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
    average, losses = None, []
    for epoch in range(1, EPOCHS + 1):
        model.train()
        pieces = list(data_order(SEED, epoch, SIZE).split(BATCH))
        while group := pieces[:accumulate]:
            pieces = pieces[accumulate:]
            optimizer.zero_grad()
            total = 0.0
            for rows in group:
                with torch.autocast("cuda", torch.float16, enabled=precision == "fp16"):
                    loss = F.cross_entropy(model(x[rows.cuda()]), y[rows.cuda()])
                scaler.scale(loss / len(group)).backward()
                total += float(loss) * len(rows)
            losses.append(total / sum(map(len, group)))
            if clip_grad_norm is not None:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), clip_grad_norm)
            optimizer.param_groups[0]["lr"] = (
                LR * min(1, len(losses) / warmup_steps) if warmup_steps else LR
            )
            scaler.step(optimizer)
            scaler.update()
            if ema is not None:
                average = average or copy.deepcopy(model)
                for mean, value in zip(average.parameters(), model.parameters(), strict=True):
                    mean.data.lerp_(value.data, 1 - ema)
                average.load_state_dict(dict(average.state_dict(), **dict(model.named_buffers())))
    return losses, loss_on(average or model, x, y)


@pytest.mark.parametrize(
    "settings",
    [
        {"clip_grad_norm": 0.5},
        {"accumulate": 3},
        {"warmup_steps": 9},
        {"ema": 0.8},
        {"precision": "fp16", "clip_grad_norm": 0.3},
        {"clip_grad_norm": 0.5, "accumulate": 2, "warmup_steps": 4, "ema": 0.9},
    ],
    ids=str,
)
def test_an_update_is_the_one_by_hand(settings: dict[str, Any], tmp_path: Path) -> None:
    run = trainlab.run(
        own(),
        **settings,
        device="cuda",
        seeds=(SEED,),
        optimizer="sgd",
        lr=LR,
        batch_size=BATCH,
        epochs=EPOCHS,
        log_every_steps=1,
        out=tmp_path / "r",
    )
    (trial,) = run.trials()
    assert trial.state == "done", trial.error
    lines = [line for line in run.trial(trial.id).curve() if line["kind"] == "step"]
    losses, tested = by_hand(**settings)
    assert [line["train/loss"] for line in lines] == pytest.approx(losses, rel=1e-3)
    assert trial.final["test/loss"] == pytest.approx(tested, rel=1e-3)


def test_the_best_epoch_is_kept_and_training_stops(tmp_path: Path) -> None:
    """Labels of the validation set are wrong, so that learning makes it worse."""
    data = Dataset("own", Split(X, Y), Split(X, Y), val=Split(X[:20], 1 - Y[:20]))
    settings = {"lr": 0.5, "epochs": 30, "patience": 2, "keep_best": True, "batch_size": BATCH}
    run = trainlab.run(own(data=data), **settings, device="cuda", out=tmp_path / "r")
    (trial,) = run.trials()
    assert trial.state == "done", trial.error
    epochs = [line for line in run.trial(trial.id).curve() if line["kind"] == "epoch"]
    losses = [line["val/loss"] for line in epochs]
    assert len(losses) == losses.index(min(losses)) + 3 < 30
    assert trial.final["val/loss"] == min(losses)


class Greedy(nn.Module):
    """Wants more memory than any GPU has at its second batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) > BATCH:
            x = x + torch.zeros(1 << 41, device=x.device, dtype=torch.uint8)[0]
        return self.linear(x)


def test_a_trial_out_of_memory_is_an_outcome_and_the_others_go_on(tmp_path: Path) -> None:
    with pytest.warns(trainlab.TrialsFailedWarning, match="memory"):
        run = trainlab.run(
            own(model=Greedy),
            vary={"batch_size": (BATCH, 2 * BATCH)},
            device="cuda",
            seeds=2,
            on="processes",
            out=tmp_path / "r",
        )
    states = {(trial.settings["batch_size"], trial.seed): trial.state for trial in run.trials()}
    assert [states[BATCH, seed] for seed in (1, 2)] == ["done", "done"]
    assert [states[2 * BATCH, seed] for seed in (1, 2)] == ["failed", "failed"]
