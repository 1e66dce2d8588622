"""Which process this is, and whether another one of this machine still runs. Clocks play no part in it."""

import ctypes
import errno
import io
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import psutil

from trainlab.errors import OutputError

PROC = Path("/proc")
STATE, STARTED = 0, 19
"""Places in /proc/PID/stat, counted after the name, which may hold spaces."""


def machine_identity() -> str:
    """Where process ids mean the same: a machine since it booted, or a container on it."""
    try:
        booted = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{booted}/{os.readlink(PROC / 'self/ns/pid')}"  # noqa: PTH115  no path, a name
    except OSError:
        return socket.gethostname()


def start_mark(pid: int) -> str | None:
    """When a process was started, in a form that tells it from a later one of the same id; None where it
    has ended."""
    if (PROC / "self/stat").exists():
        try:
            fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[STATE] in "ZX" else fields[STARTED]
    try:
        process = psutil.Process(pid)
        is_dead = process.status() == psutil.STATUS_ZOMBIE
        return None if is_dead else f"{process.create_time():.2f}"
    except psutil.Error:
        return None


def process_age_s() -> float:
    """How long ago this process was started. Where the system tells, by the clock that does not stop and
    is not set: what it tells of the time of day at its boot is whole seconds."""
    started = start_mark(os.getpid())
    if started is not None and (PROC / "self/stat").exists():
        since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        return max(0.0, since_boot_s - int(started) / os.sysconf("SC_CLK_TCK"))
    return max(0.0, time.time() - psutil.Process().create_time())


def signal_name(number: int) -> str:
    """`SIGKILL`; those without a name by their number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


PR_SET_PDEATHSIG = 1
POLL_S = 1.0
"""Between two looks at the parent where the system does not tell."""


def end_with_parent(by: int = signal.SIGKILL) -> None:
    """From now on this process is ended by that signal when its parent dies; by 0: no longer. On other
    systems than Linux it leaves when it finds itself an orphan."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
        return
    parent = os.getppid()

    def leave_as_orphan() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_S)
        os._exit(1)

    threading.Thread(target=leave_as_orphan, daemon=True).start()


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
            if error.errno in self._forgiven:
                return memoryview(data).nbytes
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), self.fileno()
            )  # said once, not as Python ends too
            reason = error.strerror or str(error)
            raise OutputError(f"standard output: cannot be written: {reason}") from None


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
