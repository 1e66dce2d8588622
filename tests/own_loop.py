"""A training loop as a user writes it, for tests that watch one."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

Told = Callable[[str, float], None]


def nothing(name: str, value: float) -> None:
    """Nobody is told."""


class OwnLoop:
    """A small model with dropout on random points, its loader and its optimizer."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        torch.manual_seed(seed)
        self.x = torch.randn(64, 8)
        self.y = (self.x.sum(1) > 0).long()
        self.loader = DataLoader(TensorDataset(self.x, self.y), batch_size=16, shuffle=True)
        self.model = nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, **options)

    def train(self, epochs: int = 2, told: Told = nothing) -> list[float]:
        """The loss of every step; `told` hears of each step's and each test's accuracy."""
        losses = []
        for _ in range(epochs):
            self.model.train()
            for x, y in self.loader:
                self.optimizer.zero_grad()
                outputs = self.model(x)
                loss = F.cross_entropy(outputs, y)
                loss.backward()
                self.optimizer.step()
                losses.append(loss.item())
                told("accuracy", (outputs.argmax(1) == y).float().mean().item())
            self.model.eval()
            with torch.no_grad():
                told("accuracy", (self.model(self.x).argmax(1) == self.y).float().mean().item())
        return losses


def state_of_torch() -> list[Any]:
    """All that hooks could change."""
    return [
        dict(modules._global_forward_pre_hooks),
        dict(optimizers._global_optimizer_pre_hooks),
        dict(optimizers._global_optimizer_post_hooks),
        *(torch.autograd.backward, torch.autograd.grad, torch.amp.GradScaler.scale),
        *(Optimizer.zero_grad, Optimizer.__init__, nn.Module.zero_grad, nn.Module.eval),
        *(DataLoader.__iter__, _BaseDataLoaderIter.__next__, torch.Tensor.__dict__.get("to")),
    ]
