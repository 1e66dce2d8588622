"""The machine and software a run happened on: everything that could explain a number."""

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from trainlab.record.study_record import Environment, Gpu

PACKAGES = (
    "trainlab",
    "torch",
    "numpy",
    "tensorboard",
    "pydantic",
    "scipy",
    "pandas",
    "torchvision",
    "lightning",
)
"""Those whose version can change a number or a file."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_PROC_BIND",
    "KMP_AFFINITY",
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
)


def capture(folder: Path) -> Environment:
    """This machine and process now; `folder` says whose git commit is meant. Imports torch."""
    import torch

    commit, dirty = _git(folder)
    gpus, driver = _gpus()
    return Environment(
        host=platform.node(),
        cpu=cpu_model(),
        num_vcpus=os.cpu_count() or 1,
        num_vcpus_usable=usable_vcpus(),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        gpus=gpus,
        driver=driver,
        os=_os_name(),
        kernel=platform.release(),
        python=platform.python_version(),
        # torch's own word: its build (+cpu, +cu130) is part of its version.
        packages=_packages() | {"torch": torch.__version__},
        variables={name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        git_commit=commit,
        git_dirty=dirty,
        **_torch_facts(),
    )


def usable_vcpus() -> int:
    """vCPUs this process may really use: the smaller of affinity and container quota."""
    count = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    quota_file = Path("/sys/fs/cgroup/cpu.max")
    if quota_file.exists():
        quota, _, period = quota_file.read_text().partition(" ")
        if quota.strip() != "max":
            count = min(count, max(1, int(quota) // int(period)))
    return count


def cpu_model() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                return " ".join(value.split())
        # On ARM the kernel names no model; lscpu knows the makers' numbers.
        for line in (_output(["lscpu"]) or "").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "Model name" and value.strip() not in ("", "-"):
                return f"{value.strip()} ({platform.machine()})"
    if sys.platform == "darwin":
        return _output(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.machine()
    return platform.processor() or platform.machine()


def _os_name() -> str:
    if sys.platform == "linux":
        try:
            return platform.freedesktop_os_release()["PRETTY_NAME"]
        except (OSError, KeyError):
            return "Linux"
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    return f"{platform.system()} {platform.version()}"


def _gpus() -> tuple[tuple[Gpu, ...], str | None]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), None
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        return tuple(_gpu(handle) for handle in handles), _text(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def _gpu(handle: Any) -> Gpu:
    import pynvml

    def queried(call: Any, *arguments: Any) -> Any:
        try:
            return call(handle, *arguments)
        except pynvml.NVMLError:  # a virtual GPU may refuse to tell
            return None

    memory = queried(pynvml.nvmlDeviceGetMemoryInfo)
    power_mw = queried(pynvml.nvmlDeviceGetPowerManagementLimit)
    return Gpu(
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        memory_gib=None if memory is None else round(memory.total / 2**30, 1),
        power_limit_w=None if power_mw is None else power_mw / 1000,
        sm_clock_max_mhz=queried(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _packages() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _torch_facts() -> dict[str, Any]:
    import torch

    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    return {
        "cuda": torch.version.cuda,
        "cudnn": None if cudnn is None else str(cudnn),
        "torch_threads": torch.get_num_threads(),
        "torch_interop_threads": torch.get_num_interop_threads(),
        "tf32": tf32_modes(),
    }


def tf32_modes() -> dict[str, bool]:
    """Whether fp32 matrix products and convolutions may run as TF32 on a GPU."""
    import torch

    if hasattr(
        torch.backends.cuda.matmul, "fp32_precision"
    ):  # since 2.9; the old names may then raise
        return {
            "matmul": torch.backends.cuda.matmul.fp32_precision == "tf32",
            "convolution": torch.backends.cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
        }
    return {
        "matmul": torch.backends.cuda.matmul.allow_tf32,
        "convolution": torch.backends.cudnn.allow_tf32,
    }


def _git(folder: Path) -> tuple[str | None, bool | None]:
    commit = _output(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if commit is None:
        return None, None
    changes = _output(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return commit, bool(changes)


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
