"""Follower: is told of the moments of a script's training, beside the clock."""

from typing import Any

from torch import nn
from torch.optim import Optimizer

from trainlab.watching.seeing.seen import SeenLoader


class Follower:
    """Overrides the moments it needs; the time it takes counts nowhere."""

    def pass_begins(self, loader: SeenLoader) -> None:
        """A pass over a loader begins, for training or not."""

    def forward_begins(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """A model that the script itself calls begins, with these arguments by place."""

    def forward_ends(self) -> None:
        """It has returned."""

    def backward_ends(self) -> None:
        """A backward pass is over."""

    def update_begins(self, optimizer: Optimizer) -> None:
        """The gradients are what the optimizer is given."""

    def update_ends(self) -> None:
        """It has changed the weights."""
