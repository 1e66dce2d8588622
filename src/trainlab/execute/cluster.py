"""Clusters: a run is cut into shares, each is a task of the cluster, and what a lost one has left is given
to another.

The cluster only starts and ends tasks (`trainlab.execute.node`). Progress and results come through the run
folder, which all nodes must see at the same path.

- ray: a Ray cluster, or one started here. Each share is a Ray task, which starts the node in a process of
  its own; retries are counted by us, not by Ray.
- slurm: a Slurm cluster, by its own commands. Shares that need the same are the tasks of one array job; one
  that is preempted is requeued by Slurm and goes on with what is left.
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

from trainlab.errors import SpecError, TrainlabError
from trainlab.execute.launch import tail_of
from trainlab.execute.planned_run import IsOver
from trainlab.execute.preflight import raise_told
from trainlab.extras import import_extra
from trainlab.plan import Group
from trainlab.record.files import replacing
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import Failure, State
from trainlab.spec import Spec, Study, TrainSpec
from trainlab.spec.facts import WorkloadFacts
from trainlab.train.loader import Loader

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
MOST_IN_ARRAY = 1000
"""Slurm's own limit unless its administrator has raised it."""
GRACE_S = 20
"""Between the polite kill at a time limit and the hard one."""


class Share(Spec):
    """Groups that one node runs."""

    run: str
    """The run folder."""
    groups: tuple[Group, ...]
    threads: int | None
    """For trials that do not say how many; None: all of the machine."""
    trial_timeout_s: float | None = None
    """How long a trial may take."""
    folder: str
    """The driver's current folder: workloads may be named relative to it."""
    path: tuple[str, ...] = ()
    """Where the driver finds modules, looked at last."""

    def left(self) -> tuple[Group, ...]:
        """Its groups with a trial that has not ended."""
        run = RunFolder(Path(self.run))
        return tuple(
            group
            for group in self.groups
            if any(run.trial(trial_id).read().state in UNENDED for trial_id in group.ids)
        )


class Preflight(Spec):
    """A study that is to be checked where its trials will run."""

    study: Study
    each_device: bool
    folder: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Needs:
    """What a share asks of its node."""

    cpus: int | None
    """None: a whole node, with nothing else running there."""
    gpus: int = 0


@dataclass(frozen=True)
class Request:
    """A share as the cluster gets it."""

    file: Path
    log: Path
    needs: Needs


class Task(Protocol):
    """A share that a cluster has taken."""

    def has_ended(self) -> bool:
        """However it ended: what came of it is in the run folder."""

    def cancel(self) -> None:
        """Asks it to close its records and end; returns at once."""


class Cluster(Protocol):
    """Starts tasks somewhere."""

    def ask(self, text: str, needs: Needs) -> str:
        """Gives the text to `trainlab.execute.node preflight` on a node; what that answers."""

    def num_slots(self, needs: Needs) -> int:
        """About how many tasks with these needs run at a time."""

    def submit(self, requests: Sequence[Request]) -> Sequence[Task]:
        """A task for each."""

    def close(self) -> None:
        """Ends what it has started for this run."""


@dataclass(frozen=True)
class _Sent:
    share: Share
    task: Task
    log: Path
    tries: int


