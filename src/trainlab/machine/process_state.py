"""What concerns a whole process: memory, denormals, threads, torch's switches; and where in memory it
lies."""

import ctypes
import os
import platform
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch.backends import cudnn

from trainlab.spec import TrainSpec

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
"""What code may switch in torch for its whole process: how each is read and set."""
ENOUGH_FOR_ALL_THREADS = 1 << 20
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
KEPT = {M_TRIM_THRESHOLD: 2**31 - 1, M_MMAP_MAX: 0}
GIVEN_BACK = {M_TRIM_THRESHOLD: 128 * 1024, M_MMAP_MAX: 65536}
"""glibc's own defaults; that it adjusts the first by itself is over once it has been set."""
_keeps_memory = False
MOST_BLOCKS = 16
SIZES_LOG2 = (10, 22)
"""Of their sizes in bytes: from part of a page to more than most caches hold."""


def prepare_process(settings: TrainSpec) -> None:
    """Before torch's threads start, that is, before data is loaded: they inherit what is set here.

    Numbers too small to be normal are computed with many times slower: an optimizer's running means decay
    to them after some 800 updates without gradient, and a step of mnist-cnn at batch 1 goes from 4.1 to 13
    ms (2026-11-15, two cores). Counted as zero they cost nothing.
    """
    if settings.allocator == "keep":
        keep_freed_memory()
    torch.set_flush_denormal(settings.denormals == "flush")
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)


def process_state() -> dict[str, Any]:
    """What the process was really told, for the record."""
    return {
        "threads": torch.get_num_threads(),
        "allocator_keeps_memory": _keeps_memory,
        "flushes_denormals": flushes_denormals(),
    }


@contextmanager
def process_restored() -> Iterator[None]:
    """After this block the process computes as it did before: a caller's own work comes after ours."""
    # Asked of this thread alone: torch's threads must not start before `prepare_process`.
    keeps, flushes = _keeps_memory, _num_denormal(1) == 0
    folder = Path.cwd()
    device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    try:
        with torch_restored():
            yield
    finally:
        os.chdir(folder)
        torch.set_flush_denormal(flushes)
        if not keeps:
            keep_freed_memory(keep=False)
        if device is not None:
            torch.cuda.set_device(device)


def switched() -> list[Any]:
    """How torch is switched now, for `switch`."""
    return [read() for read, _ in SWITCHES]


def switch(values: Sequence[Any]) -> None:
    """Switches torch as it was; nothing else is touched."""
    for (read, set_to), value in zip(SWITCHES, values, strict=True):
        if read() != value:
            set_to(value)


@contextmanager
def torch_restored() -> Iterator[Callable[[], None]]:
    """After this block torch is switched as it was before, and whenever what is given is called."""
    values, threads = switched(), torch.get_num_threads()

    def restore() -> None:
        torch.set_num_threads(threads)
        switch(values)

    try:
        yield restore
    finally:
        restore()


def flushes_denormals() -> bool | None:
    """Whether all of torch's threads do; None where only some do."""
    left = _num_denormal(ENOUGH_FOR_ALL_THREADS)
    return None if 0 < left < ENOUGH_FOR_ALL_THREADS else left == 0


def _num_denormal(count: int) -> int:
    """Of so many numbers that are denormal once halved, those that are not zero then. Counted as bits: a
    flushing thread takes all of them for zero."""
    halves = torch.full((count,), torch.finfo(torch.float32).tiny, dtype=torch.float32).div(2)
    return int(halves.view(torch.int32).count_nonzero())


def keep_freed_memory(*, keep: bool = True) -> None:
    """Tells glibc, for this whole process, to keep freed memory for reuse, or to give it back again.

    Else it returns large freed blocks to the system at once, and the next step pays a page fault for every
    4 KiB of them; whether it does depends on how the heap came to lie. The same update of mnist-cnn at
    batch 1 took 5 ms in one process and 10 to 18 ms in the next (2026-11-15, two cores).
    """
    global _keeps_memory
    if keep == _keeps_memory or platform.libc_ver()[0] != "glibc":
        return
    libc, wishes = ctypes.CDLL(None), KEPT if keep else GIVEN_BACK
    if all(libc.mallopt(name, value) == 1 for name, value in wishes.items()):
        _keeps_memory = keep
    if not keep:
        libc.malloc_trim(0)


@contextmanager
def random_layout(rng: random.Random | None = None) -> Iterator[None]:
    """What is made in this block lies where chance has put it: blocks of random sizes come before, which
    are never written and so take little more than addresses.

    Which cache lines two tensors share depends on their addresses, and these on all that the process has
    allocated before: processes that do the same find the same, and more of them show no spread. A forward
    pass of an MNIST network took 10.0 to 11.9 ms by this alone (2026-11-18, two cores, batch 64).
    """
    # Of its own: the random numbers of the process are the training's.
    rng = rng or random.Random()  # noqa: S311  no secret
    sizes = [int(2 ** rng.uniform(*SIZES_LOG2)) for _ in range(rng.randint(1, MOST_BLOCKS))]
    blocks: list[torch.UntypedStorage] = []
    with suppress(RuntimeError):
        # No tensors: these lie where the user's default device says, and may be filled.
        blocks += map(torch.UntypedStorage, sizes)
    try:
        yield
    finally:
        blocks.clear()
