"""Training: set-up, batches, the loop and its engines. Here only whether this process was asked to end:
training saves where it is and then leaves, where it gets there before it is interrupted."""

from collections.abc import Iterator
from contextlib import contextmanager

from trainlab.errors import Interrupted

_is_heeded = _is_asked = False


def ask_to_end() -> bool:
    """Asks; False where nobody heeds it."""
    global _is_asked
    _is_asked = _is_heeded
    return _is_asked


def is_asked_to_end() -> bool:
    """Whether what has been done should be saved now."""
    return _is_asked


def end_if_asked() -> None:
    """Interrupted where it was asked for; what has been done is saved by now."""
    global _is_asked
    if _is_asked:
        _is_asked = False
        raise Interrupted


@contextmanager
def heeding_end() -> Iterator[None]:
    """Inside this block, `end_if_asked` is called every so often."""
    global _is_heeded, _is_asked
    _is_heeded = True
    try:
        yield
    finally:
        _is_heeded = _is_asked = False
