"""WorkerProcess: the driver's hold on a worker in a process of its own, and on the records it leaves."""

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any, Literal

from trainlab.execute.attempt import new_token
from trainlab.execute.job import Job
from trainlab.execute.launch.launcher import ForkedProcess, Launcher
from trainlab.machine.footprint import Footprint
from trainlab.plan import Group
from trainlab.record.folder import RunFolder
from trainlab.record.trial import Failure, State

PATIENCE_S = 10.0
"""How long an interrupted process may take to close its records, and one that is done to end."""
POLL_S = 0.2
"""Between two looks whether a process that does not answer is still alive."""


def bench_kind(group: Group) -> str | None:
    """Of benches of one kind each is a sample of the same: `train-1` and `train-2` are."""
    return None if group.bench is None else group.bench.rpartition("-")[0]


class WorkerProcess:
    """The worker in a process of its own, which waits for a command (see `trainlab.execute.job`)."""

    def __init__(
        self,
        run: RunFolder,
        group: Group,
        environment: str,
        launcher: Launcher,
        threads: int | None = None,
    ) -> None:
        self._folders = [run.trial(trial_id) for trial_id in group.ids]
        self._job = Job(
            run=str(run.path),
            trials=group.ids,
            environment=environment,
            token=new_token(),
            threads=threads or group.threads,
            path=tuple(sys.path),
        )
        self._launcher = launcher
        self._bench = bench_kind(group)
        # A file: nobody reads while the process waits for its next turn, and a full pipe would block it.
        self._stderr = TemporaryFile(mode="w+", errors="backslashreplace")  # noqa: SIM115
        self._process = launcher.launch(self._job, self._stderr, self._bench)
        self._received = b""
        """Of an answer that has not come whole."""
        self._has_begun = self._has_ended = False

    @property
    def has_ended(self) -> bool:
        """Whether it was waited for to its end."""
        return self._has_ended

    def wait_until_ready(self) -> None:
        """Until it sleeps, or has died; one that was lost with the server is started once more."""
        if self._answer() is None:
            self._replace_lost()

    @property
    def has_begun(self) -> bool:
        """Whether it was told to run."""
        return self._has_begun

    def run(self) -> None:
        """Lets it run its trials and waits until it has ended."""
        self.begin()
        self.finish_run()

    def begin(self) -> None:
        """Lets it run its trials."""
        self._begin("go")

    def finish_run(self) -> None:
        """Waits until it has run its trials and ended."""
        self._answer()
        self._end()

    def warm_up(self) -> Footprint | None:
        """Lets it set its trial up and warm it; None where that failed or the process died."""
        self._begin("warm_up")
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

    @property
    def answers(self) -> int:
        """The pipe that can be read when it has something to say."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def has_answered(self) -> bool:
        """Whether it has, or has died: then the pipe may stay open, held by a child of its own."""
        while b"\n" not in self._received:
            # Before the look into the pipe: what it wrote before it died still counts.
            is_dead = self._process.poll() is not None
            if not select.select([self.answers], [], [], 0)[0]:
                return is_dead
            received = os.read(self.answers, 1 << 16)
            if not received:
                return True
            self._received += received
        return True

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

    def _begin(self, command: str) -> None:
        self._replace_lost()
        self._has_begun = True
        self._tell(command)

    def _replace_lost(self) -> None:
        """One that died with the fork server, through no fault of its own, before it had begun."""
        process = self._process
        if isinstance(process, ForkedProcess) and process.poll() is not None and process.was_lost:
            process.close()
            self._received = b""
            self._process = self._launcher.launch(self._job, self._stderr, self._bench)
            self._answer()

    def _tell(self, command: str) -> None:
        """A process that has died is noticed by its answer."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{command}\n".encode())

    def _answer(self) -> Any:
        """None too where the process has died."""
        while not self.has_answered():
            select.select([self.answers], [], [], POLL_S)
        line, has_come, self._received = self._received.partition(b"\n")
        return json.loads(line) if has_come else None

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
            is_ours = record.state == "running" and record.token == self._job.token
            if is_ours or (record.state == "pending" and state == "failed"):
                lost = Failure(kind="ProcessDied", message=message, traceback=stderr)
                error = lost if state == "failed" else None
                folder.end(record.model_copy(update={"state": state, "error": error}))
