"""Runs trials in fresh processes, one at a time, so that nothing that ran before can colour them.

A timed trial has a process to itself. Trials that watch the same thing, and supply no speed, share one.
Starting a process is mostly imports, on one core. So several are started together, and each then sleeps
until its turn has come: it runs alone.
"""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from typing import Protocol

from trainlab.machine.environment import usable_vcpus
from trainlab.record.folder import RunFolder
from trainlab.record.schema import Failure, TrialRecord

PATIENCE_S = 10.0
"""How long an interrupted process may take to close its records."""
MOST_TOGETHER = 8
PER_VCPU = 2
"""Processes started together: more than one each, since some take longer than others."""

Ids = tuple[str, ...]
"""Trials of one process."""


class Watcher(Protocol):
    """Who is told what happens."""

    def starting(self, processes: Sequence[Ids]) -> AbstractContextManager[object]:
        """Entered while processes for these trials start."""

    def running(self, trial_ids: Ids) -> AbstractContextManager[object]:
        """Entered while a process runs its trials."""


class Nobody:
    """Watches nothing."""

    def starting(self, processes: Sequence[Ids]) -> AbstractContextManager[object]:
        return nullcontext()

    def running(self, trial_ids: Ids) -> AbstractContextManager[object]:
        return nullcontext()


def run_fresh(
    folder: RunFolder,
    trials: Sequence[TrialRecord],
    watcher: Watcher | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Runs the trials in fresh processes, until all are done or `is_over` says to start no more."""
    watcher = watcher or Nobody()
    processes = list(_processes(trials))
    together = min(MOST_TOGETHER, PER_VCPU * usable_vcpus())
    for first in range(0, len(processes), together):
        if is_over():
            return
        some = processes[first : first + together]
        with watcher.starting(some):
            waiting = _started(folder, some)
        try:
            for trial_ids in some:
                if is_over():
                    return
                with watcher.running(trial_ids):
                    waiting.pop(0).run()
        finally:
            for process in waiting:
                process.dismiss()


def _processes(trials: Sequence[TrialRecord]) -> Iterator[Ids]:
    """Which trials share a process, in the order planned."""

    def process_of(trial: TrialRecord) -> object:
        if trial.watch == "steps":
            return trial.id
        return trial.cell, trial.cost, trial.weights_of

    for _, group in groupby(trials, process_of):
        yield tuple(trial.id for trial in group)


def _started(folder: RunFolder, processes: Sequence[Ids]) -> "list[FreshProcess]":
    """All of them past their imports."""
    started = [FreshProcess(folder, trial_ids) for trial_ids in processes]
    try:
        for process in started:
            process.wait_until_ready()
    except BaseException:
        for process in started:
            process.dismiss()
        raise
    return started


class FreshProcess:
    """The worker in a process of its own, on a few trials, which begins when told to."""

    def __init__(self, folder: RunFolder, trial_ids: Ids) -> None:
        self._homes = [folder.trial(trial_id) for trial_id in trial_ids]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trainlab.execute.job", str(folder.path), *trial_ids],
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
        """Its turn: waits until it has ended. A process that dies leaves failed trials behind."""
        try:
            _, told = self._process.communicate("go\n")
        except KeyboardInterrupt:
            self._interrupt()
            raise
        for home in self._homes:
            record = home.read()
            if record.state in ("pending", "running"):
                lost = Failure(
                    kind="ProcessDied",
                    message=f"its process ended with code {self._process.returncode}",
                    traceback=told,
                )
                home.write(record.model_copy(update={"state": "failed", "error": lost}))

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
