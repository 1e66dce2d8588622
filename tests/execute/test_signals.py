"""Signals: what they interrupt, and when."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from trainlab.errors import Interrupted
from trainlab.execute.signals import (
    ENDING,
    EndAtOnce,
    interrupted_after,
    interrupted_once,
    signals_held,
    signals_interrupt,
)


@pytest.fixture(autouse=True)
def _usual_signals() -> Iterator[None]:
    """The tests themselves may have been started with some ignored (in the background)."""
    before = {n: signal.signal(n, signal.SIG_DFL) for n in (*ENDING, signal.SIGALRM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_signals_interrupt_and_do_what_they_did_before_afterwards() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt), signals_interrupt():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.default_int_handler
        signal.signal(number, signal.SIG_IGN)
        with signals_interrupt():
            signal.raise_signal(number)


def test_a_held_signal_interrupts_after_the_block() -> None:
    reached = []

    def hold() -> None:
        with signals_held():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("the end")

    with signals_interrupt():
        with pytest.raises(Interrupted):
            hold()
        with pytest.raises(EndAtOnce):  # it was the second
            os.kill(os.getpid(), signal.SIGTERM)
    assert reached


def test_a_worker_is_interrupted_once() -> None:
    interrupted_once()
    with pytest.raises(Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)


def test_time_that_is_up_interrupts_and_says_so() -> None:
    time_is_up = threading.Event()
    with pytest.raises(Interrupted), interrupted_after(0.01, time_is_up):
        time.sleep(60)
    assert time_is_up.is_set()
    with interrupted_after(60, threading.Event()):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
