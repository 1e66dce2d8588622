"""The C allocator's habit of giving memory back, which makes CPU steps slow by luck.

glibc returns large freed blocks to the system at once; the next step asks for them again and pays
a page fault for every 4 KiB. Whether that happens depends on how a process's heap came to lie: the
same update of mnist-cnn at batch 1 took 5 ms in one process and 10 to 18 ms in the next
(2026-11-15, two cores). Keeping freed memory removes both the cost and the luck.
"""

import ctypes
import platform

M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
_KEEP = {M_TRIM_THRESHOLD: 2**31 - 1, M_MMAP_MAX: 0}
_GIVE_BACK = {M_TRIM_THRESHOLD: 128 * 1024, M_MMAP_MAX: 65536}
"""glibc's own defaults; that it adjusts the first by itself is over once it has been set."""

_keeps = False


def keep_freed_memory() -> bool:
    """Tells glibc, for this whole process, to keep freed memory for reuse; False for other allocators."""
    global _keeps
    _keeps = _keeps or _tell(_KEEP)
    return _keeps


def release_freed_memory() -> None:
    """Tells glibc to give memory back again, and what it has kept until now."""
    global _keeps
    if _keeps and _tell(_GIVE_BACK):
        ctypes.CDLL(None).malloc_trim(0)
        _keeps = False


def keeps_freed_memory() -> bool:
    """Whether this process has been told to."""
    return _keeps


def _tell(wishes: dict[int, int]) -> bool:
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(name, value) == 1 for name, value in wishes.items())
