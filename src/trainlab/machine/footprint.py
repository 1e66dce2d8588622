"""How much memory a process takes, and whether another like it would fit beside it."""

from dataclasses import dataclass

import psutil
import torch

from trainlab.machine.capacity import SPARE_SHARE

CONTEXT_BYTES = 600 * 2**20
"""What a process takes of a GPU beside its tensors."""


@dataclass(frozen=True)
class Footprint:
    """Of a process that is set up and warm."""

    host_bytes: int
    device_bytes: int = 0
    device_free_bytes: int = 0
    device_total_bytes: int = 0

    def fits_again(self) -> bool:
        """Whether another process like this one fits into the memory that is free now."""
        host = psutil.virtual_memory()
        fits_host = host.available - self.host_bytes >= SPARE_SHARE * host.total
        spare_bytes = SPARE_SHARE * self.device_total_bytes
        return fits_host and self.device_free_bytes - self.device_bytes >= spare_bytes


def footprint(device: torch.device) -> Footprint:
    """Of this process."""
    host_bytes = psutil.Process().memory_info().rss
    if device.type != "cuda":
        return Footprint(host_bytes)
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    own_bytes = torch.cuda.memory_reserved(device) + CONTEXT_BYTES
    return Footprint(host_bytes, own_bytes, free_bytes, total_bytes)
