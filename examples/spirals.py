"""A workload of one's own: two spirals, told apart by a small network."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainlab import Dataset, Split, Workload


def spirals(count: int, seed: int) -> Split:
    """Points of two interleaved spirals with a little noise, and which spiral each is on."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    turn = torch.rand(count, generator=draw).sqrt() * 3 * math.pi
    angle = turn + math.pi * labels
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1) / 10
    return Split(points + 0.02 * torch.randn(count, 2, generator=draw), labels)


def data(choice: str) -> Dataset:
    """2,000 points to learn from and 500 to test on, whatever `--data` says."""
    return Dataset("spirals", train=spirals(2000, seed=1), test=spirals(500, seed=2))


class Net(nn.Module):
    """Two hidden layers; its parameters can be set with `--model hidden=8`."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(2, hidden), nn.ReLU()),
            *(nn.Linear(hidden, hidden), nn.ReLU()),
            nn.Linear(hidden, 2),
        )

    def forward(self, points: Tensor) -> Tensor:
        logits: Tensor = self.layers(points)
        return logits


workload = Workload(
    name="spirals",
    model=Net,
    data=data,
    loss=F.cross_entropy,
    defaults={"epochs": 20, "batch_size": 50, "optimizer": "adam", "lr": 0.01},
)
