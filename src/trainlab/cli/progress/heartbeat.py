"""Signs of life while something takes long: a spinner on a terminal, a line now and then elsewhere."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

SILENCE_S = 3.0
"""After so long without a word something is said."""
LONG_RUN_SHARE = 0.01
"""In a long run, silence may last this share of the time gone: a log stays readable."""
LOOK_S = 0.5


class Heartbeat:
    """Calls `tell` whenever nothing was told for a while."""

    told_at = time.monotonic()
    """The last word of any of them: silence is counted from there."""

    def __init__(self, tell: Callable[[], None], silence_s: float = SILENCE_S) -> None:
        self._tell = tell
        self._silence_s = silence_s
        self._start = time.monotonic()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def was_told(self) -> None:
        """Something was said anyhow."""
        Heartbeat.told_at = time.monotonic()

    def stop(self) -> None:
        """No word any more."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        while not self._is_over.wait(LOOK_S):
            now = time.monotonic()
            patience_s = max(self._silence_s, LONG_RUN_SHARE * (now - self._start))
            if now - Heartbeat.told_at >= patience_s:
                self._tell()
                self.was_told()


@contextmanager
def waiting_for(console: Console, what: str) -> Iterator[None]:
    """Shows that `what` is under way."""
    if console.is_terminal:
        with console.status(what):
            yield
        return
    start = time.monotonic()

    def tell() -> None:
        console.print(f"{what}, {time.monotonic() - start:.0f} s", highlight=False, soft_wrap=True)

    beat = Heartbeat(tell)
    beat.start()
    try:
        yield
    finally:
        beat.stop()
