"""This machine: its CPUs, how much of it is free, and where a user's files lie."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs
import psutil

from trainlab.errors import RecordError, SpecError
from trainlab.record.files import writing
from trainlab.record.study_record import Gpu


def usable_vcpus() -> int:
    """vCPUs this process may really use: the smaller of affinity and container quota."""
    has_affinity = hasattr(os, "sched_getaffinity")  # macOS has none
    count = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no such file, or no quota: `max 100000`
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text().split())
        count = min(count, max(1, quota // period))
    return count


def cpu_model() -> str:
    if sys.platform == "darwin":
        return output_of(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.machine()
    # On ARM the kernel names no model; lscpu knows the makers' numbers.
    places = {"/proc/cpuinfo": ("model name", "Model"), "lscpu": ("Model name",)}
    for place, names in places.items() if sys.platform == "linux" else ():
        told = output_of(["lscpu"]) if place == "lscpu" else Path(place).read_text(errors="replace")
        for name, _, value in (line.partition(":") for line in (told or "").splitlines()):
            if name.strip() in names and value.strip() not in ("", "-"):
                model = " ".join(value.split())
                return f"{model} ({platform.machine()})" if place == "lscpu" else model
    return platform.processor() or platform.machine()


def output_of(command: list[str]) -> str | None:
    """What a command prints; None where it fails or takes long."""
    run = partial(subprocess.run, capture_output=True, timeout=5, errors="surrogateescape")
    try:
        done = run(command)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.rstrip() if done.returncode == 0 else None


SPARE_SHARE = 0.1
"""Of the memory there is, kept free."""


def copies_that_fit() -> int:
    """Further processes as large as this one that fit into the memory that is free now."""
    memory, own = psutil.virtual_memory(), psutil.Process().memory_info().rss
    return max(0, int((memory.available - SPARE_SHARE * memory.total) // own))


def cpus_text(number: int) -> str:
    """`1 CPU`, `4 CPUs`."""
    return "1 CPU" if number == 1 else f"{number} CPUs"


def num_killed_for_memory() -> int:
    """Processes that the system has killed for memory since it started; 0 where it does not say."""
    try:
        counts = Path("/proc/vmstat").read_text().split()
        return int(counts[counts.index("oom_kill") + 1])
    except (OSError, ValueError):
        return 0


def check_capacity(threads: Iterable[Any], devices: Iterable[Any]) -> None:
    """SpecError where one of these settings asks for more than this machine has: torch starts as many
    threads as it is told to, and crashes where the system gives no more."""
    num_cpus = os.cpu_count() or 1
    rule = f"but this machine has {cpus_text(num_cpus)}; use at most {num_cpus}"
    too_many = [count for count in threads if isinstance(count, int) and count > num_cpus]
    problems = [f"threads: got {count}, {rule}" for count in too_many]
    if "mps" in devices and sys.platform != "darwin":
        problems.append("device: got mps, but this machine has no Apple GPU; use --device cpu")
    if problems:
        raise SpecError(dict.fromkeys(problems))


CACHE_VARIABLE = "TRAINLAB_CACHE"


def cache_folder() -> Path:
    """The user's cache; the environment variable TRAINLAB_CACHE moves it."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("trainlab"))


def private_folder(name: str) -> Path:
    """A folder of this user's alone, for code that is loaded and for what decides what may run: not in a
    cache, which may be shared."""
    folder = Path(platformdirs.user_state_dir("trainlab")) / name
    with writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return private(folder)


def private(path: Path) -> Path:
    """The file or folder; RecordError where another user owns it, or may open it."""
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        rule = f"must belong to you alone; remove it, or run `chmod 700 {path}` if it is yours"
        raise RecordError(f"{path}: {rule}")
    return path


@dataclass(frozen=True)
class Footprint:
    """Of a process that is set up and warm."""

    host_bytes: int
    device_bytes: int = 0
    device_free_bytes: int = 0
    device_total_bytes: int = 0

    def fits_again(self, times: int = 1) -> bool:
        """Whether so many other processes like this one fit into the memory that is free now."""
        host = psutil.virtual_memory()
        fits_host = host.available - times * self.host_bytes >= SPARE_SHARE * host.total
        spare_bytes = SPARE_SHARE * self.device_total_bytes
        return fits_host and self.device_free_bytes - times * self.device_bytes >= spare_bytes


def gpus_here() -> tuple[tuple[Gpu, ...], str | None]:
    """Each as the driver names it, and the driver's version."""
    import pynvml

    def queried(call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except pynvml.NVMLError:  # a virtual GPU may refuse to tell
            return None

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), None
    gpus = []
    for number in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
        memory = queried(pynvml.nvmlDeviceGetMemoryInfo, handle)
        power_mw = queried(pynvml.nvmlDeviceGetPowerManagementLimit, handle)
        clock_mhz = queried(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM)
        gpus.append(
            Gpu(
                name=pynvml.nvmlDeviceGetName(handle),
                memory_gib=None if memory is None else round(memory.total / 2**30, 1),
                power_limit_w=None if power_mw is None else power_mw / 1000,
                sm_clock_max_mhz=clock_mhz,
            )
        )
    driver = pynvml.nvmlSystemGetDriverVersion()
    pynvml.nvmlShutdown()
    return tuple(gpus), driver
