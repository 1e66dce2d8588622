"""The launcher: starts a process per job, forked from a server that has imported everything, or cold.

A cold start is a new interpreter and takes seconds of imports; forking takes milliseconds. Where it is not
to be had, or the server has died, processes start cold and nobody is told: they do the same. This file
imports no torch, so that a server can import it at the same time as its driver.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO, ClassVar, Protocol

PATIENCE_S = 8.0
"""How long a server may take to end: a little more than it gives its children."""
SET_BY_TORCH = frozenset({"TORCHINDUCTOR_CACHE_DIR"})
"""Variables that importing torch sets, in the server as in the driver."""
QUIET = {"KINETO_LOG_LEVEL": "6", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""torch's profiler writes of its own starts and stops among what the user's code prints."""
COLD = (sys.executable, "-P", "-m")
"""-P: a psutil.py in the current folder must not stand in for the installed one."""


class Work(Protocol):
    """What a process is started for: a job, or the checks before a run."""

    module: ClassVar[str]
    """Whose `main` does it."""

    @property
    def threads(self) -> int | None:
        """Those of the process; None: torch's choice."""

    def model_dump_json(self) -> str:
        """What it is told."""


class JobProcess(Protocol):
    """A process that was started for a job; as `subprocess.Popen`."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    returncode: int | None

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; subprocess.TimeoutExpired after so many seconds."""

    def send_signal(self, sig: int) -> None:
        """Sends it a signal, if it still runs."""

    def kill(self) -> None:
        """Ends it at once."""


