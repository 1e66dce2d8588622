"""Clusters: a run is cut into shares, each is a task of the cluster, and what a lost one has left is given
to another.

The cluster only starts and ends tasks (`trainlab.execute.node`). Progress and results come through the run
folder, which all nodes must see at the same path.
"""

import json
import math
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from trainlab.errors import SpecError, TrainlabError
from trainlab.execute.launch import tail_of
from trainlab.execute.planned_run import IsOver, end_left
from trainlab.extras import import_extra
from trainlab.plan import Group, trials_of
from trainlab.record.files import replacing
from trainlab.record.run_folder import RunFolder, TrialFolder
from trainlab.record.trial_record import Failure, State
from trainlab.spec import Spec, Study, TrainSpec

POLL_S = 0.5
CANCELLED_S = 20.0
"""How long cancelled tasks may take to close their records."""
SHARES_PER_SLOT = 2
"""So that none is left running alone for long."""
MOST_TRIES = 3
"""Of a share whose task was lost before all of its trials had ended."""
UNENDED: frozenset[State] = frozenset({"pending", "running", "interrupted"})
"""Trials in such a state are still to be run."""
NODE = ("-P", "-m", "trainlab.execute.node")
NODE_ENDS_S = 60.0
"""How long a node that Ray tells to end may take; a script may have something to save."""
AUTH_VARIABLE, TOKEN_VARIABLE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
SLURM_COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "srun")
LOOK_EVERY_S = 2.0
"""Between two looks at Slurm's queue, which all users share."""
MOST_SHARES = 200
"""Each is a job of its own, and others wait for the scheduler, too."""
GRACE_S = 20
"""Between the polite kill at a time limit and the hard one."""


class Sent(Spec):
    """What a node gets, as JSON."""

    folder: str = Field(default_factory=lambda: str(Path.cwd()))
    """The driver's current folder: workloads may be named relative to it."""
    path: tuple[str, ...] = Field(default_factory=lambda: tuple(filter(None, sys.path)))
    """Where the driver finds modules, looked at last."""


class Share(Sent):
    """Groups that one node runs."""

    run: str
    groups: tuple[Group, ...]
    threads: int | None
    """For trials that do not say how many; None: all of the machine."""
    trial_timeout_s: float | None = None

    @property
    def trials(self) -> tuple[TrialFolder, ...]:
        return tuple(map(RunFolder(Path(self.run)).trial, (t.id for t in trials_of(self.groups))))

    def left(self) -> tuple[Group, ...]:
        """Its groups with a trial that has not ended."""
        open_ids = {folder.path.name for folder in self.trials if folder.read().state in UNENDED}
        return tuple(group for group in self.groups if open_ids.intersection(group.ids))


class Preflight(Sent):
    """A study that is to be checked where its trials will run."""

    study: Study
    each_device: bool


@dataclass(frozen=True)
class Needs:
    """What a share asks of its node."""

    cpus: int | None
    """None: a whole node, with nothing else running there."""
    gpus: int = 0


@dataclass(eq=False)
class Task:
    """A share as the cluster gets it."""

    share: Share
    needs: Needs
    file: Path
    tries: int = 1
    """How often it has been given to the cluster, this time included."""
    name: Any = None
    """What the cluster calls it, once it has it."""

    @property
    def log(self) -> Path:
        """What its node prints."""
        return self.file.with_suffix(".log")


class Cluster(Protocol):
    """Starts tasks somewhere."""

    def ask(self, text: str, needs: Needs) -> str:
        """Gives the text to `trainlab.execute.node preflight` on a node; what that answers."""

    def num_slots(self, needs: Needs) -> int:
        """About how many tasks with these needs run at a time."""

    def submit(self, task: Task) -> None:
        """Starts it, and gives it its name."""

    def has_ended(self, task: Task) -> bool:
        """However it ended: what came of it is in the run folder."""

    def cancel(self, task: Task) -> None:
        """Asks it to close its records and end; returns at once."""

    def close(self) -> None:
        """Ends what it has started for this run."""