class ClusterExecutor:
    """Learn trials are tasks of their own; all that measures cost is one task on one node by itself."""

    def __init__(self, cluster: Cluster, trial_timeout_s: float | None = None) -> None:
        self._cluster, self._numbers = cluster, count(1)
        self._trial_timeout_s = trial_timeout_s
        self._token = uuid.uuid4().hex[:8]

    def facts(self, workload: str) -> WorkloadFacts:
        return Loader().workload(workload).facts

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        path = _module_path()
        asked = Preflight(study=study, each_device=each_device, folder=str(Path.cwd()), path=path)
        asking = [cell.settings for cell in study.all_cells]
        needs = _needs(asking, max(one.threads or 1 for one in asking))
        told = json.loads(self._cluster.ask(asked.model_dump_json(), needs))
        raise_told(told)
        return tuple(told["devices"])

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        waiting, sent = self._shares(run, groups), list[_Sent]()
        try:
            while (waiting or sent) and not is_over():
                ready = [share for share in waiting if _has_weights(run, share)]
                waiting = [share for share in waiting if share not in ready]
                sent += self._send(run, [(share, 1) for share in ready])
                ended = [one for one in sent if one.task.has_ended()]
                sent = [one for one in sent if one not in ended]
                sent += self._send(run, _lost(run, ended))
                if not ended:
                    time.sleep(POLL_S)
        finally:
            self._end(run, sent)

    def close(self) -> None:
        self._cluster.close()

    def _shares(self, run: RunFolder, groups: Sequence[Group]) -> list[Share]:
        """Groups that may run beside others are dealt out to some more shares than run at a time, as a node
        takes seconds to start. Those that may not are one: costs are compared on one machine only."""
        alone = [group for group in groups if group.is_alone]
        shares = [self._share(run, alone, None)] if alone else []
        by_size: dict[tuple[int, int], list[Group]] = {}
        for group in groups:
            if not group.is_alone:
                by_size.setdefault((group.threads or 1, group.processes), []).append(group)
        for (threads, _), some in by_size.items():
            needs = _needs(some, threads)
            number = min(len(some), SHARES_PER_SLOT * self._cluster.num_slots(needs))
            shares += [self._share(run, some[first::number], threads) for first in range(number)]
        return shares

    def _share(self, run: RunFolder, groups: Sequence[Group], threads: int | None) -> Share:
        return Share(
            run=str(run.path.resolve()),
            groups=tuple(groups),
            threads=threads,
            trial_timeout_s=self._trial_timeout_s,
            folder=str(Path.cwd()),
            path=_module_path(),
        )

    def _send(self, run: RunFolder, shares: Sequence[tuple[Share, int]]) -> list[_Sent]:
        """Gives shares to the cluster; each with how often that has been tried, this time included."""
        requests = [self._request(run, share) for share, _ in shares]
        tasks = self._cluster.submit(requests) if requests else ()
        return [
            _Sent(share, task, request.log, tries)
            for (share, tries), request, task in zip(shares, requests, tasks, strict=True)
        ]

    def _request(self, run: RunFolder, share: Share) -> Request:
        file = run.shares_folder / f"{self._token}-{next(self._numbers)}.json"
        file.parent.mkdir(exist_ok=True)
        with replacing(file) as part:
            part.write_text(share.model_dump_json())
        needs = _needs(share.groups, share.threads)
        return Request(file, file.with_suffix(".log"), needs)

    def _end(self, run: RunFolder, sent: Sequence[_Sent]) -> None:
        """Cancels what still runs, waits for its records, and writes those that it could not."""
        for one in sent:
            one.task.cancel()
        deadline_s = time.monotonic() + CANCELLED_S
        left = list(sent)
        while left and time.monotonic() < deadline_s:
            left = [one for one in left if not one.task.has_ended()]
            time.sleep(POLL_S / 5)
        for one in sent:
            _record_left(run, one.share, ("running",), "interrupted", None)


def _has_weights(run: RunFolder, share: Share) -> bool:
    """Whether the trials whose weights it starts from have ended."""
    needed = {trial.weights_of for group in share.groups for trial in group.trials} - {None}
    return all(run.trial(str(one)).read().state not in UNENDED for one in needed)


def _lost(run: RunFolder, ended: Sequence[_Sent]) -> list[tuple[Share, int]]:
    """What ended tasks have left undone and may be tried again; else it is recorded as failed."""
    again: list[tuple[Share, int]] = []
    for one in ended:
        if left := one.share.left():
            if one.tries < MOST_TRIES:
                again.append((one.share.model_copy(update={"groups": left}), one.tries + 1))
            else:
                message = f"its task on the cluster was lost {one.tries} times"
                failure = Failure(kind="TaskLost", message=message, traceback=tail_of(one.log))
                _record_left(run, one.share, tuple(UNENDED), "failed", failure)
    return again


def _record_left(
    run: RunFolder, share: Share, states: Sequence[State], state: State, error: Failure | None
) -> None:
    for group in share.groups:
        for trial_id in group.ids:
            folder = run.trial(trial_id)
            record = folder.read()
            if record.state in states:
                folder.end(record.model_copy(update={"state": state, "error": error}))


