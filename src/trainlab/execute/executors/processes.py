"""processes: every group in a fresh process on this machine, one at a time.

Nothing that ran before can influence what runs there. Starting a process is mostly imports, on one core:
so several are started together, and each then sleeps until it gets its turn, and runs alone.
"""

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from trainlab.errors import SpecError
from trainlab.execute.events import EventWriter
from trainlab.execute.executors.executor import IsOver
from trainlab.execute.job import Job
from trainlab.execute.preflight import preflight
from trainlab.machine.environment import capture, usable_vcpus
from trainlab.plan import Group
from trainlab.record.event import Event
from trainlab.record.folder import RunFolder
from trainlab.record.trial import Failure, State
from trainlab.spec import Study
from trainlab.train.loader import Loader
from trainlab.train.moments import Instrument

PATIENCE_S = 10.0
"""How long an interrupted process may take to close its records."""
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
        num_together = min(MAX_TOGETHER, PER_VCPU * usable_vcpus())
        with closing(EventWriter(run)) as events:
            for first in range(0, len(groups), num_together):
                if is_over():
                    return
                batch = groups[first : first + num_together]
                _run_batch(run, batch, environment, events, is_over)


def _run_batch(
    run: RunFolder,
    groups: Sequence[Group],
    environment: str,
    events: EventWriter,
    is_over: IsOver,
) -> None:
    """Starts the processes of these groups together, then lets one after the other run."""
    trial_ids = tuple(group.ids for group in groups)
    events.write(Event(kind="starting", groups=trial_ids))
    processes: list[WorkerProcess] = []
    try:
        for group in groups:
            processes.append(WorkerProcess(run, group, environment))
        for process in processes:
            process.wait_until_ready()
        events.write(Event(kind="ready", groups=trial_ids))
        for group in groups:
            if is_over():
                return
            events.write(Event(kind="group_begins", trials=group.ids))
            processes.pop(0).run()
            events.write(Event(kind="group_ends", trials=group.ids))
    finally:
        for process in processes:
            process.kill()


class WorkerProcess:
    """The worker in a process of its own, which waits for `run`."""

    def __init__(self, run: RunFolder, group: Group, environment: str) -> None:
        self._folders = [run.trial(trial_id) for trial_id in group.ids]
        job = Job(run=str(run.path), trials=group.ids, environment=environment)
        # -P: a psutil.py in the current folder must not stand in for the installed one.
        command = [sys.executable, "-P", "-m", "trainlab.execute.job", job.model_dump_json()]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
        )

    def wait_until_ready(self) -> None:
        """Until it sleeps, or has died."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def run(self) -> None:
        """Lets it run its trials and waits until it has ended."""
        try:
            _, stderr = self._process.communicate("go\n")
        except KeyboardInterrupt:
            self._interrupt()
            raise
        code = self._process.returncode
        self._record_unfinished("failed", f"its process ended with code {code}", stderr)

    def kill(self) -> None:
        """Ends a process that has not run yet: it has recorded nothing."""
        self._process.kill()
        self._process.communicate()

    def _interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._record_unfinished("interrupted", "", "")

    def _record_unfinished(self, state: State, message: str, stderr: str) -> None:
        """A process that dies leaves trials behind that nobody else will end."""
        for folder in self._folders:
            record = folder.read()
            if record.state == "running" or (record.state == "pending" and state == "failed"):
                lost = Failure(kind="ProcessDied", message=message, traceback=stderr)
                error = lost if state == "failed" else None
                folder.write(record.model_copy(update={"state": state, "error": error}))


def make(load: Loader, instruments: Sequence[Instrument]) -> ProcessesExecutor:
    """For `executor_for`. SpecError with instruments: another process cannot get an object."""
    if instruments:
        raise SpecError(["instruments: cannot go to another process; use on='local' or 'inline'"])
    return ProcessesExecutor(load)
