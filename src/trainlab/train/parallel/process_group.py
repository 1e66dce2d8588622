"""The process group: how the processes of a trial exchange gradients, without leaving this machine."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import distributed, nn
from torch._C._distributed_c10d import FileStore
from torch.nn.parallel import DistributedDataParallel

from trainlab.train.rank import Rank

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def backend_for(device: torch.device) -> str:
    """The library that exchanges gradients between devices of that kind."""
    return "nccl" if device.type == "cuda" else "gloo"


def join(rank: Rank, store: Path, device: torch.device) -> None:
    """Waits until all processes have come. They meet in a file and exchange over the loopback interface."""
    with _over_loopback():
        distributed.init_process_group(
            backend_for(device),
            store=FileStore(str(store), rank.of),
            rank=rank.number,
            world_size=rank.of,
        )


def leave() -> None:
    """The processes part; the others may be gone already."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def in_parallel(model: nn.Module, device: torch.device) -> DistributedDataParallel:
    """The model, its gradients averaged over all processes as they are computed; all begin with the weights
    of the first. Every update looks which parameters it has reached: that may differ between processes, and
    one that waits for a gradient that never comes takes all down."""
    warnings.filterwarnings("ignore", message="find_unused_parameters=True was specified")
    indices = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(model, indices, find_unused_parameters=True)


@contextmanager
def _over_loopback() -> Iterator[None]:
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    missing = [name for name in names if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, LOOPBACK))
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]