class ClusterExecutor:
    """Learn trials are tasks of their own; all that measures cost is one task on one node by itself."""

    def __init__(self, cluster: Cluster, trial_timeout_s: float | None = None) -> None:
        self._cluster, self._numbers = cluster, count(1)
        self._trial_timeout_s, self._token = trial_timeout_s, uuid.uuid4().hex[:8]

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        asked = Preflight(study=study, each_device=each_device)
        asking = [cell.settings for cell in study.all_cells]
        needs = _needs(asking, max(one.threads or 1 for one in asking))
        told = json.loads(self._cluster.ask(asked.model_dump_json(), needs))
        if problems := told.get("problems"):
            raise SpecError(problems)
        return tuple(told["devices"])

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        waiting = [self._task(run, share) for share in self._shares(run, groups)]
        sent: list[Task] = []
        try:
            while (waiting or sent) and not is_over():
                ready = [task for task in waiting if _has_weights(run, task.share)]
                for task in ready:
                    self._cluster.submit(task)
                    sent.append(task)
                ended = [task for task in sent if self._cluster.has_ended(task)]
                sent = [task for task in sent if task not in ended]
                again = filter(None, (self._lost(run, task) for task in ended))
                waiting = [*(task for task in waiting if task not in ready), *again]
                if not ended:
                    time.sleep(POLL_S)
        finally:
            self._end(sent)

    def close(self) -> None:
        self._cluster.close()

    def _shares(self, run: RunFolder, groups: Sequence[Group]) -> list[Share]:
        """Groups that may run beside others are dealt out to some more shares than run at a time, as a node
        takes seconds to start. Those that may not are one: costs are compared on one machine only."""
        whole = Share(
            run=str(run.path.resolve()),
            groups=tuple(group for group in groups if group.is_alone),
            threads=None,
            trial_timeout_s=self._trial_timeout_s,
        )
        shares = [whole] if whole.groups else []
        by_size: dict[tuple[int, int], list[Group]] = {}
        for group in groups:
            if not group.is_alone:
                size = group.settings.threads or 1, group.settings.processes
                by_size.setdefault(size, []).append(group)
        for (threads, _), some in by_size.items():
            needs = _needs([group.settings for group in some], threads)
            num_slots = self._cluster.num_slots(needs)
            number = min(len(some), SHARES_PER_SLOT * num_slots, MOST_SHARES)
            shares += [
                whole.model_copy(update={"groups": tuple(some[first::number]), "threads": threads})
                for first in range(number)
            ]
        return shares

    def _task(self, run: RunFolder, share: Share, tries: int = 1) -> Task:
        file = run.shares_folder / f"{self._token}-{next(self._numbers)}.json"
        file.parent.mkdir(exist_ok=True)
        with replacing(file) as part:
            part.write_text(share.model_dump_json())
        asking = [group.settings for group in share.groups]
        return Task(share, _needs(asking, share.threads), file, tries)

    def _lost(self, run: RunFolder, ended: Task) -> Task | None:
        """What an ended task has left undone and may be tried again; else it is recorded as failed."""
        if not (left := ended.share.left()):
            return None
        if ended.tries < MOST_TRIES:
            return self._task(run, ended.share.model_copy(update={"groups": left}), ended.tries + 1)
        message = f"its task on the cluster was lost {ended.tries} times"
        failure = Failure(kind="TaskLost", message=message, traceback=tail_of(ended.log))
        end_left(ended.share.trials, UNENDED, "failed", failure)
        return None

    def _end(self, left: list[Task]) -> None:
        """Cancels what still runs, waits for its records, and writes those that it could not."""
        cancelled = tuple(left)
        for task in cancelled:
            self._cluster.cancel(task)
        deadline_s = time.monotonic() + CANCELLED_S
        while left and time.monotonic() < deadline_s:
            left = [task for task in left if not self._cluster.has_ended(task)]
            time.sleep(POLL_S / 5)
        for task in cancelled:
            end_left(task.share.trials, ("running",), "interrupted")


def _has_weights(run: RunFolder, share: Share) -> bool:
    """Whether the trials whose weights it starts from have ended."""
    needed = {trial.weights_of for trial in trials_of(share.groups)} - {None}
    return all(run.trial(str(one)).read().state not in UNENDED for one in needed)


def _needs(asking: Sequence[TrainSpec], threads: int | None) -> Needs:
    """Of what runs one after the other; no threads: a whole node."""
    processes = max(one.processes for one in asking)
    wants_gpu = any(one.device == "auto" or one.device.startswith("cuda") for one in asking)
    cpus = None if threads is None else threads * processes
    return Needs(cpus, gpus=processes if wants_gpu else 0)


