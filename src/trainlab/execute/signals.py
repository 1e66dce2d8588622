"""A polite kill, or a closed terminal, ends a run as Ctrl-C does: recorded as interrupted."""

import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from trainlab.errors import Interrupted
from trainlab.train import ask_to_end, is_asked_to_end

Handler = Callable[[int, FrameType | None], None]

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)

WRITERS = ("trainlab.instruments.", "trainlab.record.")
WRITTEN_S = 0.02
"""Until one of these is looked for again."""
SAVED_S = 1.5
"""How long training may take to get to where it can be saved."""


class EndAtOnce(Interrupted):
    """A second interrupt came while the first was being heeded: nothing more is shown."""


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Inside this block SIGINT, SIGTERM and SIGHUP raise Interrupted, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    with _handled_by(interrupt, ENDING):
        yield


def interrupted_once() -> None:
    """From now on the first SIGINT, SIGTERM or SIGHUP raises Interrupted, at once or when training
    has saved where it is, and others do nothing: a worker gets them from its terminal and its driver, and
    must not be disturbed as it records."""
    obeyed = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    has_timer = hasattr(signal, "setitimer")

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _is_writing(frame) and has_timer:
            _call_after(WRITTEN_S, interrupt)
            return
        raise Interrupted

    def interrupt_late(number: int, frame: FrameType | None) -> None:
        if is_asked_to_end():  # else it has left by itself, and is not to be disturbed
            interrupt(number, frame)

    def come(number: int, frame: FrameType | None) -> None:
        for one in obeyed:
            # Not SIG_IGN: Python complains of one that has come and is ignored by now.
            signal.signal(one, lambda number, frame: None)
        if has_timer and ask_to_end():
            _call_after(SAVED_S, interrupt_late)
        else:
            interrupt(number, frame)

    for number in obeyed:
        signal.signal(number, come)


def _call_after(seconds: float, handler: Handler) -> None:
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _is_writing(frame: FrameType | None) -> bool:
    """Whether an instrument or a record is at work: it would leave half a line, or a lock that others wait
    for."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(WRITERS):
            return True
        frame = frame.f_back
    return False


@contextmanager
def interrupted_after(seconds: float, time_is_up: threading.Event) -> Iterator[None]:
    """Inside this block, which must be in one of `signals_interrupt`, Interrupted is raised after so
    long, and the event set: what runs then is recorded as interrupted. Only the main thread can be."""
    lock = threading.Lock()
    if math.isinf(seconds) or threading.current_thread() is not threading.main_thread():
        yield
        return
    main, is_left = threading.get_ident(), False

    def interrupt() -> None:
        with lock:
            if not is_left:
                time_is_up.set()
                signal.pthread_kill(main, signal.SIGTERM)  # wakes it where it sleeps

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            is_left = True


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
        signal.raise_signal(came[0])


@contextmanager
def _handled_by(handler: Handler, numbers: Sequence[int]) -> Iterator[None]:
    # One that is ignored stays so: under nohup a run is meant to outlive its terminal.
    obeyed = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in obeyed}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
