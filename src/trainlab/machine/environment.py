"""Environment: the machine and software a run happened on, everything that could explain a number."""

import os
import platform
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import psutil

from trainlab.machine.host import cpu_model, output_of, usable_vcpus
from trainlab.record.study_record import Environment

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

    from trainlab.machine.device import gpus_here

    git = ["git", "-C", str(folder)]
    commit = output_of([*git, "rev-parse", "HEAD"])
    changes = output_of([*git, "status", "--porcelain", "--untracked-files=no"])
    system = f"{platform.system()} {platform.version()}"
    with suppress(OSError, KeyError):
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    gpus, driver = gpus_here()
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


def tf32_modes() -> dict[str, bool]:
    """Whether fp32 matrix products and convolutions may run as TF32 on a GPU."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if hasattr(matmul, "fp32_precision"):  # since 2.9; the old names may then raise
        of_conv = cudnn.conv.fp32_precision  # type: ignore[attr-defined]
        return {"matmul": matmul.fp32_precision == "tf32", "convolution": of_conv == "tf32"}
    return {"matmul": matmul.allow_tf32, "convolution": cudnn.allow_tf32}
