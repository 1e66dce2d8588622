"""What a process does that was started for a job: it obeys, one command after the other.

    go                          runs its trials; answers null
    warm_up                     sets its one timed trial up and warms it; answers with its footprint
    turn NUMBER                 takes a turn in the round of that number; answers with the median step
    finish BENCH STOPPED        writes the record
    facts WORKLOAD              answers what a study needs to know of the workload
    preflight STUDY EACH        answers with the devices, and the fingerprint of the code

Commands and answers are JSON in a pipe; null where a trial has failed, which is then recorded. While it
checks a workload, it also says what is done: {"doing": FIELD} and {"download": [NAME, BYTES, OF]}; an error
is an answer, and with every other come the environment variables that the user's code has set: trials are
started with them. What the user's code prints goes to the log of the process, and it finds nothing to read.
"""

import atexit
import faulthandler
import importlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import torch

from trainlab.data.fetch import reporting_to
from trainlab.errors import Interrupted
from trainlab.execute.bench import TimedTrial
from trainlab.execute.launch import INTERRUPTED, WHERE_SIGNAL, Job
from trainlab.execute.planned_run import planned_trial
from trainlab.execute.preflight import FIRST_STEP, preflight, told_error
from trainlab.execute.signals import ENDING, interrupted_once
from trainlab.execute.worker import run_group
from trainlab.machine.processes import lasting_stream
from trainlab.record.run_folder import RunFolder
from trainlab.spec import Study
from trainlab.train.engines.ddp import start_ahead
from trainlab.train.loader import Loader
from trainlab.workloads.user_code import listening

TOLD_AGAIN_S = 0.2
"""Of a field that runs again: models are made one after the other, and each may take its time."""
ORPHANED_S = 5.0
"""How long a process may take to close its records once its driver is gone."""


def work(job: Job, pipe: Connection, log: str) -> NoReturn:
    """Obeys until there is nothing more to do, and ends the process as an interpreter does, but for its
    wait until all threads have ended: the user's code may have left some."""
    _set_up_process(job, pipe, log)
    code = 0
    try:
        interrupted_once()
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        _Worker(job, pipe).work()
    except Interrupted:
        code = INTERRUPTED
    except Exception:  # noqa: BLE001  as an interpreter would: shown, and its code is 1
        traceback.print_exc()
        code = 1
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


class _Worker:
    """Obeys, and answers."""

    def __init__(self, job: Job, pipe: Connection) -> None:
        self._job, self._pipe, self._pid = job, pipe, os.getpid()
        self._load = Loader(code=job.code, files=job.files)
        self._run, self._timed = RunFolder(Path(job.run)), None
        self._environment = dict(os.environ)
        self._doing, self._told_s = "", 0.0

    _timed: TimedTrial | None

    def work(self) -> None:
        """Until no more commands come."""
        self._prepare()
        self._say({"answer": "ready"})
        try:
            while command := self._command():
                if command[0] in ("facts", "preflight"):
                    self._check(command)
                else:
                    self._say({"answer": self._obey(command)})
        finally:
            if self._timed is not None:
                self._timed.abandon()

    def _prepare(self) -> None:
        """What takes seconds and can be done before it is this process's turn."""
        folders = [self._run.trial(trial_id) for trial_id in self._job.trials]
        if folders and (first := planned_trial(folders[0])).settings.processes > 1:
            start_ahead(first)
        if any(folder.read().mode != "inference" for folder in folders):
            importlib.import_module("torch._dynamo")

    def _command(self) -> list[Any]:
        try:
            command: list[Any] = json.loads(self._pipe.recv_bytes())
            return command
        except (EOFError, OSError):
            return []

    def _obey(self, command: list[Any]) -> Any:
        job = self._job
        if command[0] == "go":
            run_group(self._run, job.trials, job.environment, self._load, token=job.token)
            return None
        if self._timed is None:
            (trial_id,) = job.trials
            self._timed = TimedTrial(self._run, trial_id, job.environment, self._load, job.token)
        match command:
            case ["warm_up"]:
                found = self._timed.warm_up()
                return None if found is None else asdict(found)
            case ["turn", number]:
                return self._timed.turn(number)
            case ["finish", bench, stopped]:
                self._timed.finish(bench, stopped)
                return None
        raise AssertionError(command)

    def _check(self, command: list[Any]) -> None:
        self._doing = ""
        try:
            with listening(self._about_to_run), reporting_to(self._downloaded):
                answer = self._checked(command)
        except Interrupted:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  the user's code may raise anything
            told = told_error(error)
            self._say(told or {"defect": "".join(traceback.format_exception(error))})
            return
        now, before = os.environ, self._environment
        changed = {n: now.get(n) for n in before.keys() | now.keys() if now.get(n) != before.get(n)}
        self._say({"answer": answer, "environment": changed})

    def _checked(self, command: list[Any]) -> Any:
        if command[0] == "facts":
            return asdict(self._load.workload(command[1]).facts)
        study = Study.model_validate_json(command[1])
        devices = preflight(study, self._load, each_device=command[2])
        return {"devices": devices, "code": self._load.known_code(study.workload)}

    def _about_to_run(self, field: str) -> None:
        field = FIRST_STEP if self._doing == FIRST_STEP else field
        now_s = time.monotonic()
        if field != self._doing or now_s - self._told_s > TOLD_AGAIN_S:
            self._doing, self._told_s = field, now_s
            self._say({"doing": field})

    def _downloaded(self, what: str, done: int, total: int | None) -> None:
        self._say({"download": [what, done, total]})

    def _say(self, told: Mapping[str, Any]) -> None:
        """Processes that the user's code forks have nothing to say; the driver may be gone."""
        if os.getpid() == self._pid and not self._pipe.closed:
            try:
                self._pipe.send_bytes(json.dumps(told, default=_plain).encode())
            except OSError:
                self._pipe.close()


def _plain(value: object) -> object:
    """A number of numpy's as Python's own; anything else that JSON has no word for as it is printed."""
    item = getattr(value, "item", None)
    return item() if callable(item) and not getattr(value, "shape", ()) else repr(value)


def _set_up_process(job: Job, pipe: Connection, log: str) -> None:
    """Streams, random numbers, threads, and a driver to end with."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        lines = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError:
        lines = nothing  # a log that cannot be written fails no trial
    for descriptor, stream in enumerate((nothing, lines, lines)):
        os.dup2(stream, descriptor)
    for opened in {nothing, lines}:
        os.close(opened)
    sys.stdout, sys.stderr = lasting_stream(sys.stdout), lasting_stream(sys.stderr)
    faulthandler.enable()
    if WHERE_SIGNAL is not None:
        faulthandler.register(WHERE_SIGNAL)
    if hasattr(os, "register_at_fork"):
        # Else a process that the user's code forks would keep it open after this one has died.
        os.register_at_fork(after_in_child=pipe.close)
    # Python reseeds its own generator in a forked process; those of others would repeat in every one.
    torch.default_generator.seed()
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    threading.Thread(target=_end_with_driver, args=(threading.get_ident(),), daemon=True).start()


def _end_with_driver(main: int) -> None:
    """Waits for the driver's end, however it dies: then this process closes its records and ends, too."""
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGTERM)
        time.sleep(ORPHANED_S)
    os._exit(1)
