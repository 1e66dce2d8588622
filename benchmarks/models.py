"""Which engine trains models of many kinds, and how much faster than eager.

    python -m benchmarks.models [--device cuda] [--rounds 7] [--json FILE]

A dozen small models of the kinds that people train. For each: the engine that `auto` takes for one trial
and, on a GPU, for a study of eight; why another could not be taken; and how many times as fast as eager it
makes an update of one trial, in turn within rounds, with the 95% interval of the median ratio.
"""

import argparse
import json
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.engines import blocks_of, timed
from benchmarks.loop import interval
from trainlab.data.dataset import Dataset, Split
from trainlab.machine.device import device_name, pick_device
from trainlab.machine.host import CACHE_VARIABLE
from trainlab.plan import Trial
from trainlab.spec import settings_for
from trainlab.train.engines import ENGINES, engines_for
from trainlab.train.engines.engine import Unsuited
from trainlab.train.setup import Setup, set_up
from trainlab.words import Words
from trainlab.workloads.workload import Workload

NUM_SAMPLES = 2048
NUM_TOGETHER = 8
BLOCK_MS = 150.0
"""About how long a block of updates takes."""


class Residual(nn.Module):
    """Two convolutions with batch norm around a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


class Recurrent(nn.Module):
    """The last state of a recurrent layer, to classes."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(28, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.layer(x)
        return self.head(outputs[:, -1])


class Words2Class(nn.Module):
    """A small transformer over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(200, 64), nn.Parameter(torch.zeros(1, 32, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.tokens(x) + self.places).mean(1))


class Gated(nn.Module):
    """Decides by the batch which of two ways to take."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) if x.mean() > 0 else self.second(x)


def images(channels: int, size: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(NUM_SAMPLES, channels, size, size)


def rows(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(NUM_SAMPLES, *shape)


def tokens() -> Tensor:
    return torch.randint(200, (NUM_SAMPLES, 32))


@dataclass(frozen=True)
class Kind:
    """A model and what it is trained on."""

    name: str
    model: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    settings: dict[str, Any]


def _mixer() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(2),
        nn.Linear(64, 64),
        nn.GELU(),
        nn.LayerNorm(64),
        nn.Flatten(),
        nn.Linear(192, 10),
    )


def _separable() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, groups=32),
        nn.Conv2d(32, 64, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def _lenet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, 10),
    )


def _residual() -> nn.Module:
    parts = [nn.Conv2d(3, 16, 3, padding=1), Residual(16), nn.MaxPool2d(2), Residual(16)]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def _deep() -> nn.Module:
    hidden = [part for _ in range(8) for part in (nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.1))]
    return nn.Sequential(nn.Linear(64, 128), *hidden, nn.Linear(128, 10))


ADAM: dict[str, Any] = {"optimizer": "adam", "lr": 1e-3, "batch_size": 32}
KINDS = (
    Kind(
        "logistic regression", lambda: nn.Linear(64, 10), rows(64), {"optimizer": "sgd", "lr": 0.1}
    ),
    Kind(
        "MLP",
        lambda: nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)),
        rows(64),
        ADAM,
    ),
    Kind("deep MLP with dropout", _deep, rows(64), ADAM),
    Kind(
        "MLP with batch norm",
        lambda: nn.Sequential(
            nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10)
        ),
        rows(64),
        ADAM,
    ),
    Kind("LeNet", _lenet, images(1, 28), {"optimizer": "sgd", "lr": 0.01, "momentum": 0.9}),
    Kind(
        "residual network",
        _residual,
        images(3, 16),
        {"optimizer": "sgd", "lr": 0.01, "momentum": 0.9},
    ),
    Kind("separable convolutions", _separable, images(3, 16), {"optimizer": "rmsprop", "lr": 1e-3}),
    Kind("mixer with layer norm", _mixer, images(3, 8), {"optimizer": "adamw", "lr": 1e-3}),
    Kind("transformer", Words2Class, tokens, {"optimizer": "adamw", "lr": 1e-3, "batch_size": 32}),
    Kind("LSTM", lambda: Recurrent(nn.LSTM), rows(16, 28), ADAM),
    Kind("GRU", lambda: Recurrent(nn.GRU), rows(16, 28), ADAM),
    Kind("a branch by the data", Gated, rows(64), ADAM),
)


