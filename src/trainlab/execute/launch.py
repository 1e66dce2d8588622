"""Processes for trials: how they start, what they are told, and what their end means for their trials. What
runs in one is in `trainlab.execute.worker`.

On Linux they are forked in milliseconds from a server that has imported all; elsewhere they are fresh
interpreters, which import for seconds. The server imports torch at the same time as the driver: not here.
"""

import importlib
import multiprocessing
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, forkserver
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trainlab.execute.planned_run import end_left
from trainlab.execute.signals import ENDING
from trainlab.machine.host import num_killed_for_memory
from trainlab.machine.processes import QUIET, signal_name
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import OUT_OF_MEMORY, Failure, TrialRecord
from trainlab.spec.facts import is_script
from trainlab.watching import script_process as script

if TYPE_CHECKING:
    from trainlab.machine.host import Footprint

PRELOADED = ["trainlab.execute.worker", "torch._dynamo"]
"""torch's optimizers import their compiler when the first is made."""
INTERRUPTED = 130
"""The exit code of a worker that was told to end, and has recorded so."""
FROM_OUTSIDE = (INTERRUPTED, 255, -signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of a process that somebody else ended, or whose fork server was."""
OVERDUE = 1
"""The exit code of a process that Python's fault handler has ended for taking too long."""
DONE_S = 10.0
"""How long a process that is done may take to end."""
INTERRUPTED_S = 4.0
"""How long interrupted processes may take to close their records."""
SCRIPT_INTERRUPTED_S = 2 * script.INTERRUPTED_S + script.RECORDED_S + DONE_S
"""The same, of those that run a script: it may have something to save before and after our records."""
POLL_S = 0.2
TAIL_BYTES = 8 * 1024
"""Of a log, for the record of a trial whose process died."""


@dataclass(frozen=True)
class Job:
    """What a process is told as it starts."""

    run: Path
    environment: str
    """The name under which the machine is recorded."""
    folder: Path
    """Where it starts: the user's code may have gone elsewhere in the driver."""
    trials: tuple[str, ...] = ()
    token: str = ""
    """That of its attempts."""
    code: str | None = None
    """The fingerprint of the workload's code when the run began."""
    sent: Mapping[str, bytes] | None = None
    """Workloads that were given as objects, by name."""
    threads: int | None = None
    """For trials that do not say how many; None: torch's choice."""
    limit_s: float | None = None


def prepare() -> None:
    """Starts the server that processes are forked from, where there is none: it imports while the caller
    does something else."""
    if sys.platform != "linux":
        return
    multiprocessing.set_forkserver_preload(PRELOADED)
    # A server that a closed terminal ends could not tell how its processes ended; they want signals again.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        with _variables({}):
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def close() -> None:
    """Ends the server, unless another run uses it."""
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None and not multiprocessing.active_children():
        # Taking down what it has imported would hold up its driver, which waits for it.
        os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()


def _run_job(
    job: Job, pipe: "connection.Connection", log: Path, environment: dict[str, str]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(job.folder)
    importlib.import_module("trainlab.execute.worker").work(job, pipe, log)


@contextmanager
def _variables(threads: Mapping[str, str]) -> Iterator[None]:
    """The environment that an interpreter is started with. A psutil.py in the current folder must not stand
    in for the installed one."""
    before = dict(os.environ)
    os.environ.update({**QUIET, **before, "PYTHONSAFEPATH": "1", **threads})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class WorkerProcess:
    """The driver's hold on a process that runs the trials of a group, and the records that it leaves."""

    def __init__(self, group: Group, job: Job) -> None:
        self._job, self._run = job, RunFolder(job.run)
        self._folders = [self._run.trial(trial_id) for trial_id in group.ids]
        of_script = any(is_script(trial.workload) for trial in group.trials)
        self.patience_s = SCRIPT_INTERRUPTED_S if of_script else INTERRUPTED_S
        """How long it may take to end once it was interrupted."""
        self.busy_s = 0.0
        """How long it has worked, up to the last answer."""
        self._told_s = time.monotonic()
        self.has_died = False
        """Whether it has left trials behind, which are recorded as failed."""
        self._num_killed_before = num_killed_for_memory()
        self._log = self._run.log_file(group.ids[0])
        self._log.parent.mkdir(exist_ok=True)
        self._log_begin = self._log.stat().st_size if self._log.exists() else 0
        self._start()

    def _start(self) -> None:
        job = self._job
        # oneDNN on Arm reads the number of threads from the environment alone, as it is loaded.
        is_settled = job.threads is None or platform.machine() != "aarch64"
        can_fork = sys.platform == "linux" and is_settled
        context: Any = multiprocessing.get_context("forkserver" if can_fork else "spawn")
        threads = {} if job.threads is None else {"OMP_NUM_THREADS": str(job.threads)}
        self.pipe, theirs = context.Pipe()
        told = (job, theirs, self._log, QUIET | dict(os.environ) | threads)
        self._process = context.Process(target=_run_job, args=told)
        prepare()
        # multiprocessing would run the driver's script again in the process, so that it would have to ask
        # for its `__name__`.
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            with _variables(threads):
                self._process.start()
        finally:
            sys.modules["__main__"] = main
        theirs.close()

    # What it is told, and its answers.

    def tell(self, *command: object) -> None:
        """A process that has died is noticed by its answer."""
        self._told_s = time.monotonic()
        with suppress(OSError):
            self.pipe.send(command)

    def has_answered(self) -> bool:
        """Whether it has, or has died: then the pipe may stay open, held by a child of its own."""
        # Before the look into the pipe: what it wrote before it died still counts.
        is_dead = self.exit_code is not None
        return self.pipe.poll() or is_dead

    def answer(self) -> Any:
        """To what it was told; None too where it has died."""
        while not self.has_answered():
            connection.wait([self.pipe, self._process.sentinel], POLL_S)
        self.busy_s += time.monotonic() - self._told_s
        with suppress(EOFError, OSError):
            if self.pipe.poll():
                return self.pipe.recv()
        self.end_within(DONE_S)
        return None

    def seats(self) -> "list[WorkerSeat]":
        """Its trials, which are timed in turns."""
        self._num_seated = len(self._folders)
        return [WorkerSeat(self, place) for place in range(self._num_seated)]

    def rise(self) -> None:
        """One of its seats has ended; a process that has died ends all of them."""
        self._num_seated -= 1
        if not self._num_seated or self.exit_code is not None:
            self.dismiss()
            self.record_exit()

    def dismiss(self) -> None:
        """Waits for the end of a process that has nothing more to do, not for ever."""
        self.tell()
        self.end_within(DONE_S)

    # How it ends.

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the number of the signal that ended it."""
        code: int | None = self._process.exitcode
        return code

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the system killed a process for memory meanwhile, and this one was killed."""
        was_killed = self.exit_code == -signal.SIGKILL
        return was_killed and num_killed_for_memory() > self._num_killed_before

    @property
    def was_ended_from_outside(self) -> bool:
        """Whether its trials may well end as usual once more."""
        return self.exit_code in FROM_OUTSIDE and not self.ran_out_of_memory

    def interrupt(self) -> None:
        """Asks it to close its records."""
        if self.exit_code is None:
            self._process.terminate()

    def end_within(self, patience_s: float) -> None:
        """Waits for its end for so long, and ends it then."""
        self._process.join(max(0.0, patience_s))
        if self.exit_code is None:
            self._process.kill()
            self._process.join()

    def kill(self) -> None:
        """Ends it at once, if it has not ended by itself."""
        self.end_within(0)
        self.pipe.close()
        # The folder stays: on a cluster, others are about to write there.
        with suppress(OSError):
            if not self._log.stat().st_size:
                self._log.unlink()

    # The records that it leaves.

    def unfinished(self) -> list[TrialRecord]:
        """The trials that it left behind when it ended; nobody else will end them."""
        begun = ("running", "interrupted") if self.exit_code == INTERRUPTED else ("running",)
        return [
            record
            for record in (folder.read() for folder in self._folders)
            if record.state == "pending"
            or (record.state in begun and record.token == self._job.token)
        ]

    def record_exit(self) -> None:
        """Records the trials that it left behind as failed."""
        for record in self.unfinished():
            self.has_died = True
            failed = record.model_copy(update={"state": "failed", "error": self._failure()})
            self._run.trial(record.id).end(failed)

    def record_interrupted(self) -> None:
        """Records the trials that it was running when it was ended."""
        own = (folder for folder in self._folders if folder.read().token == self._job.token)
        end_left(own, ("running",), "interrupted")

    def _failure(self) -> Failure:
        """Of each trial it left behind, with the end of its log."""
        code, limit_s, kind = self.exit_code or 0, self._job.limit_s, "ProcessDied"
        if limit_s is not None and code == OVERDUE and self.busy_s >= limit_s:
            kind, told = "TimedOut", f"took longer than {limit_s:g} s"
            told += "; give it more with --trial-timeout, or see where it hangs"
        elif self.ran_out_of_memory:
            kind, told = OUT_OF_MEMORY, "its process was killed because memory ran out"
            told += "; use a smaller batch, or fewer --jobs"
        elif code == INTERRUPTED:
            told = "its process was told to end from outside"
        elif code < 0:
            told = f"its process was ended by {signal_name(-code)}"
        else:
            told = f"its process ended with code {code}"
        return Failure(kind=kind, message=told, traceback=tail_of(self._log, self._log_begin))


class WorkerSeat:
    """A timed trial of a process, where what it is told is done (see `Seat`); the answer is None where it
    failed or the process died."""

    def __init__(self, process: WorkerProcess, place: int) -> None:
        self._process, self._place = process, place
        self.has_ended = False

    def begin(self) -> None:
        self._ask("begin")

    def warm_up(self) -> "Footprint | None":
        found: Footprint | None = self._ask("warm_up")
        return found

    def turn(self, number: int) -> float | None:
        median_ms: float | None = self._ask("turn", number)
        return median_ms

    def finish(self, bench: str) -> None:
        self._ask("finish", bench)

    def _ask(self, *command: object) -> Any:
        if self.has_ended:
            return None
        self._process.tell("timed", self._place, *command)
        if (answer := self._process.answer()) is None:
            self.has_ended = True
            self._process.rise()
        return answer


def tail_of(path: Path, begin: int = 0) -> str:
    """The end of a log, from so many bytes on at the earliest; nothing where it cannot be read."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(begin, size - TAIL_BYTES))
            return stream.read(TAIL_BYTES).decode("utf-8", "backslashreplace")
    except OSError:
        return ""