class Launcher:
    """Starts processes, forked by a server for each number of threads. To be closed in the end."""

    def __init__(self, *, forks: bool = True) -> None:
        # Elsewhere processes start cold: on a Mac, system libraries that torch uses must not be used after
        # a fork, and Windows has none. What ends the children of a dead server is Linux's own.
        self._forks = forks and sys.platform == "linux"
        self._folder = Path.cwd()
        """Where processes start: the user's code may go elsewhere in this one."""
        self._servers: dict[int | None, ForkServer] = {}
        """By the threads that their children are to have; None: torch's choice."""

    def launch(self, job: Work, stderr: IO[bytes], bench: str | None = None) -> JobProcess:
        """A process for the job, which writes its errors to that file. `bench`: the kind of bench it is
        for."""
        if (server := self._server_for(job.threads)) is not None:
            server.benches |= {bench} - {None}
            with suppress(ConnectionError):
                return server.fork(job, stderr, self._folder)
        return subprocess.Popen(
            [*COLD, job.module, job.model_dump_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            cwd=self._folder,
            env=_environment(job.threads),
        )

    def prepare(self, threads: int | None = None) -> None:
        """Starts a server, which imports while the caller does something else."""
        self._server_for(threads)

    def ready_threads(self) -> int | None:
        """The threads of a server that there is already: another would have to import all again."""
        return next(iter(self._servers), None)

    def begin_bench(self, kind: str) -> None:
        """Benches of one kind come from servers of their own. All children of a server share the layout of
        its addresses, and with it some luck in their times: with one server, benches would not be the
        independent samples that intervals take them to be."""
        for threads, server in list(self._servers.items()):
            if kind in server.benches:
                self._close(threads)

    def close(self) -> None:
        """Ends the servers, if there are any, and whatever they have forked."""
        for threads in list(self._servers):
            self._close(threads)

    def _close(self, threads: int | None) -> None:
        self._servers.pop(threads).close()

    def _server_for(self, threads: int | None) -> "ForkServer | None":
        """A server, started with the environment variables of now; None where processes start cold."""
        server = self._servers.get(threads)
        if server is not None and server.has_died():
            self._close(threads)
            self._forks, server = False, None
        if server is not None and server.environment != _environment(threads):
            if not server.is_idle():
                return None
            self._close(threads)
            server = None
        if self._forks and server is None:
            server = self._servers[threads] = ForkServer(threads)
        return server


class ForkServer:
    """The driver's side of `fork_server`, which forks as soon as it has imported all."""

    def __init__(self, threads: int | None = None) -> None:
        self.environment = _environment(threads)
        """What its children get; libraries read some of it when they are loaded."""
        self._forked: list[ForkedProcess] = []
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*COLD, "trainlab.execute.launch.fork_server"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self.environment,
            )
        self.benches: set[str | None] = set()
        """The kinds of bench that processes were forked for."""
        self._numbers = count()
        self._is_ready = False

    def fork(self, job: Work, stderr: IO[bytes], folder: Path) -> "ForkedProcess":
        """A process for the job; ConnectionError where the server is gone."""
        number, text = next(self._numbers), job.model_dump_json()
        (stdin, ours_in), (ours_out, stdout), (ours_status, status) = (os.pipe() for _ in range(3))
        place = os.open(folder, os.O_PATH)
        process = ForkedProcess(self, number, ours_in, ours_out, ours_status)
        try:
            given = [stdin, stdout, stderr.fileno(), place, status]
            socket.send_fds(
                self._control, [_packet(fork=text, module=job.module, number=number)], given
            )
        except ConnectionError:
            process.close()
            raise
        finally:
            for descriptor in (stdin, stdout, place, status):
                os.close(descriptor)
        self._forked = [one for one in self._forked if one.poll() is None] + [process]
        return process

    def is_idle(self) -> bool:
        """Whether all that it has forked have ended."""
        return all(process.poll() is not None for process in self._forked)

    def send_signal(self, number: int, sig: int) -> None:
        """To the process of that number; the server, its parent, knows whether it is still that one."""
        if sig == signal.SIGKILL and not self._has_forked():
            # It has no children yet and would first import for seconds.
            self._process.kill()
        with suppress(ConnectionError):
            self._control.send(_packet(signal=int(sig), number=number))

    def has_died(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    def close(self) -> None:
        """Ends it; its children are interrupted."""
        if not self._has_forked():
            self._process.kill()
        self._control.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _has_forked(self) -> bool:
        """Whether it may have: it has said that it is ready."""
        if not self._is_ready and select.select([self._control], [], [], 0)[0]:
            with suppress(ConnectionError):
                self._is_ready = bool(self._control.recv(16))
        return self._is_ready


class ForkedProcess:
    """A process whose parent is the server, which tells when it has ended and how."""

    def __init__(
        self, server: ForkServer, number: int, stdin: int, stdout: int, status: int
    ) -> None:
        self._server, self._number, self._status = server, number, os.fdopen(status, "rb", 0)
        self.stdin: IO[bytes] | None = os.fdopen(stdin, "wb", 0)
        self.stdout: IO[bytes] | None = os.fdopen(stdout, "rb", 0)
        self.pid: int | None = None
        """None until it is forked."""
        self.returncode: int | None = None
        self.was_lost = False
        """Whether the server died, and so its children with it."""
        self._received = b""

    def poll(self) -> int | None:
        self._read_status(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            if not self._read_status(left_s):
                raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            self._server.send_signal(self._number, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Closes its pipes."""
        for stream in (self.stdin, self.stdout, self._status):
            assert stream is not None
            stream.close()

    def _read_status(self, timeout_s: float | None) -> bool:
        """Reads what the server has said by then; False where that is nothing."""
        if self.returncode is not None:
            return True
        if not select.select([self._status], [], [], timeout_s)[0]:
            return False
        received = self._status.read(64)
        self._received += received
        told = [int(line) for line in self._received.splitlines()]
        self.pid = told[0] if told else None
        if len(told) == 2 or not received:
            self.was_lost = len(told) < 2
            self.returncode = -signal.SIGKILL if self.was_lost else told[1]
            self._status.close()
        return True


def _environment(threads: int | None) -> dict[str, str]:
    """That of the driver. Threads are told to all libraries: oneDNN on Arm takes no other word for it."""
    own = {name: value for name, value in os.environ.items() if name not in SET_BY_TORCH}
    given = QUIET | own
    return given if threads is None else given | {"OMP_NUM_THREADS": str(threads)}


def _packet(**fields: object) -> bytes:
    return json.dumps(fields).encode()
