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
    """What git says; no program runs that the repository's own configuration names: not as a monitor, as a
    hook for a new index, or to fetch what a partial clone lacks."""
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *words]
    nothing_fetched = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
    return output_of(command, GIT_OPTIONAL_LOCKS="0", **nothing_fetched)


def _is_dirty(folder: Path) -> bool | None:
    """Whether a tracked file was changed; None where only a filter, which is a program, could tell."""
    keys = _git(folder, "config", "--list", "-z", "--name-only")
    filters = [key for key in (keys or "").split("\0") if key.startswith("filter.")]
    if keys is None or any("=" in key for key in filters):  # such a one cannot be switched off
        return None
    without = (word for key in filters for word in ("-c", f"{key}="))
    status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=no")
    found = _git(folder, *without, *status, "--ignore-submodules=dirty")
    if not found or not filters:
        return None if found is None else bool(found)
    changed = [entry[3:] for entry in found.split("\0") if entry][:1000]  # a line is not endless
    attributes = _git(folder, "check-attr", "-z", "filter", "--", *changed) or ""
    return True if "unspecified" in attributes.split("\0")[2::3] else None


def tf32_modes() -> dict[str, bool]:
    """Whether fp32 matrix products and convolutions may run as TF32 on a GPU."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if hasattr(matmul, "fp32_precision"):  # since 2.9; the old names may then raise
        of_conv = cudnn.conv.fp32_precision  # type: ignore[attr-defined]
        return {"matmul": matmul.fp32_precision == "tf32", "convolution": of_conv == "tf32"}
    return {"matmul": matmul.allow_tf32, "convolution": cudnn.allow_tf32}
