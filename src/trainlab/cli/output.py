"""Standard output: what becomes of it where it cannot be written, and what else may print to it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from typing import Any, TextIO

from trainlab.errors import OutputError


class Output:
    """A stream whose faults are told in a line, as a full disk behind `>`. A reader that has gone, as
    `head` does, is none: the verb goes on."""

    def __init__(self, stream: TextIO) -> None:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may hold what no encoding has
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """As the stream's own."""
        with self._telling():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """As the stream's own."""
        with self._telling():
            self._stream.flush()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Python would try once more as it ends, and complain itself.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            if isinstance(error, BrokenPipeError):
                return
            reason = error.strerror or str(error)
            raise OutputError(f"standard output: cannot be written: {reason}") from None


@contextmanager
def output_for_programs() -> Iterator[None]:
    """Sends what the user's code prints to standard error, also what it prints from C or a child process:
    it must not mix with what is printed for programs."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(own, 1)
        os.close(own)
