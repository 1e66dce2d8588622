"""Everything random in a trial, drawn from its seed alone."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def derived_seed(seed: int, purpose: str, index: int = 0) -> int:
    """A seed for one purpose; streams for different purposes or indices are unrelated."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def data_order(seed: int, epoch: int, num_samples: int) -> Tensor:
    """The epoch's shuffled row numbers; drawn on the CPU, so equal on every device and batch size."""
    generator = torch.Generator().manual_seed(derived_seed(seed, "order", epoch))
    return torch.randperm(num_samples, generator=generator)


@contextmanager
def seeded(
    seed: int, purpose: str, index: int = 0, device: torch.device | None = None
) -> Iterator[None]:
    """Random numbers (torch, numpy, random) in this block come from the seed; outside, nothing changes."""
    value = derived_seed(seed, purpose, index)
    python_state, numpy_state = random.getstate(), np.random.get_state()
    gpus = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(value)
        random.seed(value)
        np.random.seed(value % 2**32)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
