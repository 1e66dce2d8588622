"""Everything random in a trial, drawn from its seed alone."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def derived(seed: int, purpose: str, index: int = 0) -> int:
    """A seed for one purpose; streams for different purposes or indices are unrelated."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def data_order(seed: int, epoch: int, num_samples: int) -> Tensor:
    """The epoch's shuffled row numbers; drawn on the CPU, so equal on every device and batch size."""
    draw = torch.Generator().manual_seed(derived(seed, "order", epoch))
    return torch.randperm(num_samples, generator=draw)


@contextmanager
def drawing_from(
    seed: int, purpose: str, index: int = 0, device: torch.device | None = None
) -> Iterator[None]:
    """Whatever draws in this block (torch, numpy, random) draws from the seed; outside, nothing changes."""
    value = derived(seed, purpose, index)
    python, legacy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(
        devices=[device] if device is not None and device.type == "cuda" else []
    ):
        torch.manual_seed(value)
        random.seed(value)
        np.random.seed(value % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)
