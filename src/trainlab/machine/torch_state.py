"""What code may switch in torch for its whole process, and how it was before."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.backends import cudnn

SWITCHES: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, torch.set_default_device),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (lambda: cudnn.benchmark, lambda on: setattr(cudnn, "benchmark", on)),
    (lambda: cudnn.deterministic, lambda on: setattr(cudnn, "deterministic", on)),
    (lambda: cudnn.allow_tf32, lambda on: setattr(cudnn, "allow_tf32", on)),
)
"""How each is read and set."""


class TorchState:
    """The switches as they are when it is made."""

    def __init__(self) -> None:
        self._values = [read() for read, _ in SWITCHES]

    def restore(self) -> None:
        """Sets what has been switched since; touches nothing else."""
        for (read, switch), value in zip(SWITCHES, self._values, strict=True):
            if read() != value:
                switch(value)


@contextmanager
def torch_restored() -> Iterator[None]:
    """After this block torch is switched as it was before."""
    state = TorchState()
    try:
        yield
    finally:
        state.restore()
