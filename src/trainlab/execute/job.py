"""A job: a group of trials for a worker in a process of its own, as JSON.

    python -P -m trainlab.execute.job '{"run": …, "trials": […], "environment": …}'

The process imports all it needs, says `ready` and sleeps until a line comes on its standard input:

    go                          runs its trials, answers with null and ends
    warm_up                     sets its one timed trial up and warms it; answers with its footprint
    turn NUMBER                 takes a turn in the round of that number; answers with the median step
    finish BENCH STOPPED        writes the record and ends

Answers are lines of JSON on standard output; null where the trial has failed, which is then recorded.
What the user's code prints goes to standard error, which is the log of the process, and it finds nothing to
read. The process does not wait for threads that the user's code has left behind.
"""

import atexit
import faulthandler
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar, NoReturn, TextIO

import torch

from trainlab.errors import Interrupted
from trainlab.execute.bench import TimedTrial
from trainlab.execute.planned_run import planned_trial
from trainlab.execute.signals import interrupted_once
from trainlab.execute.worker import run_group
from trainlab.machine.processes import end_with_parent, own_streams
from trainlab.record.run_folder import RunFolder
from trainlab.spec import Spec
from trainlab.train.engines.ddp import start_ahead
from trainlab.train.loader import Loader

INTERRUPTED = 130
"""The exit code of a worker that was told to end, and has recorded so."""
WHERE_SIGNAL = getattr(signal, "SIGUSR1", None)
"""Makes a worker write to its log where it is: what hangs cannot say so itself."""


class Job(Spec):
    """What a worker process is told."""

    module: ClassVar[str] = "trainlab.execute.job"
    run: str
    """The run folder."""
    trials: tuple[str, ...]
    environment: str
    """The name under which the machine is recorded."""
    token: str | None = None
    """That of its attempts."""
    code: str | None = None
    """The fingerprint of the workload's code when the run began."""
    threads: int | None = None
    """For trials that do not say how many; None: torch's choice."""
    path: tuple[str, ...] = ()
    """Where the driver finds modules, looked at last: the user may have added to it."""
    files: dict[str, str] = {}
    """Those of workloads that were given as objects, by name."""


def main() -> int:
    """Does the job given as the first argument, as lines come; leaves when none will."""
    job = Job.model_validate_json(sys.argv[1])
    run = RunFolder(Path(job.run))
    sys.path += [place for place in job.path if place not in sys.path]
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    commands, answers = own_streams()
    faulthandler.enable()
    if WHERE_SIGNAL is not None:
        faulthandler.register(WHERE_SIGNAL)
    try:
        interrupted_once()
        _prepare(run, job)
        _answer(answers, "ready")
        command = commands.readline().split()
        if command == ["go"]:
            load = Loader(code=job.code, files=job.files)
            run_group(run, job.trials, job.environment, load, token=job.token)
            _answer(answers, None)
        elif command:
            _take_turns(run, job, command, commands, answers)
    except Interrupted:
        return INTERRUPTED
    return 0


def _take_turns(
    run: RunFolder, job: Job, command: list[str], commands: TextIO, answers: TextIO
) -> None:
    """Obeys until the trial is finished, has failed, or nobody is left to take turns with."""
    (trial_id,) = job.trials
    load = Loader(code=job.code, files=job.files)
    trial = TimedTrial(run, trial_id, job.environment, load, job.token)
    try:
        while command:
            match command:
                case ["warm_up"]:
                    found = trial.warm_up()
                    answer: object = None if found is None else asdict(found)
                case ["turn", number]:
                    answer = trial.turn(int(number))
                case ["finish", bench, "tight" | "budget" as stopped]:
                    trial.finish(bench, stopped)
                    return
                case _:
                    raise AssertionError(command)
            _answer(answers, answer)
            command = commands.readline().split()
    finally:
        trial.abandon()


def _answer(answers: TextIO, value: object) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def _prepare(run: RunFolder, job: Job) -> None:
    """What takes seconds and can be done before it is this process's turn. torch's optimizers import their
    compiler when the first is made; the other processes of a trial import all."""
    folders = [run.trial(trial_id) for trial_id in job.trials]
    if (first := planned_trial(folders[0])).settings.processes > 1:
        start_ahead(first)
    if any(folder.read().mode != "inference" for folder in folders):
        importlib.import_module("torch._dynamo")


def work(main: Callable[[], int]) -> NoReturn:
    """Does what a process was started for, and ends it."""
    try:
        exit_code = main()
    except Exception:  # noqa: BLE001  as an interpreter would: shown, and its code is 1
        traceback.print_exc()
        exit_code = 1
    leave(exit_code)


def leave(code: int) -> NoReturn:
    """Ends the process as an interpreter does, but for its wait until all threads have ended."""
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    end_with_parent()
    work(main)
