"""Kinds of models that people train: every seed learns what it learns alone, by whatever engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence

import trainlab
from training import ON_A_GPU
from trainlab import Dataset, Split, Workload

DRAWN = torch.Generator().manual_seed(0)
X = torch.randn(40, 5, 4, generator=DRAWN)
Y = (X.sum((1, 2)) > 0).long() + (X[:, 0, 0] > 0.5).long()
DATA = Dataset("series", Split(X[:27], Y[:27]), Split(X[27:], Y[27:]))


class Read(nn.Module):
    """Mixes the steps of a series by a layer; the last step tells the class."""

    def __init__(self, mixer: Callable[..., Any], size: int = 6) -> None:
        super().__init__()
        self.mixer, self.last = mixer, nn.Linear(size, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        mixed = self.mixer(inputs)
        mixed = mixed[0] if isinstance(mixed, tuple) else mixed
        return self.last(mixed[:, -1])


class Packed(nn.LSTM):
    """Both ways, over the part of each series that counts."""

    def forward(self, inputs: Tensor) -> Tensor:  # type: ignore[override]
        lengths = torch.arange(len(inputs)) % 5 + 1
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        _, (hidden, _) = super().forward(packed)
        return hidden.movedim(0, 1).flatten(1).unsqueeze(1)


class Cells(nn.LSTMCell):
    """Goes through the series step by step."""

    def forward(self, inputs: Tensor) -> Tensor:  # type: ignore[override]
        state = None
        for step in inputs.unbind(1):
            state = super().forward(step, state)
        assert state is not None
        return state[0].unsqueeze(1)


class Averaged(nn.Module):
    """Takes away a moving average, which it keeps in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(0.1 * inputs.mean((0, 1)))
        return inputs - self.mean


class Tied(nn.Module):
    """Looks words up, and takes the rows of the same table for its output."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6, padding_idx=0)
        self.last = nn.Linear(6, 11)
        self.last.weight = self.table.weight

    def forward(self, inputs: Tensor) -> Tensor:
        words = inputs[:, :, 0].mul(3).abs().clamp(0, 10).long()
        return self.last(self.table(words).mean(1))


class Attention(nn.MultiheadAttention):
    def forward(self, inputs: Tensor) -> Any:  # type: ignore[override]
        return super().forward(inputs, inputs, inputs)


def hooked() -> nn.Module:
    """One hook counts, in a list of its own, and another changes what the layer gives by it."""
    model, calls = Read(nn.Linear(4, 6)), list[int]()
    model.mixer.register_forward_pre_hook(lambda *_: calls.append(1))  # type: ignore[operator, union-attr]
    model.mixer.register_forward_hook(lambda *given: given[2] * (1 + 0.01 * len(calls)))  # type: ignore[operator, union-attr]
    return model


def normed() -> nn.Module:
    first, second = nn.Linear(4, 6), nn.Linear(6, 6)
    norms = parametrizations.weight_norm(first), parametrizations.spectral_norm(second)
    return Read(nn.Sequential(norms[0], nn.Tanh(), norms[1]))


KINDS: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: Read(nn.LSTM(4, 6, batch_first=True)),
    "GRU with dropout": lambda: Read(nn.GRU(4, 6, 2, batch_first=True, dropout=0.3)),
    "RNN": lambda: Read(nn.RNN(4, 6, batch_first=True)),
    "packed, both ways": lambda: Read(Packed(4, 3, batch_first=True, bidirectional=True)),
    "cells": lambda: Read(Cells(4, 6)),
    "batch norm": lambda: Read(nn.Sequential(nn.BatchNorm1d(5), nn.Linear(4, 6), nn.Dropout(0.2))),
    "moving average": lambda: Read(nn.Sequential(Averaged(), nn.Linear(4, 6))),
    "norms of weights": normed,
    "hooks": hooked,
    "tied weights": Tied,
    "attention": lambda: Read(Attention(4, 2, batch_first=True), 4),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_seed_of_every_kind_of_model_trains_as_by_eager(
    kind: str, device: str, tmp_path: Path
) -> None:
    workload = Workload(name="own", model=KINDS[kind], data=DATA, loss=F.cross_entropy)
    asked: dict[str, Any] = {"batch_size": 8, "epochs": 2, "device": device, "lr": 0.01}

    def finals(engine: str) -> list[dict[str, float | None]]:
        run = trainlab.run(
            workload, seeds=3, engine=engine, tensorboard=False, out=tmp_path / engine, **asked
        )
        assert [trial.state for trial in run.trials()] == ["done"] * 3, run.trials()[0].error
        return [dict(trial.final) for trial in run.trials()]

    expected = finals("eager")
    for engine in ("lanes", "auto"):
        for final, wanted in zip(finals(engine), expected, strict=True):
            assert final == pytest.approx(wanted, rel=5e-3, abs=1e-4), engine
