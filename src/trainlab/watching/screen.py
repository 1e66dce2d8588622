"""Screen: what a script that runs by itself prints, passed on as it comes, byte for byte, and recorded.

Where we print to a terminal the script has a terminal of its own (a pseudo-terminal) that stands for ours:
bars, colours, the size of the window, `input()`, Ctrl-C. Elsewhere it prints into pipes.
"""

import fcntl
import os
import select
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

POLL_S = 0.1
"""Between two looks at the size of our window, and whether we are in its foreground."""
LAST_S = 1.0
"""How long what its children still print is passed on once the script has ended."""
CHUNK = 1 << 16
_INPUT = (
    termios.BRKINT | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.IXON
)
_KEYS = termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG

_printing = threading.Lock()
_is_amid_line = False
"""Whether the last that a script printed beside our standard error did not end a line."""


@contextmanager
def between_lines() -> Iterator[None]:
    """What is printed to standard error inside stands on lines of its own, whatever a script prints."""
    global _is_amid_line
    with _printing:
        if _is_amid_line:
            os.write(2, b"\n")
            _is_amid_line = False
        yield


def own_terminal() -> None:
    """For a process that is about to run a script: the terminal that it was given is that of its session,
    so that Ctrl-C comes by it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the script's code is there to catch it
    for descriptor in range(3):
        if os.isatty(descriptor):
            with suppress(OSError):  # the session has one
                fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


class Screen:
    """Where a script prints and reads; `streams` are for the process that runs it."""

    def __init__(self, record: Path) -> None:
        self._terminal = next((one for one in (1, 2, 0) if os.isatty(one)), None)
        """Where what the pseudo-terminal shows is shown."""
        self._targets: dict[int, int] = {}
        """Where what we read from each is passed on."""
        self._childs: list[int] = []
        self._record = record.open("ab", buffering=0)
        self._master, self._saved, self._size = -1, list[Any](), b""
        self.streams: dict[str, Any] = {"stdin": None}
        self._process: subprocess.Popen[bytes] | None = None
        self._reads_keys, self._is_raw, self._typed = os.isatty(0), False, b""
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if self._terminal is not None:
            self._open_terminal(self._terminal)
        for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
            if os.isatty(descriptor):
                self.streams[name] = self._childs[0]
            elif descriptor == 2 and not os.isatty(1) and os.path.sameopenfile(1, 2):
                self.streams[name] = subprocess.STDOUT
            elif descriptor:
                ours, childs = os.pipe()
                self._targets[ours], self.streams[name] = descriptor, childs
                self._childs.append(childs)
        self._is_beside = {one for one in self._targets.values() if _is_same(one, 2)}

    def _open_terminal(self, terminal: int) -> None:
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        self._targets[self._master] = terminal
        self._childs.append(slave)
        self._saved = termios.tcgetattr(terminal)
        # Ends of lines are made by our terminal alone, which others print to, too.
        input_mode, output_mode, *others = self._saved
        own = [input_mode, output_mode & ~termios.OPOST, *others]
        termios.tcsetattr(slave, termios.TCSANOW, own)
        self._follow_size()

    @property
    def has_terminal(self) -> bool:
        """Then the process needs a session of its own, see `own_terminal`."""
        return self._terminal is not None

    def begin(self, process: "subprocess.Popen[bytes]") -> None:
        """The script's process has been started."""
        self._process = process
        for descriptor in self._childs:
            os.close(descriptor)
        self._thread.start()

    def close(self) -> None:
        """The process has ended: all that it has printed is passed on and recorded, and our terminal is as
        it was. May be called again."""
        self._has_ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._restore()
        self._record.close()

    def _run(self) -> None:
        last_s = None
        try:
            while self._targets:
                if self._has_ended.is_set():
                    last_s = last_s or time.monotonic() + LAST_S
                if not self._look(is_last=last_s is not None) and last_s is not None:
                    break
                if last_s is not None and time.monotonic() > last_s:
                    break
        finally:
            self._restore()
            for descriptor in self._targets:
                os.close(descriptor)

    def _look(self, *, is_last: bool) -> bool:
        """Passes on what there is; whether there was anything."""
        self._follow_terminal()
        keys = [0] if self._is_raw and not (self._typed or is_last) else []
        typed = [self._master] if self._typed else []
        ready, free, _ = select.select([*self._targets, *keys], typed, [], 0 if is_last else POLL_S)
        for source in ready:
            if source:
                self._pass_on(source)
            else:
                self._read_keys()
        if free and self._master in self._targets:
            with suppress(BlockingIOError):
                self._typed = self._typed[os.write(self._master, self._typed) :]
        return bool(ready)

    def _pass_on(self, source: int) -> None:
        global _is_amid_line
        printed, target = b"", self._targets[source]
        with suppress(OSError):  # the last process that had the terminal open has ended
            printed = os.read(source, CHUNK)
        if printed:
            with suppress(OSError):  # the disk is full: no reason to end a training
                self._record.write(printed)
            try:
                with _printing:
                    _write(target, printed)
                    if target in self._is_beside:
                        _is_amid_line = not printed.endswith(b"\n")
                return
            except OSError:
                if source == self._master:
                    return  # our terminal has gone: the training goes on
        # Whoever read its output has gone, or the disk is full: it is told so, as without us.
        self._reads_keys &= source != self._master
        self._restore()
        os.close(source)
        del self._targets[source]

    # Our terminal, where the script has one.

    def _follow_terminal(self) -> None:
        """While we are in its foreground, keys go to the script's as they are."""
        if self._terminal is None:
            return
        self._follow_size()
        if self._reads_keys and not self._is_raw and _is_in_foreground():
            keys = termios.tcgetattr(0)
            self._saved = [*keys]
            keys[0] &= ~_INPUT
            keys[3] &= ~_KEYS
            keys[6] = [*keys[6]]
            keys[6][termios.VMIN], keys[6][termios.VTIME] = 1, 0
            termios.tcsetattr(0, termios.TCSADRAIN, keys)
            self._is_raw = True

    def _follow_size(self) -> None:
        assert self._terminal is not None
        with suppress(OSError):
            size = fcntl.ioctl(self._terminal, termios.TIOCGWINSZ, bytes(8))
            if size != self._size:  # the script is told, by SIGWINCH
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
                self._size = size

    def _read_keys(self) -> None:
        with suppress(OSError):
            self._typed = os.read(0, CHUNK)
        if not self._typed:  # our terminal has gone
            self._reads_keys = self._is_raw = False
            return
        suspend = self._saved[6][termios.VSUSP]
        has_signals = termios.tcgetattr(self._master)[3] & termios.ISIG
        if has_signals and suspend != b"\0" and suspend in self._typed:
            self._typed = self._typed.replace(suspend, b"")
            self._suspend()

    def _suspend(self) -> None:
        """Ctrl-Z stops the script and us; the shell lets us go on."""
        assert self._process is not None
        self._restore()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGSTOP)
            os.killpg(0, signal.SIGTSTP)
            time.sleep(POLL_S)  # stopped amid this
            os.killpg(self._process.pid, signal.SIGCONT)

    def _restore(self) -> None:
        if self._is_raw:
            self._is_raw = False
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, self._saved)


def _write(target: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(target, data) :]
        except BlockingIOError:  # another program has made it so
            select.select([], [target], [])


def _is_same(one: int, other: int) -> bool:
    """Whether both are one file or show on a terminal."""
    return (os.isatty(one) and os.isatty(other)) or os.path.sameopenfile(one, other)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # a terminal of another session's, where nobody else reads
        return True
