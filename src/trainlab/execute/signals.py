"""A polite kill, or a closed terminal, ends a run as Ctrl-C does: recorded as interrupted."""

import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from trainlab.errors import Interrupted
from trainlab.train import ask_to_end, is_asked_to_end

Handler = Callable[[int, FrameType | None], None]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAVED_S = 1.5
"""How long training may take to get to where it can be saved."""


class EndAtOnce(Interrupted):
    """A second interrupt came while the first was being heeded: nothing more is shown."""


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Inside this block SIGINT, SIGTERM and SIGHUP raise Interrupted, in the main thread."""
    num_come = 0

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal num_come
        num_come += 1
        raise EndAtOnce if num_come > 1 else Interrupted

    with _handled_by(interrupt, ENDING):
        yield


def interrupted_once() -> None:
    """From now on the first SIGINT, SIGTERM or SIGHUP raises Interrupted, at once or when training has
    saved where it is; further ones, as from a terminal and a driver, do not disturb a worker as it
    records."""
    obeyed = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]

    def interrupt_late(number: int, frame: FrameType | None) -> None:
        if is_asked_to_end():  # else it has left by itself, and is not to be disturbed
            raise Interrupted

    def come(number: int, frame: FrameType | None) -> None:
        for one in obeyed:
            # Not SIG_IGN: Python complains of one that has come and is ignored by now.
            signal.signal(one, lambda number, frame: None)
        if not ask_to_end():
            raise Interrupted
        signal.signal(signal.SIGALRM, interrupt_late)
        signal.setitimer(signal.ITIMER_REAL, SAVED_S)

    for number in obeyed:
        signal.signal(number, come)


@contextmanager
def interrupted_after(seconds: float, time_is_up: threading.Event) -> Iterator[None]:
    """Inside this block Interrupted is raised after so long, in the main thread, and the event set."""
    if math.isinf(seconds) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        time_is_up.set()
        raise Interrupted

    with _handled_by(interrupt, [signal.SIGALRM]):
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def signals_held() -> Iterator[None]:
    """Inside this block, which must be short, nothing interrupts; what came meanwhile does so after it."""
    came: list[int] = []
    with _handled_by(lambda number, frame: came.append(number), (*ENDING, signal.SIGALRM)):
        yield
    if came:
        signal.raise_signal(came[0])


@contextmanager
def _handled_by(handler: Handler, numbers: Sequence[int]) -> Iterator[None]:
    """Only the main thread may say what a signal does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # One that is ignored stays so: under nohup a run is meant to outlive its terminal.
    obeyed = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in obeyed}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
