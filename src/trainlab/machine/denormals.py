"""Numbers too small to be normal, which the CPU computes with many times slower.

An optimizer's running means decay geometrically where a gradient stays zero; after some 800 updates
they fall below 1e-38 and every update works on denormal numbers. A step of mnist-cnn at batch 1 goes
from 4.1 to 13 ms that way (2026-11-15, two cores). Counting them as zero keeps it at 4.1.
"""

import torch

DENORMAL_BITS = 0x10000
"""As a float32 about 9e-41; given as bits, since making it from a number would flush it already."""
_ENOUGH_FOR_ALL_THREADS = 1 << 20


def flush_denormals(flush: bool) -> bool:
    """Tells this thread, and torch's threads unless they have started already; False if the CPU cannot."""
    return torch.set_flush_denormal(flush)


def flushes_denormals() -> bool | None:
    """Whether all of torch's threads do; None where only some do."""
    left = _num_left(_ENOUGH_FOR_ALL_THREADS)
    return None if 0 < left < _ENOUGH_FOR_ALL_THREADS else left == 0


def this_thread_flushes() -> bool:
    """Whether the calling thread does; does not start torch's threads."""
    return _num_left(1) == 0


def _num_left(count: int) -> int:
    """Of so many denormal numbers, those that are not zero after a multiplication."""
    tiny = torch.full((count,), DENORMAL_BITS, dtype=torch.int32)
    return int(tiny.view(torch.float32).mul(0.5).view(torch.int32).count_nonzero())
