"""The fork server: imports what a worker needs once, then forks a process per job in milliseconds.

    python -P -m trainlab.execute.launch.fork_server        its standard input is a Unix socket

It says `ready` once it can fork, and reads packets of JSON from the socket:

    {"fork": TEXT, "module": M, "number": N}    with descriptors of: input, output, errors, current
                                                folder, status
    {"signal": S, "number": N}                  sends the signal to the process of that number

A forked process is what that module is as a command, such as `trainlab.execute.job`: it has its own
streams, signals and random numbers. Its status pipe carries its process id, then its exit code. The server
computes nothing itself: threads of torch or a CUDA context that exist at a fork do not work in the child.
What a child has started and leaves behind is killed. It ends when the socket is closed, as the end of its
driver does, and its children with it.
"""

import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from trainlab.execute.signals import ENDING
from trainlab.machine.processes import adopt_orphans, children, end_with_parent

PATIENCE_S = 5.0
"""How long processes may take to close their records once the driver is gone."""
MAX_PACKET = 1 << 17
"""Bytes; the default of Linux takes somewhat more."""
KILLED_S = 2.0
"""How long killed processes may take to be gone."""


@dataclass(frozen=True)
class _Child:
    number: int
    status: int
    """The pipe that its exit code is written to."""


class _Server:
    """Forks on request, and tells how each child ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, _Child] = {}
        """By process id."""
        # The driver gets these too, closes its records and then the socket.
        self._handlers = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake)
        self._own = (self._woken, wake)

    def serve(self) -> None:
        """Until the socket is closed. Sleeps between requests: a measurement may be running."""
        while True:
            readable, _, _ = select.select([self._control.fileno(), self._woken], [], [])
            self._report_ended()
            if self._control.fileno() in readable:
                packet, descriptors, _, _ = socket.recv_fds(self._control, MAX_PACKET, 5)
                if not packet:
                    return
                self._obey(json.loads(packet), descriptors)

    def end_children(self) -> None:
        """Interrupts them, so that they close their records, and kills what is left."""
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)
        self._wait_for_children(PATIENCE_S)
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        self._wait_for_children(KILLED_S)

    def _wait_for_children(self, patience_s: float) -> None:
        """For those it forked, and for what they left behind."""
        deadline_s = time.monotonic() + patience_s
        while (self._children or children()) and (left_s := deadline_s - time.monotonic()) > 0:
            select.select([self._woken], [], [], left_s)
            self._report_ended()

    def _obey(self, request: Mapping[str, Any], descriptors: list[int]) -> None:
        if "fork" in request:
            self._fork(request, descriptors)
            return
        for pid, child in self._children.items():
            if child.number == request["number"]:
                os.kill(pid, request["signal"])

    def _fork(self, request: Mapping[str, Any], descriptors: list[int]) -> None:
        *given, status = descriptors
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._leave_to_child(server, status)
                _work(request["module"], request["fork"], given)
            except BaseException:  # noqa: BLE001  never back into the server's loop
                traceback.print_exc()
            finally:
                os._exit(1)
        for descriptor in given:
            os.close(descriptor)
        self._children[pid] = _Child(request["number"], status)
        _write(status, pid)

    def _leave_to_child(self, server: int, status: int) -> None:
        """What a process started by itself would have: the server's own is undone."""
        end_with_parent()
        if os.getppid() != server:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._control.close()
        for descriptor in (*self._own, status, *(one.status for one in self._children.values())):
            os.close(descriptor)

    def _report_ended(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)
        with suppress(ChildProcessError):  # there is none left
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._report_end(*ended)

    def _report_end(self, pid: int, status: int) -> None:
        for orphan in children() - self._children.keys():
            with suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        if (child := self._children.pop(pid, None)) is not None:
            _write(child.status, os.waitstatus_to_exitcode(status))
            os.close(child.status)


def _work(name: str, text: str, descriptors: list[int]) -> NoReturn:
    import torch

    from trainlab.execute.job import work

    module = importlib.import_module(name)
    *streams, folder = descriptors
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.fchdir(folder)
    for descriptor in descriptors:
        os.close(descriptor)
    # Python reseeds its own generator in a forked process; those of others would repeat in every child.
    torch.default_generator.seed()
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    sys.argv = [str(module.__file__), text]
    sys.orig_argv = [sys.executable, "-P", "-m", name, text]
    work(module.main)


def _write(pipe: int, value: int) -> None:
    """The driver may be gone."""
    with suppress(BrokenPipeError):
        os.write(pipe, f"{value}\n".encode())


def main() -> None:
    """Serves the socket that is its standard input."""
    control = socket.socket(fileno=os.dup(0))
    end_with_parent()  # at once, while there is nothing to put in order
    importlib.import_module("trainlab.execute.job")
    importlib.import_module("trainlab.execute.checking.child")
    importlib.import_module("torch._dynamo")  # torch's optimizers import it when the first is made
    end_with_parent(by=0)
    adopt_orphans()
    server = _Server(control)
    with suppress(ConnectionError):
        control.send(b"ready")
        server.serve()
    server.end_children()
    os._exit(0)  # taking down what it has imported would hold up its driver, which waits for it


if __name__ == "__main__":
    main()