def _module_path() -> tuple[str, ...]:
    return tuple(place for place in sys.path if place)


def _needs(asking: Sequence[Group | TrainSpec], threads: int | None) -> Needs:
    """Of what runs one after the other; no threads: a whole node."""
    processes = max(one.processes for one in asking)
    wants_gpu = any(_wants_gpu(one.device) for one in asking)
    cpus = None if threads is None else threads * processes
    return Needs(cpus, gpus=processes if wants_gpu else 0)


def _wants_gpu(device: str) -> bool:
    return device == "auto" or device.startswith("cuda")


class RayTask:
    """A task, by its reference."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference = ray, reference

    def has_ended(self) -> bool:
        ended, _ = self._ray.wait([self._reference], timeout=0)
        return bool(ended)

    def cancel(self) -> None:
        self._ray.cancel(self._reference)


class RayCluster:
    """A running cluster, joined; or one of this machine's CPUs and GPUs, started and ended with the run."""

    def __init__(self, address: str) -> None:
        """`//HEAD:PORT` of a client's port, or an address that Ray knows; empty: started here."""
        address = f"ray:{address}" if address.startswith("//") else address
        if not address:
            _ask_for_a_token()
        self._ray: Any = import_extra("ray", "--on ray", "ray")
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            self._connect(address)
        self._run = self._ray.remote(max_retries=0)(_run_node)
        self._ask = self._ray.remote(max_retries=0)(_ask_node)

    def ask(self, text: str, needs: Needs) -> str:
        answer: str = self._ray.get(self._ask.options(**self._options(needs)).remote(text))
        return answer

    def submit(self, requests: Sequence[Request]) -> Sequence[Task]:
        return [
            RayTask(
                self._ray,
                self._run.options(**self._options(one.needs)).remote(str(one.file), str(one.log)),
            )
            for one in requests
        ]

    def close(self) -> None:
        if self._is_ours:
            self._ray.shutdown()

    def _connect(self, address: str) -> None:
        quiet = {"logging_level": "ERROR", "log_to_driver": False, "configure_logging": False}
        try:
            if address:
                self._ray.init(address=address, **quiet)
            else:
                self._ray.init(address="local", include_dashboard=False, **quiet)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            where = f"Ray at {address} does not answer" if address else "Ray does not start here"
            raise SpecError([f"--on: {where}: {reason}"]) from error

    def num_slots(self, needs: Needs) -> int:
        wanted, total = self._options(needs), self._ray.cluster_resources()
        by_gpu = total["GPU"] / wanted["num_gpus"] if wanted["num_gpus"] else math.inf
        return max(1, int(min(total.get("CPU", 1.0) / wanted["num_cpus"], by_gpu)))

    def _options(self, needs: Needs) -> dict[str, float]:
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        most = max(node.get("CPU", 1.0) for node in nodes)
        has_gpu = any(node.get("GPU", 0.0) for node in nodes)
        cpus = most if needs.cpus is None else min(float(needs.cpus), most)
        return {"num_cpus": cpus, "num_gpus": float(needs.gpus) if has_gpu else 0.0}


def _ask_for_a_token() -> None:
    """Before Ray is imported, which then reads it: a cluster that is started here obeys only those who have
    the token, since Ray listens on all of a machine's addresses."""
    if "ray" not in sys.modules and AUTH_VARIABLE not in os.environ:
        os.environ[AUTH_VARIABLE], os.environ[TOKEN_VARIABLE] = "token", secrets.token_hex(32)


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
    done = subprocess.run(
        [sys.executable, *NODE, "preflight"],
        input=text,
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout


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
        missing = [name for name in SLURM_COMMANDS if shutil.which(name) is None]
        if missing:
            raise SpecError([f"--on: slurm needs {missing[0]}, which is not on the path here"])
        self._options, self._queue = slurm_options(options), _Queue()

    def ask(self, text: str, needs: Needs) -> str:
        words = [*self._words(needs), "--quiet", "--ntasks=1", sys.executable, *NODE, "preflight"]
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
            f'exec {shlex.join([sys.executable, *NODE])} run "$share" >> "${{share%.json}}.log" 2>&1\n'
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
