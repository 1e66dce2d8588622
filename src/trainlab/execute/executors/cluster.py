"""What executors on a cluster have in common: a run is cut into shares, each is a task of the cluster, and
what a lost task has left is given to another.

The cluster only starts and ends tasks. Progress and results come through the run folder, which all nodes
must see at the same path.
"""

import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from trainlab.execute.launch.log import tail_of
from trainlab.execute.planned_run import IsOver
from trainlab.execute.share import UNENDED, Preflight, Share, devices_of
from trainlab.plan import Group
from trainlab.record.files import replacing
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import Failure, State
from trainlab.spec import Study, TrainSpec
from trainlab.spec.facts import WorkloadFacts
from trainlab.train.loader import Loader

POLL_S = 0.5
PATIENCE_S = 20.0
"""How long cancelled tasks may take to close their records."""
SHARES_PER_SLOT = 2
"""So that none is left running alone for long."""
MOST_TRIES = 3
"""Of a share whose task was lost before all of its trials had ended."""


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
        return devices_of(self._cluster.ask(asked.model_dump_json(), needs))

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
        deadline_s = time.monotonic() + PATIENCE_S
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
