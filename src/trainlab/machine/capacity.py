"""What this machine can do, as far as that is known without torch."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

from trainlab.errors import SpecError

SPARE_SHARE = 0.1
"""Of the memory there is, kept free."""


def copies_that_fit() -> int:
    """Further processes as large as this one that fit into the memory that is free now."""
    memory, own = psutil.virtual_memory(), psutil.Process().memory_info().rss
    return max(0, int((memory.available - SPARE_SHARE * memory.total) // own))


def cpus_text(number: int) -> str:
    """`1 CPU`, `4 CPUs`."""
    return "1 CPU" if number == 1 else f"{number} CPUs"


def may_use_gpu(devices: Iterable[Any]) -> bool:
    """Whether one of these devices is likely a GPU: torch is not asked."""
    has_gpu = Path("/dev/nvidiactl").exists() or sys.platform == "darwin"
    return has_gpu and set(devices) != {"cpu"}


def num_killed_for_memory() -> int:
    """Processes that the system has killed since it started because memory ran out; 0 where it does not
    say."""
    try:
        counts = Path("/proc/vmstat").read_text().split()
        return int(counts[counts.index("oom_kill") + 1])
    except (OSError, ValueError):
        return 0


def check_capacity(threads: Iterable[Any], devices: Iterable[Any]) -> None:
    """SpecError where one of these settings asks for more than this machine has."""
    problems = [*_thread_problems(threads), *_device_problems(devices)]
    if problems:
        raise SpecError(dict.fromkeys(problems))


def _thread_problems(counts: Iterable[Any]) -> Iterator[str]:
    """torch starts as many threads as it is told to, and crashes where the system gives no more."""
    num_cpus = os.cpu_count() or 1
    for count in counts:
        if isinstance(count, int) and count > num_cpus:
            rule = f"but this machine has {cpus_text(num_cpus)}; use at most {num_cpus}"
            yield f"threads: got {count}, {rule}"


def _device_problems(devices: Iterable[Any]) -> Iterator[str]:
    if "mps" in devices and sys.platform != "darwin":
        yield "device: got mps, but this machine has no Apple GPU; use --device cpu"
