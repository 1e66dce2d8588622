"""A polite kill, or a closed terminal, ends a run as Ctrl-C does: recorded as interrupted."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Inside this block SIGTERM and SIGHUP raise KeyboardInterrupt, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled_by(interrupt, ENDING[1:]):
        yield


@contextmanager
def signals_held() -> Iterator[None]:
    """Inside this block, which must be short, nothing interrupts; what came meanwhile does so after it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    with _handled_by(lambda number, frame: came.append(number), ENDING):
        yield
    if came:
        raise KeyboardInterrupt


@contextmanager
def _handled_by(
    handler: Callable[[int, FrameType | None], None], numbers: Sequence[int]
) -> Iterator[None]:
    # One that is ignored stays so: under nohup a run is meant to outlive its terminal.
    obeyed = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in obeyed}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
