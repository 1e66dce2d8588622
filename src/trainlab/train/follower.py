"""A process of a crew: takes part in the updates of a trial as its first process says.

    python -P -m trainlab.train.follower '{"trial": …, "rank": …, "store": …}'

It sets the trial up, answers with a line, and then obeys lines of JSON, each a command and its values:

    join                        joins the process group and makes the model parallel
    restore                     goes on from a state in a file
    begin_epoch                 stands ready for the updates of an epoch
    advance                     makes so many updates and takes part in their means
    change_learning_rates       as the schedule says
    run                         makes steps until `stop` comes, and then up to the number it says

It ends when no more lines can come, and with its parent.
"""

import json
import math
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from trainlab.machine.orphans import end_with_parent
from trainlab.machine.process import prepare_process
from trainlab.machine.streams import own_streams
from trainlab.train.checkpoint.tensor_file import read_state
from trainlab.train.engines.engine import Member
from trainlab.train.engines.parallel import SharingSession, free_step
from trainlab.train.loader import Loader
from trainlab.train.moments import Moments, Progress
from trainlab.train.parallel.followers import Task
from trainlab.train.parallel.process_group import in_parallel, join
from trainlab.train.setup import Setup, set_up


def main() -> None:
    """Does the task given as the first argument."""
    task = Task.model_validate_json(sys.argv[1])
    sys.path += [place for place in task.path if place not in sys.path]
    commands, answers = own_streams()
    setup = _set_up(task)
    answers.write("ready\n")
    answers.flush()
    follower = _Follower(task, setup, _Lines(commands.fileno()))
    for command, values in follower.commands:
        getattr(follower, command)(**values)


class _Lines:
    """Commands as they come; unlike a buffered stream's, what has not been taken shows."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._received = descriptor, b""

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        while self._has_line() or self._read():
            if self._has_line():
                line, _, self._received = self._received.partition(b"\n")
                command, values = json.loads(line)
                yield command, values

    def have_come(self) -> bool:
        """Whether there is another, or none will come."""
        return self._has_line() or bool(select.select([self._descriptor], [], [], 0)[0])

    def _has_line(self) -> bool:
        return b"\n" in self._received

    def _read(self) -> bool:
        received = os.read(self._descriptor, 1 << 16)
        self._received += received
        return bool(received)


class _Follower:
    """Its methods are the commands."""

    def __init__(self, task: Task, setup: Setup, commands: _Lines) -> None:
        self._task, self._setup, self.commands = task, setup, commands

    def join(self) -> None:
        task, setup = self._task, self._setup
        join(task.rank, Path(task.store), setup.device)
        self._model = in_parallel(setup.model, setup.device)
        self._session = SharingSession(Member(setup, Moments([]), Progress()), self._model)

    def restore(self, *, path: str) -> None:
        self._session.restore(read_state(Path(path)))

    def begin_epoch(self, *, epoch: int, num_done: int) -> None:
        self._session.begin_epoch(epoch, num_done)

    def advance(self, *, num_steps: int) -> None:
        self._session.advance(num_steps)

    def change_learning_rates(self) -> None:
        self._session.change_learning_rates()

    def run(self) -> None:
        self._setup.model.train()
        step = free_step(self._setup, self._model)
        num_steps, last = 0, math.inf
        while num_steps < last:
            step()
            num_steps += 1
            if last == math.inf and self.commands.have_come():
                _, values = next(iter(self.commands), ("stop", {"num_steps": 0}))
                last = values["num_steps"]


def _set_up(task: Task) -> Setup:
    load, trial = Loader(), task.trial
    prepare_process(trial.settings)
    workload = load.workload(trial.workload)
    data = load.data(trial.workload, trial.settings)
    return set_up(trial, workload, data, rank_number=task.rank.number)


def _work() -> NoReturn:
    code = 0
    try:
        main()
    except BaseException:  # noqa: BLE001  as an interpreter would: shown, and its code is 1
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # the first process may be gone, and with it the process group


if __name__ == "__main__":
    end_with_parent()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        # Meant for the trial; its first process hears them too.
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    _work()
