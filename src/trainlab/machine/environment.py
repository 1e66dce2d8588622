"""Environment: the machine and software a run happened on, everything that could explain a number."""

import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from trainlab.machine.host import cpu_model, gpus_here, output_of, usable_vcpus
from trainlab.record.study_record import Environment

PACKAGES = (
    *("trainlab", "torch", "numpy", "tensorboard", "pydantic", "scipy", "pandas"),
    *("torchvision", "lightning", "keras", "jax", "tensorflow", "tensorflow-cpu"),
)
"""Those whose version can change a number or a file."""

THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND", "KMP_AFFINITY"),
    *("CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE"),
)


def capture(folder: Path) -> Environment:
    """This machine and process now; `folder` says whose git commit is meant. Imports torch."""
    return with_torch(machine_of(folder), torch_facts())


def machine_of(folder: Path) -> Environment:
    """The machine alone: nothing of a process."""
    commit = _git(folder, "rev-parse", "HEAD")
    system = f"{platform.system()} {platform.version()}"
    with suppress(OSError, KeyError):
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    gpus, driver = gpus_here()
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
        packages=versions,
        variables={name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        git_commit=commit,
        git_dirty=None if commit is None else _is_dirty(folder),
    )


def with_torch(machine: Environment, facts: Mapping[str, Any]) -> Environment:
    """The machine and a process that has told its `torch_facts`."""
    packages = machine.packages | facts["packages"]
    return machine.model_copy(update={**facts, "packages": packages})


def torch_facts() -> dict[str, Any]:
    """What an Environment has of the torch of this process, which is imported."""
    import torch

    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    return {
        # Its own word: its build (+cpu, +cu130) is part of its version.
        "packages": {"torch": torch.__version__},
        "cuda": torch.version.cuda,
        "cudnn": None if cudnn is None else str(cudnn),
        "torch_threads": torch.get_num_threads(),
        "torch_interop_threads": torch.get_num_interop_threads(),
        "tf32": tf32_modes(),
    }


def _git(folder: Path, *words: str) -> str | None:
    """What git says; it locks nothing and starts no monitor."""
    quietly = ("--no-optional-locks", "-c", "core.fsmonitor=false")
    return output_of(["git", "-C", str(folder), *quietly, *words])


def _is_dirty(folder: Path) -> bool | None:
    """Whether a tracked file was changed."""
    status = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    found = _git(folder, *status)
    return None if found is None else bool(found)


def tf32_modes() -> dict[str, bool]:
    """Whether fp32 matrix products and convolutions may run as TF32 on a GPU."""
    import torch

    matmul = torch.backends.cuda.matmul
    of_conv = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    return {"matmul": matmul.fp32_precision == "tf32", "convolution": of_conv == "tf32"}
