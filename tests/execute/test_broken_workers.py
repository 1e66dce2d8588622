"""Workers whose own code goes wrong in ways that nobody tells the run about."""

import os
import signal
import time

import pytest

from trainlab.execute.signals import ENDING, interrupted_once, signals_held


def test_a_held_signal_interrupts_after_the_block() -> None:
    reached = []

    def hold() -> None:
        with signals_held():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("the end")

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            hold()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert reached


def test_a_worker_is_interrupted_once_and_not_while_it_writes() -> None:
    reached: list[str] = []
    text = "os.kill(os.getpid(), 15); os.kill(os.getpid(), 15); reached.append('the end')"
    names = {"__name__": "trainlab.record.made_up", "os": os, "reached": reached}
    before = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGALRM)}

    def write_and_go_on() -> None:
        exec(text, names)  # noqa: S102  as a function of such a module
        time.sleep(60)

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        interrupted_once()
        with pytest.raises(KeyboardInterrupt):
            write_and_go_on()
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert reached == ["the end"]
