"""What of a trial's settings concerns its whole process: memory, denormal numbers, threads, the device."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from trainlab.machine.denormals import flush_denormals, flushes_denormals, this_thread_flushes
from trainlab.machine.memory.allocator import (
    keep_freed_memory,
    keeps_freed_memory,
    release_freed_memory,
)
from trainlab.machine.torch_state import torch_restored
from trainlab.spec import TrainSpec


def prepare_process(settings: TrainSpec) -> None:
    """Before torch's threads start, that is, before data is loaded: they inherit what is set here."""
    if settings.allocator == "keep":
        keep_freed_memory()
    flush_denormals(settings.denormals == "flush")
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)


def process_state() -> dict[str, Any]:
    """What the process was really told, for the record."""
    return {
        "threads": torch.get_num_threads(),
        "allocator_keeps_memory": keeps_freed_memory(),
        "flushes_denormals": flushes_denormals(),
    }


@contextmanager
def process_restored() -> Iterator[None]:
    """After this block the process computes as it did before, where it did: a caller's own work comes after
    ours."""
    # Asked of this thread alone: torch's threads must not start before `prepare_process`.
    threads, keeps, flushes = torch.get_num_threads(), keeps_freed_memory(), this_thread_flushes()
    folder = Path.cwd()
    device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    try:
        with torch_restored():
            yield
    finally:
        torch.set_num_threads(threads)
        os.chdir(folder)
        flush_denormals(flushes)
        if keeps_freed_memory() and not keeps:
            release_freed_memory()
        if device is not None:
            torch.cuda.set_device(device)
