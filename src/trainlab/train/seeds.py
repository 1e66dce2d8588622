"""Everything random in a trial, drawn from its seed alone."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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


def random_state(device: torch.device) -> dict[str, Any]:
    """Of all generators that a model may draw from without being told: torch's, numpy's, Python's."""
    kind, words, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "python": random.getstate(),
        "numpy": (str(kind), [int(word) for word in words], *rest),
    }


def restore_random(device: torch.device, state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
    random.setstate(state["python"])
    kind, words, *rest = state["numpy"]
    np.random.set_state((kind, np.array(words, np.uint32), *rest))
