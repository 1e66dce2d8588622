"""WorkerProcess: the driver's hold on a worker in a process of its own, and on the records it leaves."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

from trainlab.execute.attempt import new_token
from trainlab.execute.job import INTERRUPTED, Job
from trainlab.execute.launch.death import Death
from trainlab.execute.launch.ends import end_at_once, end_hanging, end_within
from trainlab.execute.launch.launcher import ForkedProcess, Launcher
from trainlab.execute.launch.log import Log
from trainlab.machine.device import Footprint
from trainlab.machine.host import num_killed_for_memory
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.spec.facts import is_script
from trainlab.watching import script_process as script

PATIENCE_S = 10.0
"""How long a process that is done may take to end."""
FINISHED_S = 300.0
"""How long one may take for its last steps and its record: on a slow or busy machine steps take seconds."""
INTERRUPTED_S = 4.0
"""How long interrupted processes may take to close their records."""
SCRIPT_INTERRUPTED_S = 2 * script.INTERRUPTED_S + script.RECORDED_S + PATIENCE_S
"""The same, of those that run a script: it may have something to save before and after our records."""
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
        trial_timeout_s: float | None = None,
        code: str | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        self._folders = [run.trial(trial_id) for trial_id in group.ids]
        self._job = Job(
            run=str(run.path.absolute()),
            trials=group.ids,
            environment=environment,
            token=new_token(),
            code=code,
            threads=threads or group.threads,
            path=tuple(sys.path),
            files=dict(files or {}),
        )
        self._launcher = launcher
        self._bench = bench_kind(group)
        of_script = any(is_script(trial.workload) for trial in group.trials)
        self._patience_s = SCRIPT_INTERRUPTED_S if of_script else INTERRUPTED_S
        # A file: nobody reads while the process waits for its next turn, and a full pipe would block it.
        self._log = Log(run.log_file(group.ids[0]))
        self._num_killed_for_memory = num_killed_for_memory()
        self._process = launcher.launch(self._job, self._log.stream, self._bench)
        self._received = b""
        """Of an answer that has not come whole."""
        self._has_begun = self._has_ended = self._is_overdue = False
        self.has_died = False
        """Whether it has left trials behind, which are recorded as failed."""
        # Of trials that run together each counts its share of the time.
        self._limit_s = None if trial_timeout_s is None else trial_timeout_s * len(group.trials)
        self.busy_s = 0.0
        """How long it has worked, up to the last answer."""
        self._asked_s: float | None = None
        """When it was told to do what it has not answered yet."""

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
            self.record_death()
        return None if answer is None else Footprint(**answer)

    def turn(self, number: int) -> float | None:
        """Lets it take a turn; None where the trial failed or the process died."""
        if self._has_ended:
            return None
        self._tell(f"turn {number}")
        answer: float | None = self._answer()
        if answer is None:
            self._end()
            self.record_death()
        return answer

    def finish(self, bench: str, stopped: Literal["tight", "budget"]) -> None:
        """Lets it write its record and end."""
        if self._has_ended:
            return
        self._tell(f"finish {bench} {stopped}")
        deadline_s = time.monotonic() + FINISHED_S
        while self._is_at_work() and time.monotonic() < deadline_s:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=POLL_S)
        self._end()
        self.record_death()

    @property
    def answers(self) -> int:
        """The pipe that can be read when it has something to say."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def has_answered(self) -> bool:
        """Whether it has, or has died: then the pipe may stay open, held by a child of its own. One that
        takes too long is ended."""
        while b"\n" not in self._received:
            # Before the look into the pipe: what it wrote before it died still counts.
            is_dead = self._process.poll() is not None
            if not select.select([self.answers], [], [], 0)[0]:
                return is_dead or self._was_overdue()
            received = os.read(self.answers, 1 << 16)
            if not received:
                return True
            self._received += received
        return True

    def kill(self) -> None:
        """Ends it at once, if it has not ended by itself."""
        end_at_once(self._process)
        self._log.close()

    def interrupt(self) -> None:
        """Asks it to close its records; one that has not begun has none."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM if self._has_begun else signal.SIGKILL)

    def wait_since(self, interrupted_s: float) -> None:
        """Waits until one that was interrupted then, on the monotonic clock, has ended, not for ever."""
        end_within(self._process, max(0.0, interrupted_s + self._patience_s - time.monotonic()))

    def unfinished(self) -> list[str]:
        """The trials that it left behind when it ended; nobody else will end them."""
        begun = {"running", "interrupted"} if self._process.poll() == INTERRUPTED else {"running"}
        return [
            record.id
            for record in (folder.read() for folder in self._folders)
            if record.state == "pending"
            or (record.state in begun and record.token == self._job.token)
        ]

    @property
    def death(self) -> Death:
        """How it ended, once it has."""
        limit_s = self._limit_s if self._is_overdue else None
        return Death.of(self._process.returncode, limit_s, self._num_killed_for_memory)

    def record_death(self) -> None:
        """Records the trials that it left behind as failed."""
        left = self.unfinished()
        self.has_died = bool(left)
        for folder in self._folders:
            record = folder.read()
            if record.id in left:
                error = self.death.failure(self._log.tail())
                folder.end(record.model_copy(update={"state": "failed", "error": error}))

    def record_interrupted(self) -> None:
        """Records the trial that it was running when it was ended."""
        for folder in self._folders:
            record = folder.read()
            if record.state == "running" and record.token == self._job.token:
                folder.end(record.model_copy(update={"state": "interrupted"}))

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
            self._process = self._launcher.launch(self._job, self._log.stream, self._bench)
            self._answer()

    def _tell(self, command: str) -> None:
        """A process that has died is noticed by its answer."""
        assert self._process.stdin is not None
        self._asked_s = time.monotonic()
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{command}\n".encode())

    def _answer(self) -> Any:
        """None too where the process has died."""
        while not self.has_answered():
            select.select([self.answers], [], [], POLL_S)
        if self._asked_s is not None:
            self.busy_s += time.monotonic() - self._asked_s
            self._asked_s = None
        line, has_come, self._received = self._received.partition(b"\n")
        return json.loads(line) if has_come else None

    def _was_overdue(self) -> bool:
        """Whether it had worked for too long and was ended; its log then says where it was."""
        if self._limit_s is None or self._asked_s is None:
            return False
        if self.busy_s + time.monotonic() - self._asked_s <= self._limit_s:
            return False
        self._is_overdue = True
        end_hanging(self._process)
        return True

    def _is_at_work(self) -> bool:
        """Whether it has yet to write its records."""
        running = (folder.read().state == "running" for folder in self._folders)
        return self._process.poll() is None and any(running)

    def _end(self) -> None:
        """Waits for the end of a process that has nothing more to do, not for ever."""
        self._has_ended = True
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        end_within(self._process, PATIENCE_S)