def setups_of(kind: Kind, device: str, number: int) -> list[Setup]:
    """So many trials of it, ready."""

    def data(choice: str) -> Dataset:
        inputs, targets = kind.inputs(), torch.randint(10, (NUM_SAMPLES,))
        return Dataset(kind.name, Split(inputs, targets), Split(inputs[:100], targets[:100]))

    workload = Workload(name=kind.name, model=kind.model, data=data, loss=F.cross_entropy)
    settings = settings_for({}, {"epochs": 100, "device": device, **kind.settings})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        dataset = data("auto")
    trials = [
        Trial(id="bench", workload="x", seed=s, settings=settings) for s in range(1, number + 1)
    ]
    return [set_up(trial, workload, dataset) for trial in trials]


def fastest(kind: Kind, device: str, number: int) -> tuple[str, Callable[[int], None], str]:
    """The engine that auto takes, its blocks, and why others could not be taken."""
    setups, reasons = setups_of(kind, device, number), []
    for engine in engines_for(setups[0].settings, setups[0].device, has_others=number > 1):
        if number > 1 and not engine.takes_many:
            break
        try:
            return engine.name, blocks_of(engine, setups), " ".join(reasons)
        except Unsuited as unsuited:
            values = {"engine": engine.name, **unsuited.values}
            reasons.append(Words("en").note(f"engine_{unsuited.why}", values))
    name, block, more = fastest(kind, device, 1)
    return name, block, " ".join(filter(None, [*reasons, more]))


def measure(kind: Kind, device: str, numbers: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """Prints and returns a row for every number of trials."""
    where, told = pick_device(device), []
    for number in numbers:
        name, block, reasons = fastest(kind, device, number)
        together = number if ENGINES[name].takes_many else 1
        ways = {"eager": blocks_of(ENGINES["eager"], setups_of(kind, device, 1)), name: block}
        steps = {}
        for way, run in ways.items():
            timed(where, run, 10)
            steps[way] = max(10, int(BLOCK_MS / timed(where, run, 20)))
        ratios, times = [], []
        for _ in range(rounds):
            ms = {way: timed(where, run, steps[way]) for way, run in ways.items()}
            times.append(ms[name] / together)
            ratios.append(ms["eager"] * together / ms[name])
        low, high = interval(ratios)
        row = {
            "model": kind.name,
            "trials": number,
            "engine": name,
            "ms": statistics.median(times),
            "ratio": statistics.median(ratios),
            "interval": (low, high),
            "why_not": reasons,
        }
        print(
            f"{kind.name:24} {number:2}  {name:8} {row['ms']:8.3f} ms"
            f"  {row['ratio']:6.2f}x [{low:.2f}, {high:.2f}]  {reasons}",
            flush=True,
        )
        told.append(row)
    return told


def main() -> None:
    """Measures every model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_flush_denormal(True)
    where = pick_device(options.device)
    head = f"torch {torch.__version__}, {device_name(where)}, {torch.get_num_threads()} threads"
    print(f"{head}; ms per update and trial, times as fast as eager [95%]", flush=True)
    numbers = (1, NUM_TOGETHER) if where.type == "cuda" else (1,)
    with TemporaryDirectory() as cache:
        os.environ[CACHE_VARIABLE] = cache
        rows_told = [
            row for kind in KINDS for row in measure(kind, options.device, numbers, options.rounds)
        ]
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": head, "rows": rows_told}, indent=1))


if __name__ == "__main__":
    main()
