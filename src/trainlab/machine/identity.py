"""Which process this is, and whether another one of this machine still runs. Clocks play no part in it."""

import os
import signal
import socket
import time
from pathlib import Path

import psutil

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
