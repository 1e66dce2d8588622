"""A person's terminal: what is shown on it, and what is typed."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 60.0


class Terminal:
    """A program runs on it as from a shell's prompt."""

    def __init__(self, folder: Path, *command: str, columns: int = 80) -> None:
        self.pid, self._master = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execvp(command[0], command)  # noqa: S606  nothing that a shell would change
        self.resize(columns)
        self.shown = ""

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))

    def until(self, text: str) -> str:
        """All that is shown, once this is."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < deadline_s, self.shown
            if select.select([self._master], [], [], 0.1)[0]:
                self.shown += os.read(self._master, 4096).decode()
        return self.shown

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def has_echo(self) -> bool:
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def end(self) -> int:
        """The exit code, once the program has ended and shown all; one that does not is killed."""
        with suppress(OSError):
            while select.select([self._master], [], [], PATIENCE_S)[0]:
                self.shown += os.read(self._master, 4096).decode()
            os.kill(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        os.close(self._master)
