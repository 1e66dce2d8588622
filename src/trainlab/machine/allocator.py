"""The C allocator's habit of giving memory back, which makes CPU steps slow by luck.

glibc returns large freed blocks to the system at once; the next step asks for them again and pays
a page fault for every 4 KiB. Whether that happens depends on how a process's heap came to lie: the
same update of mnist-cnn at batch 1 took 5 ms in one process and 10 to 18 ms in the next
(2026-11-15, two cores). Keeping freed memory removes both the cost and the luck.
"""

import ctypes
import platform
from functools import cache

M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
_NEVER = 2**31 - 1


@cache
def keep_freed_memory() -> bool:
    """Tells glibc, once and for this whole process, to keep freed memory for reuse.

    False where the allocator is another one.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    wishes = {M_TRIM_THRESHOLD: _NEVER, M_MMAP_MAX: 0}
    return all(mallopt(name, value) == 1 for name, value in wishes.items())


def keeps_freed_memory() -> bool:
    """Whether this process has been told to; it cannot be told otherwise later."""
    return keep_freed_memory.cache_info().currsize > 0 and keep_freed_memory()
