"""The processes that a test has started and that still live."""

import psutil


def children() -> list[psutil.Process]:
    """Without the dead: one whose wait was interrupted is a zombie until the next process starts."""
    living = psutil.Process().children()
    return [child for child in living if child.status() != psutil.STATUS_ZOMBIE]
