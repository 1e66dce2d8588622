"""Which device a trial runs on, what it is, and when it is done."""

from functools import cache

import psutil
import torch

from trainlab.errors import DeviceError
from trainlab.machine.host import Footprint


def pick_device(name: str) -> torch.device:
    """`auto` as the accelerator if there is one; DeviceError where the name device is not usable."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda":
        _check_cuda(device)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("device: got mps, but this machine has no Apple GPU; use --device cpu")
    return device


@cache
def is_cpu(name: str) -> bool:
    """Whether the name device, as `pick_device` finds it, is the CPU."""
    return pick_device(name).type == "cpu"


def devices_here() -> list[torch.device]:
    """The CPU, and the accelerator if there is one."""
    best = pick_device("auto")
    return [torch.device("cpu"), *([best] if best.type != "cpu" else [])]


def _check_cuda(device: torch.device) -> None:
    if not torch.backends.cuda.is_built():
        raise DeviceError(
            f"device: got {device}, but torch {torch.__version__} is built without CUDA; "
            "use --device cpu, or install a CUDA build of torch"
        )
    count = torch.cuda.device_count()
    if count == 0:
        raise DeviceError(
            f"device: got {device}, but torch finds no CUDA GPU here; use --device cpu, "
            "or check the driver with nvidia-smi"
        )
    if (device.index or 0) >= count:
        raise DeviceError(
            f"device: got {device}, but there are {count} GPUs: cuda:0 to cuda:{count - 1}"
        )


def synchronize(device: torch.device) -> None:
    """Waits until all work queued on the device is done; a clock read before that measures nothing."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def free_bytes(device: torch.device) -> int | None:
    """Memory free on the device, or None where data already lies in the host's memory."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return None


def device_name(device: torch.device) -> str:
    """A GPU by its model; else the kind of device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


CONTEXT_BYTES = 600 * 2**20
"""What a process takes of a GPU beside its tensors."""


def footprint(device: torch.device) -> Footprint:
    host_bytes = psutil.Process().memory_info().rss
    if device.type != "cuda":
        return Footprint(host_bytes)
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    own_bytes = torch.cuda.memory_reserved(device) + CONTEXT_BYTES
    return Footprint(host_bytes, own_bytes, free_bytes, total_bytes)


SAID_BY_TORCH = ("can't allocate memory", "not enough memory", "std::bad_alloc", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """torch has a kind of error for it on devices only; on the CPU the text tells."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in SAID_BY_TORCH)
