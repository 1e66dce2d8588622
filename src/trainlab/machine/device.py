"""Which device a trial runs on, and when the device is done."""

import torch

from trainlab.errors import DeviceError


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
