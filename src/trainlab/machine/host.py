"""The machine and software a run happened on: everything that could explain a number."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs
import psutil

from trainlab.errors import DataError, SpecError
from trainlab.record.study_record import Environment, Gpu

PACKAGES = (
    *("trainlab", "torch", "numpy", "tensorboard", "pydantic", "scipy", "pandas"),
    *("torchvision", "lightning"),
)
"""Those whose version can change a number or a file."""

THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND", "KMP_AFFINITY"),
    *("CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE"),
)


def capture(folder: Path) -> Environment:
    """This machine and process now; `folder` says whose git commit is meant. Imports torch."""
    import torch

    git = ["git", "-C", str(folder)]
    commit = _output([*git, "rev-parse", "HEAD"])
    changes = _output([*git, "status", "--porcelain", "--untracked-files=no"])
    system = f"{platform.system()} {platform.version()}"
    with suppress(OSError, KeyError):
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    gpus, driver = _gpus()
    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return Environment(
        host=platform.node(),
        cpu=cpu_model(),
        num_vcpus=os.cpu_count() or 1,
        num_vcpus_usable=usable_vcpus(),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        gpus=gpus,
        driver=driver,
        os=f"macOS {platform.mac_ver()[0]}" if sys.platform == "darwin" else system,
        kernel=platform.release(),
        python=platform.python_version(),
        # torch's own word: its build (+cpu, +cu130) is part of its version.
        packages=versions | {"torch": torch.__version__},
        variables={name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        git_commit=commit,
        git_dirty=None if commit is None else bool(changes),
        cuda=torch.version.cuda,
        cudnn=None if cudnn is None else str(cudnn),
        torch_threads=torch.get_num_threads(),
        torch_interop_threads=torch.get_num_interop_threads(),
        tf32=tf32_modes(),
    )


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
        return _output(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.machine()
    # On ARM the kernel names no model; lscpu knows the makers' numbers.
    places = {"/proc/cpuinfo": ("model name", "Model"), "lscpu": ("Model name",)}
    for place, names in places.items() if sys.platform == "linux" else ():
        told = _output(["lscpu"]) if place == "lscpu" else Path(place).read_text(errors="replace")
        for name, _, value in (line.partition(":") for line in (told or "").splitlines()):
            if name.strip() in names and value.strip() not in ("", "-"):
                model = " ".join(value.split())
                return f"{model} ({platform.machine()})" if place == "lscpu" else model
    return platform.processor() or platform.machine()


def _gpus() -> tuple[tuple[Gpu, ...], str | None]:
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


def tf32_modes() -> dict[str, bool]:
    """Whether fp32 matrix products and convolutions may run as TF32 on a GPU."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if hasattr(matmul, "fp32_precision"):  # since 2.9; the old names may then raise
        of_conv = cudnn.conv.fp32_precision  # type: ignore[attr-defined]
        return {"matmul": matmul.fp32_precision == "tf32", "convolution": of_conv == "tf32"}
    return {"matmul": matmul.allow_tf32, "convolution": cudnn.allow_tf32}


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


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
    """Processes that the system has killed since it started because memory ran out; 0 where it does not
    say."""
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
    return expanded(named) if named else Path(platformdirs.user_cache_dir("trainlab"))


def expanded(name: str) -> Path:
    """A path as users write it, `~` included."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise DataError(f"{name}: there is no such user's home") from None
