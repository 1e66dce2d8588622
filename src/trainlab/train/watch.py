"""Watching a program from inside: what an instrument offers where the steps of a group are a program.

The Python of a program's step runs once for all trials of the group, and on a GPU only until the step is
captured. So what a watch does in a step is queued on the device and stays in tensors; the host reads them
between steps.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ProgramView:
    """What a program shows of itself. A lane is one trial's share of a tensor."""

    model: nn.Module
    """Whose modules are called, for all trials."""
    device: torch.device
    precision: str
    num_lanes: int
    is_vectorised: bool
    """Whether the model's tensors are those of all lanes, seen through vmap; else there is one lane."""
    parameters: Mapping[str, Tensor]
    """By name, with the lanes as first dimension."""
    constants: Sequence[Tensor]
    """The tensors that the model's parameters and buffers are in the program."""


class ProgramWatch(Protocol):
    """Sees every step of a group. Moments of the step come first, then those between steps.

    In a step nothing may depend on numbers of the host that change from step to step.
    """

    @property
    def tensors(self) -> Sequence[Tensor]:
        """All that a step changes, once each kind of step has run; changed in place only."""

    def forward(self, num_samples: int) -> AbstractContextManager[None]:
        """Entered around model and loss of a step of so many samples per trial."""

    def backward_ends(self) -> None:
        """All gradients of the step have been computed."""

    def gradients_ready(self, gradients: Mapping[str, Tensor]) -> None:
        """The gradients that the optimizer gets, by parameter, with the lanes as first dimension."""

    def update_ends(self) -> None:
        """The optimizer has updated the parameters."""

    def reference(self, num_samples: int) -> AbstractContextManager[AbstractContextManager[None]]:
        """Entered around a step that eager makes of the first trial; what it gives, around its model and
        loss. A watch that sees something else in the program raises `Unsuited` when that opens."""

    def opened(self) -> None:
        """The program stands ready; what was seen so far does not count."""

    def go_on(self, is_running: Sequence[bool]) -> None:
        """Before further steps: which of the trials still run."""

    def next_steps(self, most: int) -> int:
        """How many of that many steps are to be made now; `steps_done` follows them."""

    def steps_done(self, num_samples: int, num_steps: int) -> None:
        """So many steps of so many samples have been made, or queued."""
