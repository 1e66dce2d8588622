"""Followers: the other processes of a trial, as its first process starts, tells and ends them."""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

import psutil

from trainlab.errors import TrainlabError
from trainlab.machine.identity import signal_name
from trainlab.plan import Trial
from trainlab.spec import Spec
from trainlab.train.rank import Rank

PREFIX = "trainlab-crew-"
"""Of temporary folders."""
PATIENCE_S = 2.0
"""How long one that has lost its connection may take to end."""


class Task(Spec):
    """What a follower is told when it starts."""

    trial: Trial
    rank: Rank
    store: str
    """The file in which the processes meet."""
    path: tuple[str, ...]
    """Where the first process finds modules, looked at last."""


class ProcessLostError(TrainlabError):
    """A process of the trial has ended before it."""


class Followers:
    """Of one trial. They import and set it up while the first process does."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self._number = trial, trial.settings.processes
        _remove_left_behind()
        self._folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._are_ready = False
        try:
            for number in range(1, self._number):
                self._processes.append(self._started(Rank(number=number, of=self._number)))
        except BaseException:
            self.close()
            raise

    def _started(self, rank: Rank) -> "subprocess.Popen[bytes]":
        environment, threads = dict(os.environ), self.trial.settings.threads
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
        path = tuple(sys.path)
        task = Task(trial=self.trial, rank=rank, store=str(self.store), path=path)
        return subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "trainlab.train.follower"),
                task.model_dump_json(),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
        )

    @property
    def folder(self) -> Path:
        """For files that they share; gone with them."""
        return Path(self._folder.name)

    @property
    def store(self) -> Path:
        """The file in which the processes meet."""
        return self.folder / "store"

    def wait_until_ready(self) -> None:
        """Until all have set the trial up; ProcessLostError where one has ended."""
        for process in () if self._are_ready else self._processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise self.lost()
        self._are_ready = True

    def tell(self, command: str, **values: Any) -> None:
        """The same to all; see `trainlab.train.follower`."""
        line = json.dumps([command, values]).encode() + b"\n"
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # its connection is lost as well, which is noticed
                process.stdin.write(line)

    def lost(self) -> ProcessLostError:
        """Which of them has ended, and how."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not (ended := self._ended()) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        if not ended:
            return ProcessLostError("processes: the connection between them broke")
        number, code = ended[0]
        how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
        return ProcessLostError(
            f"processes: number {number} of {self._number} {how}; its error is in the log"
        )

    def close(self) -> None:
        """Ends all."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                with suppress(BrokenPipeError):
                    stream.close()
        self._folder.cleanup()

    def _ended(self) -> list[tuple[int, int]]:
        """Those that have, by number from 2, with their exit codes."""
        codes = ((number, one.poll()) for number, one in enumerate(self._processes, start=2))
        return [(number, code) for number, code in codes if code is not None]


def _remove_left_behind() -> None:
    """The folders of processes that were killed and could not."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError):
            is_ours = owner.isdecimal() and folder.lstat().st_uid == os.getuid()
            if is_ours and not psutil.pid_exists(int(owner)):
                rmtree(folder)


_ahead: Followers | None = None


def start_ahead(trial: Trial) -> None:
    """Starts the followers of a trial that this process will run, and waits until they stand ready: nothing
    of their start is left to disturb what is measured."""
    global _ahead
    _ahead = Followers(trial)
    with suppress(ProcessLostError):  # told when they are needed
        _ahead.wait_until_ready()


def followers_of(trial: Trial) -> Followers:
    """Those that were started ahead, or new ones."""
    global _ahead
    found, _ahead = _ahead, None
    if found is not None and found.trial == trial:
        return found
    if found is not None:
        found.close()
    return Followers(trial)
