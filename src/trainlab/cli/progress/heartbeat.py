"""Signs of life while something takes long: a spinner on a terminal, a line now and then elsewhere."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from trainlab.words import Words

SILENCE_S = 3.0
"""After so long without a line one is printed."""
LONG_RUN_SHARE = 0.01
"""In a long run, silence may last this share of the time elapsed, so that a log stays readable."""
POLL_S = 0.5


class Silence:
    """How long nothing has been printed, by anybody in this process."""

    _last_line_s = time.monotonic()

    def __init__(self) -> None:
        self._start_s = time.monotonic()

    def restart(self) -> None:
        """A line was printed: silence is counted from now."""
        Silence._last_line_s = time.monotonic()

    def is_too_long(self) -> bool:
        """Whether a line ought to be printed."""
        now_s = time.monotonic()
        limit_s = max(SILENCE_S, LONG_RUN_SHARE * (now_s - self._start_s))
        return now_s - Silence._last_line_s >= limit_s


@contextmanager
def showing_status(console: Console, activity: str, words: Words) -> Iterator[None]:
    """Shows that an activity, one of the words, is under way, as long as the block runs."""
    text = words(f"activity_{activity}")
    if console.is_terminal:
        with console.status(text):
            yield
        return
    start_s, silence, is_over = time.monotonic(), Silence(), threading.Event()

    def print_heartbeats() -> None:
        while not is_over.wait(POLL_S):
            if silence.is_too_long():
                silence.restart()
                seconds = f"{time.monotonic() - start_s:.0f}"
                line = words("heartbeat", activity=text, seconds=seconds)
                console.print(line, highlight=False, soft_wrap=True)

    thread = threading.Thread(target=print_heartbeats, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
