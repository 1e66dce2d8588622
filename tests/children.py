"""The processes that a test has started and that still live."""

from multiprocessing import forkserver, resource_tracker
from typing import Any

import psutil

SERVER: Any = forkserver._forkserver
TRACKER: Any = resource_tracker._resource_tracker  # type: ignore[attr-defined]


def children() -> list[psutil.Process]:
    """But for the server that forks them and stays, and what Python starts beside it. Without the dead: one
    whose wait was interrupted is a zombie until the next process starts."""
    stay = {SERVER._forkserver_pid, TRACKER._pid}
    living = [one for one in psutil.Process().children(recursive=True) if one.pid not in stay]
    return [child for child in living if child.status() != psutil.STATUS_ZOMBIE]
