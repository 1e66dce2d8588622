"""Signs of life while something takes long: a spinner on a terminal, a line now and then elsewhere."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

SILENCE_S = 3.0
"""After so long without a word something is said."""
LONG_RUN_SHARE = 0.01
"""In a long run, silence may last this share of the time gone: a log stays readable."""
LOOK_S = 0.5


class Silence:
    """How long nothing has been said, by anybody in this process."""

    _broken_at = time.monotonic()

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s = SILENCE_S if limit_s is None else limit_s
        self._start = time.monotonic()

    def is_broken(self) -> None:
        """Something was said."""
        Silence._broken_at = time.monotonic()

    def lasts_too_long(self) -> bool:
        """Whether something ought to be said."""
        now = time.monotonic()
        patience_s = max(self._limit_s, LONG_RUN_SHARE * (now - self._start))
        return now - Silence._broken_at >= patience_s


@contextmanager
def showing_status(console: Console, what: str) -> Iterator[None]:
    """Shows that `what` is under way."""
    if console.is_terminal:
        with console.status(what):
            yield
        return
    start, silence, is_over = time.monotonic(), Silence(), threading.Event()

    def beat() -> None:
        while not is_over.wait(LOOK_S):
            if silence.lasts_too_long():
                silence.is_broken()
                console.print(
                    f"{what}, {time.monotonic() - start:.0f} s", highlight=False, soft_wrap=True
                )

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
