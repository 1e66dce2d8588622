"""Everything random in a trial, drawn from its seed alone."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

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
def initial_weights(seed: int) -> Iterator[None]:
    """Models made in this block draw their weights from the seed; the caller's draws are untouched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived(seed, "weights"))
        yield


def seed_dropout(seed: int) -> None:
    """Seeds the global generators of every device, which dropout and its kind draw from."""
    torch.manual_seed(derived(seed, "dropout"))
