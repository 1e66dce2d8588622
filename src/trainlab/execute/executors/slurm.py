"""slurm: a Slurm cluster, by its own commands (sbatch, squeue, scancel, srun). Shares that need the same
are the tasks of one array job; one that is preempted is requeued by Slurm and goes on with what is left."""

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

from trainlab.errors import SpecError, TrainlabError
from trainlab.execute.executors.cluster import Needs, Request, Task

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "srun")
NODE = (sys.executable, "-P", "-m", "trainlab.execute.node")
LOOK_EVERY_S = 2.0
"""Between two looks at the queue, which all users share."""
MOST_IN_ARRAY = 1000
"""Slurm's own limit unless its administrator has raised it."""
GRACE_S = 20
"""Between the polite kill at a time limit and the hard one."""


class SlurmTask:
    """One task of an array job, as `1234_5`."""

    def __init__(self, queue: "_Queue", name: str) -> None:
        self._queue, self._name = queue, name

    def has_ended(self) -> bool:
        return self._name not in self._queue.names()

    def cancel(self) -> None:
        _call("scancel", self._name)


class _Queue:
    """The tasks of our jobs that have not ended, looked up now and then."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self._names: set[str] = set()
        self._next_look_s = 0.0

    def add(self, job: str, names: Sequence[str]) -> None:
        self.jobs.append(job)
        self._names.update(names)
        self._next_look_s = time.monotonic() + LOOK_EVERY_S

    def names(self) -> set[str]:
        if time.monotonic() >= self._next_look_s:
            told = _call("squeue", "--me", "--noheader", "--array", "--format=%i")
            self._names = set(told.split())
            self._next_look_s = time.monotonic() + LOOK_EVERY_S
        return self._names


class SlurmCluster:
    """The cluster whose commands are on the path."""

    def __init__(self, options: str) -> None:
        """`options` are sbatch's own, as `partition=gpu,time=30`."""
        missing = [name for name in COMMANDS if shutil.which(name) is None]
        if missing:
            raise SpecError([f"--on: slurm needs {missing[0]}, which is not on the path here"])
        self._options, self._queue = slurm_options(options), _Queue()

    def ask(self, text: str, needs: Needs) -> str:
        words = [*self._words(needs), "--quiet", "--ntasks=1", *NODE, "preflight"]
        return _call("srun", *words, text=text)

    def submit(self, requests: Sequence[Request]) -> Sequence[Task]:
        found: dict[int, Task] = {}
        by_needs: dict[Needs, list[int]] = {}
        for place, request in enumerate(requests):
            by_needs.setdefault(request.needs, []).append(place)
        for needs, places in by_needs.items():
            for first in range(0, len(places), MOST_IN_ARRAY):
                some = places[first : first + MOST_IN_ARRAY]
                tasks = self._submit_array([requests[place] for place in some], needs)
                found |= zip(some, tasks, strict=True)
        return [found[place] for place in range(len(requests))]

    def num_slots(self, needs: Needs) -> int:
        partition = self._options.get("partition")
        words = [] if partition is None else [f"--partition={partition}"]
        # Allocated/idle/other/total.
        told = _call("sinfo", "--noheader", "--format=%C", *words).split()
        cpus = sum(int(line.rpartition("/")[2]) for line in told)
        return max(1, cpus // (needs.cpus or 1))

    def close(self) -> None:
        """Tasks were cancelled by whoever had them."""

    def _submit_array(self, requests: Sequence[Request], needs: Needs) -> list[SlurmTask]:
        folder, last = requests[0].file.parent, len(requests) - 1
        files = "\n".join(shlex.quote(str(request.file)) for request in requests)
        # `exec`: the signals of Slurm must reach Python, not a shell around it.
        script = (
            f"#!/bin/bash\nfiles=(\n{files}\n)\n"
            f'share="${{files[$SLURM_ARRAY_TASK_ID]}}"\n'
            f'exec {shlex.join(NODE)} run "$share" >> "${{share%.json}}.log" 2>&1\n'
        )
        told = _call(
            "sbatch",
            "--parsable",
            f"--array=0-{last}",
            "--job-name=trainlab",
            "--requeue",
            "--open-mode=append",
            f"--signal=B:TERM@{GRACE_S}",
            f"--output={folder}/slurm-%A_%a.log",
            *self._words(needs),
            text=script,
        )
        job = told.strip().partition(";")[0]
        names = [f"{job}_{number}" for number in range(last + 1)]
        self._queue.add(job, names)
        return [SlurmTask(self._queue, name) for name in names]

    def _words(self, needs: Needs) -> list[str]:
        size = ["--exclusive"] if needs.cpus is None else [f"--cpus-per-task={needs.cpus}"]
        return ["--nodes=1", *size, *(f"--{name}={value}" for name, value in self._options.items())]


def slurm_options(text: str) -> dict[str, str]:
    """`partition=gpu,time=30` as a table; SpecError where it is none."""
    options: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not value or not re.fullmatch(r"[a-z][a-z-]*", name):
            raise SpecError(
                [f"--slurm: got {part!r}, must be options of sbatch, as partition=gpu,time=30"]
            )
        options[name] = value
    return options


def _call(*words: str, text: str = "") -> str:
    done = subprocess.run(words, input=text, text=True, capture_output=True)
    if done.returncode:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise TrainlabError(f"{words[0]}: {reason}")
    return done.stdout
