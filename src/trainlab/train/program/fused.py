"""An update of many trials as one CUDA kernel: one pass over the numbers instead of a dozen.

The kernels (`updates.cu`) are compiled by NVRTC, which comes with torch, when they are first needed.
"""

from collections.abc import Callable, Set
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

HYPERS = {
    "sgd": ("weight_decay", "momentum", "dampening"),
    "adam": ("weight_decay", "beta1", "beta2", "eps"),
    "adamw": ("weight_decay", "beta1", "beta2", "eps"),
    "adadelta": ("weight_decay", "rho", "eps"),
    "rmsprop": ("weight_decay", "alpha", "eps", "momentum"),
    "adagrad": ("weight_decay", "lr_decay", "eps"),
}
"""The settings of each optimizer in the order in which its kernel reads them."""
STATE = {
    "sgd": ("momentum",),
    "adam": ("mean", "square", "largest"),
    "adamw": ("mean", "square", "largest"),
    "adadelta": ("square", "delta"),
    "rmsprop": ("square", "mean", "momentum"),
    "adagrad": ("sum",),
}
"""What each keeps for every number, in the order of its kernel, and of the compiled code on a CPU."""
FLAGS = {"amsgrad": 1, "nesterov": 2, "centered": 4, "momentum": 8, "decoupled": 16}
THREADS = 256
NUMBERS_PER_THREAD = 4

Kernel = Callable[..., None]


@cache
def kernel_of(optimizer: str, device: torch.device) -> Kernel | None:
    """The optimizer's kernel; None where there is none: then the update is made of torch's operations."""
    compile_kernel: Any = getattr(torch.cuda, "_compile_kernel", None)
    if device.type != "cuda" or torch.version.hip is not None or compile_kernel is None:
        return None
    source = files("trainlab.train.program").joinpath("updates.cu").read_text()
    name = "adam" if optimizer == "adamw" else optimizer
    try:
        with torch.cuda.device(device):
            kernel: Kernel = compile_kernel(source, name)
    except (RuntimeError, OSError):  # no NVRTC that fits the driver
        return None
    return kernel


class FusedUpdate:
    """One kernel, its settings laid out as it reads them."""

    def __init__(
        self,
        kernel: Kernel,
        optimizer: str,
        exact: dict[str, Tensor],
        state: dict[str, Tensor],
        flags: Set[str],
    ) -> None:
        """`exact` are the optimizer's settings as columns of float64; `flags` what the update has."""
        self._kernel = kernel
        self._hypers = torch.cat([exact[name] for name in HYPERS[optimizer]], dim=1).contiguous()
        unused = next(iter(state.values())) if state else self._hypers
        kept = [state.get(name, unused) for name in STATE[optimizer]]
        self._state = [*kept, *[unused] * (3 - len(kept))]
        self._flags = sum(bit for name, bit in FLAGS.items() if name in flags)

    def step(self, parameters: Tensor, gradients: Tensor, rates: Tensor, steps: Tensor) -> None:
        """One update of every row; all tensors must lie whole in memory."""
        num_rows, num_numbers = parameters.shape
        blocks = -(-num_numbers // (THREADS * NUMBERS_PER_THREAD))
        self._kernel(
            grid=(blocks, num_rows, 1),
            block=(THREADS, 1, 1),
            args=[
                parameters,
                gradients,
                *self._state,
                self._hypers,
                self._hypers.shape[1],
                rates,
                steps,
                num_numbers,
                self._flags,
            ],
        )
