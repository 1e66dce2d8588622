"""processes: every group in a fresh process on this machine, one running at a time.

Nothing that ran before can influence what runs there. Starting a process is mostly imports, on one core:
so several are started together, and each then sleeps until it is to run. Those of a bench take turns.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

from trainlab.errors import SpecError
from trainlab.execute.bench import run_benches, run_seats
from trainlab.execute.events import EventWriter
from trainlab.execute.job import Job
from trainlab.execute.preflight import preflight
from trainlab.execute.run import IsOver
from trainlab.execute.signals import signals_held
from trainlab.machine.environment import capture, usable_vcpus
from trainlab.machine.footprint import Footprint
from trainlab.plan import Group
from trainlab.record.event import Event
from trainlab.record.folder import RunFolder
from trainlab.record.trial import Failure, State
from trainlab.spec import Study
from trainlab.train.loader import Loader
from trainlab.train.moments import Instrument

PATIENCE_S = 10.0
"""How long an interrupted process may take to close its records, and one that is done to end."""
POLL_S = 0.2
"""Between two looks whether a process that does not answer is still alive."""
MAX_TOGETHER = 8
PER_VCPU = 2
"""Processes started together: more than one per vCPU, since some take longer than others."""


class ProcessesExecutor:
    """A process per group, in turn."""

    def __init__(self, load: Loader) -> None:
        self._load = load

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        return preflight(study, self._load, each_device=each_device)

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        environment = run.write_environment(capture(Path.cwd()))
        study = run.study().to_study(str(run.study_file))
        num_together = min(MAX_TOGETHER, PER_VCPU * usable_vcpus())
        with closing(EventWriter(run)) as events:
            host = _Host(run, environment, events)
            for is_timed, some in groupby(groups, lambda group: group.bench is not None):
                members = list(some)
                if is_timed:
                    run_benches(run, study, members, host.run_bench, is_over)
                    continue
                for first in range(0, len(members), num_together):
                    if is_over():
                        return
                    host.run_batch(members[first : first + num_together], is_over)


class _Host:
    """Starts processes, some together, and lets them run."""

    def __init__(self, run: RunFolder, environment: str, events: EventWriter) -> None:
        self._run, self._environment, self._events = run, environment, events

    def run_batch(self, groups: Sequence[Group], is_over: IsOver) -> None:
        """Starts the processes of these groups together, then lets one after the other run."""
        with self._started(groups) as processes:
            for group, process in zip(groups, processes, strict=True):
                if is_over():
                    return
                self._events.write(Event(kind="group_begins", trials=group.ids))
                process.run()
                self._events.write(Event(kind="group_ends", trials=group.ids))

    def run_bench(self, groups: Sequence[Group]) -> None:
        """Starts the processes of a bench together and lets them take turns."""
        spec, trial_ids = groups[0].trials[0].cost, tuple(chain(*(group.ids for group in groups)))
        assert spec is not None

        def report(share: float) -> None:
            self._events.write(Event(kind="progress", trials=trial_ids[:1], share=share))

        with self._started(groups) as processes:
            self._events.write(Event(kind="group_begins", trials=trial_ids))
            run_seats(processes, spec, groups[0].bench or "", report)
            self._events.write(Event(kind="group_ends", trials=trial_ids))

    @contextmanager
    def _started(self, groups: Sequence[Group]) -> Iterator[list["WorkerProcess"]]:
        """Processes past their imports; those that still run at the end of the block are ended."""
        ids = tuple(group.ids for group in groups)
        processes: list[WorkerProcess] = []
        try:
            self._events.write(Event(kind="starting", groups=ids))
            for group in groups:
                processes.append(WorkerProcess(self._run, group, self._environment))
            for process in processes:
                process.wait_until_ready()
            self._events.write(Event(kind="ready", groups=ids))
            yield processes
        except KeyboardInterrupt:
            for process in processes:
                process.interrupt()
            for process in processes:
                process.wait()
            raise
        finally:
            with signals_held():
                for process in processes:
                    process.kill()
                for process in processes:
                    process.record_interrupted()


class WorkerProcess:
    """The worker in a process of its own, which waits for a command (see `trainlab.execute.job`)."""

    def __init__(self, run: RunFolder, group: Group, environment: str) -> None:
        self._folders = [run.trial(trial_id) for trial_id in group.ids]
        job = Job(run=str(run.path), trials=group.ids, environment=environment)
        # -P: a psutil.py in the current folder must not stand in for the installed one.
        command = [sys.executable, "-P", "-m", "trainlab.execute.job", job.model_dump_json()]
        # A file: nobody reads while the process waits for its next turn, and a full pipe would block it.
        self._stderr = TemporaryFile(mode="w+", errors="backslashreplace")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
        )
        self._received = b""
        """Of an answer that has not come whole."""
        self._has_begun = self._has_ended = False

    @property
    def has_ended(self) -> bool:
        """Whether it was waited for to its end."""
        return self._has_ended

    def wait_until_ready(self) -> None:
        """Until it sleeps, or has died."""
        self._answer()

    def run(self) -> None:
        """Lets it run its trials and waits until it has ended."""
        self._has_begun = True
        self._tell("go")
        self._answer()
        self._end()

    def warm_up(self) -> Footprint | None:
        """Lets it set its trial up and warm it; None where that failed or the process died."""
        self._has_begun = True
        self._tell("warm_up")
        answer = self._answer()
        if answer is None:
            self._end()
        return None if answer is None else Footprint(**answer)

    def turn(self, number: int) -> float | None:
        """Lets it take a turn; None where the trial failed or the process died."""
        if self._has_ended:
            return None
        self._tell(f"turn {number}")
        answer: float | None = self._answer()
        if answer is None:
            self._end()
        return answer

    def finish(self, bench: str, stopped: Literal["tight", "budget"]) -> None:
        """Lets it write its record and end."""
        if self._has_ended:
            return
        self._tell(f"finish {bench} {stopped}")
        self._end()

    def kill(self) -> None:
        """Ends it at once, if it has not ended by itself."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()

    def interrupt(self) -> None:
        """Asks it to close its records; one that has not begun has none."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT if self._has_begun else signal.SIGKILL)

    def wait(self) -> None:
        """Waits until it has ended, not for ever."""
        try:
            self._process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def record_interrupted(self) -> None:
        """Records the trial that it was running when it was ended."""
        self._record_unfinished("interrupted", "", "")

    def _tell(self, command: str) -> None:
        """A process that has died is noticed by its answer."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{command}\n".encode())

    def _answer(self) -> Any:
        """None too where the process has died: then the pipe may stay open, held by a child of its own."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._received:
            # Before the look into the pipe: what it wrote before it died still counts.
            is_dead = self._process.poll() is not None
            if select.select([pipe], [], [], 0 if is_dead else POLL_S)[0]:
                received = os.read(pipe, 1 << 16)
                self._received += received
                is_dead = not received
            if is_dead and b"\n" not in self._received:
                return None
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    def _end(self) -> None:
        """Waits for the end of a process that has nothing more to do, not for ever."""
        self._has_ended = True
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self.wait()
        self._record_death()

    def _record_death(self) -> None:
        self._stderr.seek(0)
        code = self._process.returncode
        message = f"its process ended with code {code}"
        self._record_unfinished("failed", message, self._stderr.read())

    def _record_unfinished(self, state: State, message: str, stderr: str) -> None:
        """A process that dies leaves trials behind that nobody else will end."""
        for folder in self._folders:
            record = folder.read()
            if record.state == "running" or (record.state == "pending" and state == "failed"):
                lost = Failure(kind="ProcessDied", message=message, traceback=stderr)
                error = lost if state == "failed" else None
                folder.end(record.model_copy(update={"state": state, "error": error}))


def make(load: Loader, instruments: Sequence[Instrument]) -> ProcessesExecutor:
    """For `executor_for`. SpecError with instruments: another process cannot get an object."""
    if instruments:
        raise SpecError(["instruments: cannot go to another process; use on='local' or 'inline'"])
    return ProcessesExecutor(load)
