"""Orphans: processes whose parent has died. Ours end with their parent, and a server ends what its children
leave behind, so that no process outlives its driver, however that dies."""

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_S = 1.0
"""Between two looks at the parent where the system does not tell."""


def end_with_parent(by: int = signal.SIGKILL) -> None:
    """From now on this process is ended by that signal when its parent dies; by 0: no longer. On other
    systems than Linux it leaves when it finds itself an orphan."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
    else:
        threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def adopt_orphans() -> None:
    """From now on this process becomes the parent of what its children leave behind when they end."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def children() -> set[int]:
    """The ids of this process's children, also of those that it has adopted; none where Linux was built
    without the list."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os._exit(1)
