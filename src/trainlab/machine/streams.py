"""Streams that outlast what they are connected to: a closed terminal or pipe must not fail what prints."""

import errno
import io
import sys
from contextlib import suppress
from typing import Any, TextIO

GONE = frozenset({errno.EPIPE, errno.EIO, errno.ENXIO, errno.ESHUTDOWN})
"""Nobody is left to read."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class _LastingFile(io.FileIO):
    """A file; what it cannot take for certain reasons is dropped."""

    def __init__(self, descriptor: int, forgiven: frozenset[int]) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._forgiven = forgiven

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in self._forgiven:
                raise
            return memoryview(data).nbytes


def lasting_stream(stream: TextIO, forgiven: frozenset[int] = GONE | FULL) -> TextIO:
    """The stream, with what it cannot take dropped: where nobody reads any more, or a disk is full. What is
    not valid Unicode is escaped."""
    stream.flush()
    raw = _LastingFile(stream.fileno(), forgiven)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=True,
    )


def outlast_terminal() -> None:
    """For a command: it goes on without its terminal, or without whoever read its output. A full disk under
    its output is an error still."""
    for name, forgiven in (("stdout", GONE), ("stderr", GONE | FULL)):
        # One that is no file, or was closed from the start, has nothing to lose.
        with suppress(AttributeError, ValueError):
            setattr(sys, name, lasting_stream(getattr(sys, name), forgiven))
