"""Runs trials in fresh processes, one at a time, so that nothing that ran before can colour them.

Starting a process is mostly imports, on one core. So several are started together, and each then sleeps
until its turn has come: it runs its trial alone.
"""

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from trainlab.record.environment import usable_vcpus
from trainlab.record.folder import RunFolder
from trainlab.record.schema import Failure

PATIENCE_S = 10.0
"""How long an interrupted process may take to close its records."""
MOST_TOGETHER = 8


class Watcher(Protocol):
    """Who is told what happens."""

    def starting(self, trial_ids: Sequence[str]) -> AbstractContextManager[object]:
        """Entered while the processes of these trials start."""

    def running(self, trial_id: str) -> AbstractContextManager[object]:
        """Entered while a trial runs."""


class Nobody:
    """Watches nothing."""

    def starting(self, trial_ids: Sequence[str]) -> AbstractContextManager[object]:
        return nullcontext()

    def running(self, trial_id: str) -> AbstractContextManager[object]:
        return nullcontext()


def run_fresh(
    folder: RunFolder,
    trial_ids: Sequence[str],
    watcher: Watcher | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Runs each trial in a process of its own, until all are done or `is_over` says to start no more."""
    watcher = watcher or Nobody()
    together = min(MOST_TOGETHER, usable_vcpus())
    for first in range(0, len(trial_ids), together):
        if is_over():
            return
        some = trial_ids[first : first + together]
        with watcher.starting(some):
            waiting = _started(folder, some)
        try:
            for trial_id in some:
                if is_over():
                    return
                with watcher.running(trial_id):
                    waiting.pop(0).run()
        finally:
            for process in waiting:
                process.dismiss()


def _started(folder: RunFolder, trial_ids: Sequence[str]) -> "list[FreshProcess]":
    """A process for each trial, all of them past their imports."""
    processes = [FreshProcess(folder, trial_id) for trial_id in trial_ids]
    try:
        for process in processes:
            process.wait_until_ready()
    except BaseException:
        for process in processes:
            process.dismiss()
        raise
    return processes


class FreshProcess:
    """The worker in a process of its own, on one trial, which begins when told to."""

    def __init__(self, folder: RunFolder, trial_id: str) -> None:
        self._home = folder.trial(trial_id)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trainlab.execute.turn", str(folder.path), trial_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        """Until it sleeps, or has died."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def run(self) -> None:
        """Its turn: waits until the trial has ended. A process that dies leaves a failed trial."""
        try:
            _, told = self._process.communicate("go\n")
        except KeyboardInterrupt:
            self._interrupt()
            raise
        record = self._home.read()
        if record.state in ("pending", "running"):
            lost = Failure(
                kind="ProcessDied",
                message=f"its process ended with code {self._process.returncode}",
                traceback=told,
            )
            self._home.write(record.model_copy(update={"state": "failed", "error": lost}))

    def dismiss(self) -> None:
        """Ends a process whose turn never came: it holds nothing."""
        self._process.kill()
        self._process.communicate()

    def _interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
