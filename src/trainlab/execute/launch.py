"""Processes for jobs: started by multiprocessing, watched, and what their end means for their trials.

On Linux they are forked in milliseconds from a server that has imported all; elsewhere, and with another
number of threads than the server's, they are fresh interpreters, which import for seconds. This file
imports no torch, so that the server can do that at the same time as the driver.
"""

import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, forkserver
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trainlab.execute.signals import ENDING
from trainlab.machine.host import num_killed_for_memory
from trainlab.machine.processes import signal_name
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import Failure
from trainlab.spec import Spec
from trainlab.spec.facts import is_script
from trainlab.watching import script_process as script

if TYPE_CHECKING:
    from trainlab.machine.device import Footprint

PRELOADED = ["trainlab.execute.job", "torch._dynamo"]
"""torch's optimizers import their compiler when the first is made."""
QUIET = {"KINETO_LOG_LEVEL": "6", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""torch's profiler writes of its own starts and stops among what the user's code prints."""
INTERRUPTED = 130
"""The exit code of a worker that was told to end, and has recorded so."""
LOST = 255
"""That of a process whose fork server has died."""
FROM_OUTSIDE = (INTERRUPTED, LOST, -signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of a process that somebody else ended."""
WHERE_SIGNAL = getattr(signal, "SIGUSR1", None)
"""Makes a worker write to its log where it is: what hangs cannot say so itself."""
WHERE_S = 0.5
DONE_S = 10.0
"""How long a process that is done may take to end."""
FINISHED_S = 300.0
"""How long one may take for its last steps and its record: on a slow or busy machine steps take seconds."""
INTERRUPTED_S = 4.0
"""How long interrupted processes may take to close their records."""
SCRIPT_INTERRUPTED_S = 2 * script.INTERRUPTED_S + script.RECORDED_S + DONE_S
"""The same, of those that run a script: it may have something to save before and after our records."""
POLL_S = 0.2
TAIL_BYTES = 8 * 1024
"""Of a log, for the record of a trial whose process died."""


class Job(Spec):
    """What a process is told as it starts: the trials it is for, or none where it checks a workload."""

    run: str = ""
    """The run folder."""
    trials: tuple[str, ...] = ()
    environment: str = ""
    """The name under which the machine is recorded."""
    token: str | None = None
    """That of its attempts."""
    code: str | None = None
    """The fingerprint of the workload's code when the run began."""
    threads: int | None = None
    """For trials that do not say how many; None: torch's choice."""
    files: dict[str, str] = {}
    """Those of workloads that were given as objects, by name."""


class Launcher:
    """Starts processes. To be closed in the end."""

    _served: ClassVar[tuple[int | None, ...]] = ()
    """The threads of what the server forks, where there is one: libraries read the number when they are
    loaded. multiprocessing has one server."""

    def __init__(self) -> None:
        self._folder = Path.cwd()
        """Where processes start: the user's code may go elsewhere in this one."""

    @property
    def threads(self) -> int | None:
        """Those that a process must have to be forked."""
        return next(iter(Launcher._served), None)

    def prepare(self, threads: int | None = None) -> None:
        """Starts a server for processes with so many threads, which imports while the caller does something
        else; none in place of one whose processes still run."""
        is_busy = Launcher._served and multiprocessing.active_children()
        if sys.platform != "linux" or Launcher._served == (threads,) or is_busy:
            return
        self.close()
        multiprocessing.set_forkserver_preload(PRELOADED)
        # A server that a closed terminal ends could not tell how its processes ended.
        with _variables(threads), _signals_blocked():
            forkserver.ensure_running()
        Launcher._served = (threads,)

    def launch(self, job: Job, log: Path) -> "tuple[Any, connection.Connection]":
        """A process for the job, which prints to that file, and the pipe to it."""
        is_forked = Launcher._served == (job.threads,)
        context: Any = multiprocessing.get_context("forkserver" if is_forked else "spawn")
        ours, theirs = context.Pipe()
        environment = QUIET | dict(os.environ) | _threads_variable(job.threads)
        told = (job.model_dump_json(), theirs, str(log), str(self._folder), environment)
        process = context.Process(target=_run_job, args=told)
        with _variables(job.threads), _without_main():
            process.start()
        theirs.close()
        return process, ours

    def close(self) -> None:
        """Ends the server, unless another run uses it."""
        if Launcher._served and not multiprocessing.active_children():
            Launcher._served = ()
            server: Any = forkserver._forkserver
            if server._forkserver_pid is not None:
                # Taking down what it has imported would hold up its driver, which waits for it.
                os.kill(server._forkserver_pid, signal.SIGKILL)
            server._stop()


def _run_job(
    text: str, pipe: "connection.Connection", log: str, folder: str, environment: dict[str, str]
) -> None:
    """Runs in the process."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    importlib.import_module("trainlab.execute.job").work(Job.model_validate_json(text), pipe, log)


def _threads_variable(threads: int | None) -> dict[str, str]:
    """Told to all libraries as they are loaded: oneDNN on Arm takes no other word for it."""
    return {} if threads is None else {"OMP_NUM_THREADS": str(threads)}


@contextmanager
def _variables(threads: int | None) -> Iterator[None]:
    """The environment that an interpreter is started with. A psutil.py in the current folder must not stand
    in for the installed one."""
    before = dict(os.environ)
    given = {"PYTHONSAFEPATH": "1"} | _threads_variable(threads)
    os.environ.update({name: value for name, value in QUIET.items() if name not in before} | given)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _without_main() -> Iterator[None]:
    """multiprocessing would run the driver's script again in the process, so that it would have to ask for
    its `__name__`."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """What is started in this block does not get them; see `job.work`, which wants them again."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class WorkerExit:
    """How a process ended before its trials had."""

    code: int
    """Its exit code; minus the number of the signal that ended it."""
    limit_s: float | None = None
    """How long it could take, where it took longer and was ended for it."""
    ran_out_of_memory: bool = False
    """Whether the system killed a process for memory meanwhile, and this one was killed."""

    @property
    def is_from_outside(self) -> bool:
        """Whether its trials may well end as usual once more."""
        is_known = self.limit_s is not None or self.ran_out_of_memory
        return not is_known and self.code in FROM_OUTSIDE

    def failure(self, log: str) -> Failure:
        """Of each trial it left behind, with the end of its log."""
        from trainlab.machine.device import OUT_OF_MEMORY

        kind, remedy = "ProcessDied", ""
        if self.limit_s is not None:
            kind, remedy = "TimedOut", "; give it more with --trial-timeout, or see where it hangs"
        elif self.ran_out_of_memory:
            kind, remedy = OUT_OF_MEMORY, "; use a smaller batch, or fewer --jobs"
        return Failure(kind=kind, message=f"{self.reason}{remedy}", traceback=log)

    @property
    def reason(self) -> str:
        """In words."""
        if self.limit_s is not None:
            return f"took longer than {_time_text(self.limit_s)}"
        if self.ran_out_of_memory:
            return "its process was killed because memory ran out"
        if self.code == INTERRUPTED:
            return "its process was told to end from outside"
        if self.code < 0:
            return f"its process was ended by {signal_name(-self.code)}"
        return f"its process ended with code {self.code}"


def _time_text(seconds: float) -> str:
    for unit, length_s in (("h", 3600), ("min", 60)):
        if seconds >= length_s and not seconds % length_s:
            return f"{seconds / length_s:g} {unit}"
    return f"{seconds:g} s"


class JobProcess:
    """The driver's hold on a process that was started for a job; see `trainlab.execute.job`."""

    def __init__(
        self, launcher: Launcher, job: Job, log: Path, limit_s: float | None = None
    ) -> None:
        """`limit_s`: how long it may work."""
        self.job, self._log, self._limit_s = job, log.absolute(), limit_s
        with suppress(OSError):  # a log that cannot be written fails no trial
            log.parent.mkdir(exist_ok=True)
        self._log_begin = log.stat().st_size if log.exists() else 0
        self._num_killed_before = num_killed_for_memory()
        self.busy_s = 0.0
        """How long it has worked, up to the last answer."""
        self._asked_s: float | None = None
        """When it was told to do what it has not answered yet."""
        self._is_overdue = False
        self._process, self.pipe = launcher.launch(job, self._log)

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        code: int | None = self._process.exitcode
        return code

    def exit(self) -> WorkerExit:
        """How it ended, once it has."""
        code = self.exit_code
        assert code is not None
        limit_s = self._limit_s if self._is_overdue else None
        more_killed = num_killed_for_memory() > self._num_killed_before
        return WorkerExit(code, limit_s, code == -signal.SIGKILL and more_killed)

    def tell(self, *command: object) -> None:
        """A process that has died is noticed by its answer."""
        self._asked_s = time.monotonic()
        with suppress(OSError):
            self.pipe.send_bytes(json.dumps(command).encode())

    def has_answered(self) -> bool:
        """Whether it has, or has died: then the pipe may stay open, held by a child of its own. One that
        takes too long is ended; its log then says where it was."""
        # Before the look into the pipe: what it wrote before it died still counts.
        is_dead = self.exit_code is not None
        if self.pipe.poll() or is_dead:
            return True
        if self._limit_s is None or self._asked_s is None:
            return False
        if self.busy_s + time.monotonic() - self._asked_s <= self._limit_s:
            return False
        self._is_overdue = True
        if WHERE_SIGNAL is not None:
            os.kill(self._process.pid, WHERE_SIGNAL)
        self.end_within(WHERE_S)
        return True

    def receive(self) -> dict[str, Any] | None:
        """The next that it says; None where it has died."""
        while not self.has_answered():
            connection.wait([self.pipe, self._process.sentinel], POLL_S)
        if self._asked_s is not None:
            self.busy_s += time.monotonic() - self._asked_s
            self._asked_s = None
        with suppress(EOFError, OSError):
            if self.pipe.poll():
                told: dict[str, Any] = json.loads(self.pipe.recv_bytes())
                return told
        self.end_within(DONE_S)
        return None

    def restart_clock(self) -> None:
        """It goes on with something else, which may take as long again."""
        self.busy_s, self._asked_s = 0.0, time.monotonic()

    def answer(self) -> Any:
        """To what it was told; None too where it has died."""
        told = self.receive()
        return None if told is None else told["answer"]

    def send_signal(self, number: int) -> None:
        """If it still runs."""
        if self.exit_code is None:
            os.kill(self._process.pid, number)

    def end_within(self, patience_s: float) -> None:
        """Waits until it has ended, not for ever."""
        self._process.join(patience_s)
        if self.exit_code is None:
            self._process.kill()
            self._process.join()

    def kill(self) -> None:
        """Ends it at once, if it has not ended by itself."""
        if self.exit_code == LOST:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        self.end_within(0)
        self.pipe.close()
        with suppress(OSError):
            if not self._log.stat().st_size:
                self._log.unlink()
                self._log.parent.rmdir()  # where this was the last

    def printed(self) -> str:
        """The end of what it has printed."""
        return tail_of(self._log, self._log_begin)


def tail_of(path: Path, begin: int = 0) -> str:
    """The end of a log, from so many bytes on at the earliest; nothing where it cannot be read."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(begin, size - TAIL_BYTES))
            return stream.read(TAIL_BYTES).decode("utf-8", "backslashreplace")
    except OSError:
        return ""


class WorkerProcess(JobProcess):
    """One that runs the trials of a group, and the records that it leaves."""

    def __init__(
        self,
        run: RunFolder,
        group: Group,
        environment: str,
        launcher: Launcher,
        threads: int | None = None,
        trial_timeout_s: float | None = None,
        code: str | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        self._folders = [run.trial(trial_id) for trial_id in group.ids]
        of_script = any(is_script(trial.workload) for trial in group.trials)
        self._patience_s = SCRIPT_INTERRUPTED_S if of_script else INTERRUPTED_S
        self.has_begun = self.has_ended = False
        self.has_died = False
        """Whether it has left trials behind, which are recorded as failed."""
        job = Job(
            run=str(run.path.absolute()),
            trials=group.ids,
            environment=environment,
            token=uuid.uuid4().hex[:12],
            code=code,
            threads=threads or group.threads,
            files=dict(files or {}),
        )
        # Of trials that run together each counts its share of the time.
        limit_s = None if trial_timeout_s is None else trial_timeout_s * len(group.trials)
        super().__init__(launcher, job, run.log_file(group.ids[0]), limit_s)

    def begin(self) -> None:
        """Lets it run its trials."""
        self.has_begun = True
        self.tell("go")

    def finish_run(self) -> None:
        """Waits until it has run its trials and ended."""
        self.answer()
        self._end()

    def warm_up(self) -> "Footprint | None":
        """Lets it set its trial up and warm it; None where that failed or the process died."""
        from trainlab.machine.device import Footprint

        self.has_begun = True
        found = self._ask("warm_up")
        return None if found is None else Footprint(**found)

    def turn(self, number: int) -> float | None:
        """Lets it take a turn; None where the trial failed or the process died."""
        median_ms: float | None = None if self.has_ended else self._ask("turn", number)
        return median_ms

    def finish(self, bench: str, stopped: Literal["tight", "budget"]) -> None:
        """Lets it write its record and end."""
        if self.has_ended:
            return
        self.tell("finish", bench, stopped)
        deadline_s = time.monotonic() + FINISHED_S
        while self.exit_code is None and time.monotonic() < deadline_s:
            if not any(folder.read().state == "running" for folder in self._folders):
                break
            self._process.join(POLL_S)
        self._end()
        self.record_exit()

    def _ask(self, *command: object) -> Any:
        self.tell(*command)
        answer = self.answer()
        if answer is None:
            self._end()
            self.record_exit()
        return answer

    def _end(self) -> None:
        """Waits for the end of a process that has nothing more to do, not for ever."""
        self.has_ended = True
        self.tell()
        self.end_within(DONE_S)

    def interrupt(self) -> None:
        """Asks it to close its records; one that has not begun has none."""
        self.send_signal(signal.SIGTERM if self.has_begun else signal.SIGKILL)

    def wait_since(self, interrupted_s: float) -> None:
        """Waits until one that was interrupted then, on the monotonic clock, has ended, not for ever."""
        self.end_within(max(0.0, interrupted_s + self._patience_s - time.monotonic()))

    def unfinished(self) -> list[str]:
        """The trials that it left behind when it ended; nobody else will end them."""
        begun = {"running", "interrupted"} if self.exit_code == INTERRUPTED else {"running"}
        return [
            record.id
            for record in (folder.read() for folder in self._folders)
            if record.state == "pending"
            or (record.state in begun and record.token == self.job.token)
        ]

    def record_exit(self) -> None:
        """Records the trials that it left behind as failed."""
        left = self.unfinished()
        self.has_died = bool(left)
        self._record(left, "failed", self.exit().failure(self.printed()) if left else None)

    def record_interrupted(self) -> None:
        """Records the trial that it was running when it was ended."""
        records = [folder.read() for folder in self._folders]
        running = [
            one.id for one in records if one.state == "running" and one.token == self.job.token
        ]
        self._record(running, "interrupted", None)

    def _record(self, trial_ids: Sequence[str], state: str, error: Failure | None) -> None:
        for folder in self._folders:
            if (record := folder.read()).id in trial_ids:
                folder.end(record.model_copy(update={"state": state, "error": error}))
