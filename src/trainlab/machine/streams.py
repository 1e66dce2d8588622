"""Streams that outlast what they are connected to: a closed terminal or pipe must not fail what prints."""

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

GONE = frozenset({errno.EPIPE, errno.EIO, errno.ENXIO, errno.ESHUTDOWN})
"""Nobody is left to read."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def open_closed_streams() -> None:
    """Where a standard stream was closed (`>&-`), what is printed to it is dropped: else the next file that
    is opened would take its place."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


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


def own_streams() -> tuple[TextIO, TextIO]:
    """Standard input and output for commands and answers alone; the user's code gets others in their place.

    Processes that it forks do not get them: they would keep them open after this one has died.
    """
    commands = os.fdopen(os.dup(sys.stdin.fileno()))
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=answers.close)
        os.register_at_fork(after_in_child=commands.close)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout, sys.stderr = lasting_stream(sys.stdout), lasting_stream(sys.stderr)
    return commands, answers
