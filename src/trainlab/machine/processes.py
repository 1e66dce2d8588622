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
from typing import Any

import psutil

from trainlab.errors import TrainlabError

QUIET = {"KINETO_LOG_LEVEL": "6", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""In the environment of our own processes: torch's profiler writes of its own starts and stops among what
the user's code prints."""
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
    """Tells a process from a later one of the same id: when it was started; None where it has ended."""
    with suppress(OSError, psutil.Error):
        if (PROC / "self/stat").exists():
            fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            return None if fields[STATE] in "ZX" else fields[STARTED]
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return f"{process.create_time():.2f}"
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
    """From now on this process is ended by that signal when its parent dies; by 0: no longer."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
        return
    parent = os.getppid()

    def leave_as_orphan() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_S)
        os._exit(1)

    threading.Thread(target=leave_as_orphan, daemon=True).start()


def go_last(parent: int, niceness: int) -> None:
    """From now on this process, a child of `parent`, gets what others leave over and ends with it."""
    end_with_parent()
    if os.getppid() != parent:
        os._exit(1)  # it was gone before
    with suppress(OSError):
        os.nice(niceness)
        # Linux first shares time out by session: niceness alone says nothing to those of another terminal.
        os.setsid()
        (PROC / "self/autogroup").write_text(str(niceness))


GONE = (errno.EPIPE, errno.EIO, errno.ENXIO, errno.ESHUTDOWN)
"""Nobody is left to read."""


class _LastingFile(io.FileIO):
    """Standard output or errors; what nobody reads is dropped, and all errors that cannot be told."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno in GONE or self.fileno() == 2:
                return memoryview(data).nbytes
            # Said once, not as Python ends too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            reason = error.strerror or str(error)
            raise TrainlabError(f"standard output: cannot be written: {reason}") from None


def outlast_terminal() -> None:
    """For a command: it goes on without its terminal, or without whoever read its output."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        stream.flush()
        raw = io.BufferedWriter(_LastingFile(descriptor, "wb", closefd=False))
        lasting = io.TextIOWrapper(
            raw, encoding=stream.encoding, errors="backslashreplace", line_buffering=True
        )
        setattr(sys, "stderr" if descriptor == 2 else "stdout", lasting)
