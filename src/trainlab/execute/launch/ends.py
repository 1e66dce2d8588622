"""Ends of processes that were started to work for us: in peace, because they hang, or at once."""

import subprocess
from contextlib import suppress

from trainlab.execute.job import WHERE_SIGNAL
from trainlab.execute.launch.launcher import JobProcess

WHERE_S = 0.5
"""How long a process that hangs may take to write where."""


def end_within(process: JobProcess, patience_s: float) -> None:
    """Waits until it has ended, not for ever."""
    try:
        process.wait(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_hanging(process: JobProcess) -> None:
    """Its log then says where it was."""
    if WHERE_SIGNAL is not None:
        process.send_signal(WHERE_SIGNAL)
    end_within(process, WHERE_S)


def end_at_once(process: JobProcess) -> None:
    """If it has not ended by itself; its streams are closed."""
    if process.poll() is None:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        with suppress(BrokenPipeError):
            stream.close()