class RayCluster:
    """A running cluster, joined; or one of this machine's CPUs and GPUs, started and ended with the run. A
    task of Ray starts the node in a process of its own; retries are counted by us, not by Ray."""

    def __init__(self, address: str) -> None:
        """`//HEAD:PORT` of a client's port, or an address that Ray knows; empty: started here."""
        address = f"ray:{address}" if address.startswith("//") else address
        if not address and "ray" not in sys.modules and AUTH_VARIABLE not in os.environ:
            # Read as Ray is imported: a cluster that is started here obeys only those who have the token,
            # since Ray listens on all of a machine's addresses.
            os.environ[AUTH_VARIABLE], os.environ[TOKEN_VARIABLE] = "token", secrets.token_hex(32)
        self._ray: Any = import_extra("ray", "--on ray", "ray")
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            here: dict[str, Any] = {"address": "local", "include_dashboard": False}
            quiet = {"logging_level": "ERROR", "log_to_driver": False, "configure_logging": False}
            try:
                self._ray.init(**({"address": address} if address else here), **quiet)
            except Exception as error:
                reason = str(error).strip().partition("\n")[0]
                what = f"Ray at {address} does not answer" if address else "Ray does not start here"
                raise SpecError([f"--on: {what}: {reason}"]) from error
        self._run = self._ray.remote(max_retries=0)(_run_node)
        self._ask = self._ray.remote(max_retries=0)(_ask_node)

    def ask(self, text: str, needs: Needs) -> str:
        answer: str = self._ray.get(self._ask.options(**self._options(needs)).remote(text))
        return answer

    def num_slots(self, needs: Needs) -> int:
        wanted, total = self._options(needs), self._ray.cluster_resources()
        by_gpu = total["GPU"] / wanted["num_gpus"] if wanted["num_gpus"] else math.inf
        return max(1, int(min(total.get("CPU", 1.0) / wanted["num_cpus"], by_gpu)))

    def submit(self, task: Task) -> None:
        run = self._run.options(**self._options(task.needs))
        task.name = run.remote(str(task.file), str(task.log))

    def has_ended(self, task: Task) -> bool:
        ended, _ = self._ray.wait([task.name], timeout=0)
        return bool(ended)

    def cancel(self, task: Task) -> None:
        self._ray.cancel(task.name)

    def close(self) -> None:
        if self._is_ours:
            self._ray.shutdown()

    def _options(self, needs: Needs) -> dict[str, float]:
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        most = max(node.get("CPU", 1.0) for node in nodes)
        has_gpu = any(node.get("GPU", 0.0) for node in nodes)
        cpus = most if needs.cpus is None else min(float(needs.cpus), most)
        return {"num_cpus": cpus, "num_gpus": float(needs.gpus) if has_gpu else 0.0}


def _run_node(share: str, log: str) -> int:
    """Runs in a process of Ray's."""
    with Path(log).open("ab") as lines:
        process = subprocess.Popen(
            [sys.executable, *NODE, "run", share],
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=lines,
        )
        try:
            while process.poll() is None:
                time.sleep(POLL_S / 5)  # Ray interrupts Python code, not a wait for another process
            return process.returncode
        except BaseException:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(NODE_ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def _ask_node(text: str) -> str:
    return subprocess.check_output([sys.executable, *NODE, "preflight"], input=text, text=True)


class SlurmCluster:
    """The cluster whose commands are on the path. A job that is preempted is requeued by Slurm, and goes on
    with what is left of its share."""

    def __init__(self, options: str) -> None:
        """`options` are sbatch's own, as `partition=gpu,time=30`."""
        missing = [name for name in SLURM_COMMANDS if shutil.which(name) is None]
        if missing:
            raise SpecError([f"--on: slurm needs {missing[0]}, which is not on the path here"])
        self._options = slurm_options(options)
        self._queue: set[str] = set()
        """The jobs of this user that have not ended, looked up now and then."""
        self._next_look_s = 0.0

    def ask(self, text: str, needs: Needs) -> str:
        words = [*self._words(needs), "--quiet", "--ntasks=1", sys.executable, *NODE, "preflight"]
        return _call("srun", *words, text=text)

    def submit(self, task: Task) -> None:
        # `exec`: the signals of Slurm must reach Python, not a shell around it.
        command = shlex.join([sys.executable, *NODE, "run", str(task.file)])
        told = _call(
            "sbatch",
            "--parsable",
            "--job-name=trainlab",
            "--requeue",
            "--open-mode=append",
            f"--signal=B:TERM@{GRACE_S}",
            f"--output={task.log}",
            *self._words(task.needs),
            text=f"#!/bin/bash\nexec {command}\n",
        )
        task.name = told.strip().partition(";")[0]
        self._queue.add(task.name)
        self._next_look_s = time.monotonic() + LOOK_EVERY_S

    def num_slots(self, needs: Needs) -> int:
        partition = self._options.get("partition")
        words = [] if partition is None else [f"--partition={partition}"]
        # Allocated/idle/other/total.
        told = _call("sinfo", "--noheader", "--format=%C", *words).split()
        cpus = sum(int(line.rpartition("/")[2]) for line in told)
        return max(1, cpus // (needs.cpus or 1))

    def has_ended(self, task: Task) -> bool:
        if time.monotonic() >= self._next_look_s:
            told = _call("squeue", "--me", "--noheader", "--format=%i")
            self._queue = set(told.split())
            self._next_look_s = time.monotonic() + LOOK_EVERY_S
        return task.name not in self._queue

    def cancel(self, task: Task) -> None:
        _call("scancel", task.name)

    def close(self) -> None:
        """Tasks were cancelled by whoever had them."""

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
