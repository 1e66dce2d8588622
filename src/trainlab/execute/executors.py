"""Executors: where and in what order the groups of a run are run.

Everything goes through the run folder: an executor gets the groups to run, each worker records its trials
there, and whoever watches the run reads the events there. Those on clusters stand in `cluster`.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from itertools import groupby
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol

from trainlab.errors import SpecError
from trainlab.execute import launch
from trainlab.execute.attempt import EventWriter, new_token
from trainlab.execute.bench import MOST_READY, run_benches, take_turns
from trainlab.execute.jobs import (
    AUTO,
    ONE_AT_A_TIME,
    AskedJobs,
    Jobs,
    are_processes_asked,
    check_executor,
    jobs_for,
)
from trainlab.execute.launch import Job, WorkerProcess
from trainlab.execute.planned_run import IsOver
from trainlab.execute.preflight import preflight
from trainlab.execute.signals import signals_held
from trainlab.execute.worker import TimedTrial, run_group
from trainlab.machine.device import OUT_OF_MEMORY, pick_device
from trainlab.machine.host import capture, usable_vcpus
from trainlab.machine.process_state import torch_restored
from trainlab.plan import Group, Trial
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Event, JobsRecord
from trainlab.spec import Study
from trainlab.spec.facts import AS_OBJECT
from trainlab.train.callbacks import Instrument
from trainlab.train.engines import engines_for
from trainlab.train.engines.ddp import ProcessLostError
from trainlab.train.loader import Loader

LAST_ROUNDS = 3
"""So many rounds of jobs before the end, the longest are started first."""
PAIR = 2
"""The fewest that a ratio within rounds needs."""
LOST_PROCESS = ProcessLostError.__name__
KILLED = "killed"
MOST_PACKED = 256
"""Trials of one program; more gain nothing."""
FREE = frozenset(
    {"optimizer", "lr", "momentum", "weight_decay", "optimizer_options", "schedule", "lr_gamma"}
    | {"lr_step_epochs", "zero_grad", "seed_parts", "model"}
)
"""Settings that trials of one program may differ in."""


class Executor(Protocol):
    """Runs groups of trials. A group that is alone has its machine to itself."""

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        """Checks a study where its trials will run, and names the devices there."""

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        """Runs the groups until all are done or `is_over` says to start no more; in any order, but one that
        needs the weights of a trial (`weights_of`) after the group of that trial. A trial that fails, or
        whose process dies, is recorded as failed and the others run. An interrupt is recorded in the
        trials it ends, and raised; no process is left behind."""

    def close(self) -> None:
        """Ends what it keeps ready between two calls of `run`."""


def executor_for(
    on: str,
    load: Loader,
    instruments: Sequence[Instrument] = (),
    jobs: AskedJobs = 1,
    trial_timeout_s: float | None = None,
) -> Executor:
    """The executor of that name; SpecError where there is none, or it cannot take the instruments."""
    check_executor(on)
    name, _, detail = on.partition(":")
    if instruments and name not in ("local", "inline"):
        raise SpecError(["instruments: cannot go to another process; use on='local' or 'inline'"])
    if name == "inline":
        return InlineExecutor(load, instruments)
    if name in ("ray", "slurm"):
        from trainlab.execute.cluster import ClusterExecutor, RayCluster, SlurmCluster

        cluster = RayCluster(detail) if name == "ray" else SlurmCluster(detail)
        return ClusterExecutor(cluster, trial_timeout_s)
    return LocalExecutor(load, instruments, jobs, trial_timeout_s, packs=name == "local")


class InlineExecutor:
    """Every group in this process, one after the other: what ran here before may influence a cost.
    Workloads and instruments may be objects here: nothing leaves the process."""

    def __init__(self, load: Loader, instruments: Sequence[Instrument] = ()) -> None:
        self._load, self._instruments = load, instruments

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        return preflight(study, self._load, each_device=each_device)

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        environment = run.write_environment(capture(Path.cwd()))
        study = run.study().to_study(str(run.study_file))
        with closing(EventWriter(run)) as events:

            def run_bench(members: Sequence[Group]) -> None:
                ids = [one for group in members for one in group.ids]
                seats = [TimedTrial(run, trial_id, environment, self._load) for trial_id in ids]
                try:
                    with torch_restored():
                        take_turns(seats, members, events)
                finally:
                    for seat in seats:
                        seat.abandon()

            for is_timed, some in groupby(groups, lambda group: group.bench is not None):
                if is_timed:
                    run_benches(run, study, list(some), run_bench, is_over)
                    continue
                for group in some:
                    if is_over():
                        return
                    events.write(Event(kind="group_begins", trials=group.ids))
                    run_group(run, group.ids, environment, self._load, self._instruments)
                    events.write(Event(kind="group_ends", trials=group.ids))

    def close(self) -> None:
        """Nothing is kept."""


class LocalExecutor:
    """This machine. Every group runs in a fresh process, so that one that crashes fails alone and nothing
    that ran before can influence it; those that may, side by side. A workload given as an object learns in
    this process, unless several trials are to run side by side or one may not take too long; instruments
    given as objects cannot go elsewhere at all."""

    def __init__(
        self,
        load: Loader,
        instruments: Sequence[Instrument] = (),
        jobs: AskedJobs = 1,
        trial_timeout_s: float | None = None,
        *,
        packs: bool = True,
    ) -> None:
        """`packs`: trials that an engine may train together get one process."""
        self._inline, self._load = InlineExecutor(load, instruments), load
        self._has_instruments, self._packs = bool(instruments), packs
        self._sends_objects = not packs or are_processes_asked(jobs, "local", trial_timeout_s)
        self._asked, self._trial_timeout_s = jobs, trial_timeout_s
        self._folder = Path.cwd()

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        devices = preflight(study, self._load, each_device=each_device)
        if not self._learns_here(study.workload):
            self._load.forget_data()
        return devices

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        study = run.study().to_study(str(run.study_file))
        learns_here = self._learns_here(study.workload)
        jobs = ONE_AT_A_TIME if learns_here else self._jobs(run, groups)

        def kind_of(group: Group) -> str:
            return "timed" if group.bench is not None else "alone" if group.is_alone else "shared"

        with closing(EventWriter(run)) as events:
            job = Job(
                run=run.path.absolute(),
                trials=(),
                environment=run.write_environment(capture(self._folder)),
                token="",
                folder=self._folder,
                code=self._load.known_code(study.workload),
                sent=self._load.sent,
            )
            host = _Host(run, events, job, self._trial_timeout_s)
            for kind, some in groupby(packed(groups) if self._packs else groups, kind_of):
                members = list(some)
                if kind == "timed":
                    run_benches(run, study, members, host.run_bench, is_over)
                elif kind == "shared" and learns_here:
                    self._inline.run(run, members, is_over)
                else:
                    host.run_side_by_side(
                        members, jobs if kind == "shared" else ONE_AT_A_TIME, is_over
                    )

    def close(self) -> None:
        launch.close()

    def _learns_here(self, workload: str) -> bool:
        is_kept = workload.endswith(AS_OBJECT) and not self._sends_objects
        return self._has_instruments or is_kept

    def _jobs(self, run: RunFolder, groups: Sequence[Group]) -> Jobs:
        """How many groups run side by side: decided once, when a run begins with these groups."""
        record = run.study()
        if self._asked == AUTO and (decided := record.side_by_side) is not None:
            # What is left of a run might be decided otherwise, and threads change rounding.
            return Jobs(min(decided.number, usable_vcpus()), decided.threads)
        study = record.to_study(str(run.study_file))
        jobs = jobs_for(self._asked, study, groups, lambda group: _is_cpu(group.device))
        if self._asked == AUTO:
            decided = JobsRecord(number=jobs.number, threads=jobs.threads)
            run.write_study(record.model_copy(update={"side_by_side": decided}))
        return jobs


class _Host:
    """Starts processes for the groups of a run, lets them run, and has some run once more.

    Killed from outside, a group runs again as it was, and so does a trial that lost one of its processes. A
    crash or a hang of several trials in one process is the fault of one of them: each then runs alone. So
    does one that found too little memory on a GPU, which others may have used. A bench of which a process
    was killed runs again as a whole, since its figures are ratios within rounds; for want of memory, with
    two processes ready at a time. Each trial is tried once more for each reason.
    """

    def __init__(
        self, run: RunFolder, events: EventWriter, job: Job, trial_timeout_s: float | None
    ) -> None:
        """`job`: what is the same for all of its processes."""
        self._run, self._events, self._job = run, events, job
        self._trial_timeout_s = trial_timeout_s
        self._tried_again: set[tuple[str, str]] = set()
        """Trials, and why."""
        self._times_s: dict[str, float] = {}
        """Of a trial, by cell, in the last group that ended."""

    def run_side_by_side(self, groups: Sequence[Group], jobs: Jobs, is_over: IsOver) -> None:
        """Keeps so many processes running as there are jobs, in the order planned; what is tried once more
        comes last. Towards the end those that take longest go first, so that none is left running alone."""
        waiting, running = list(groups), dict[WorkerProcess, Group]()
        with _ending() as processes:
            while True:
                if len(waiting) <= LAST_ROUNDS * jobs.number:
                    waiting.sort(key=lambda one: -self._times_s.get(one.trials[0].cell, 0.0))
                while (group := _next(waiting, running.values(), jobs)) and not is_over():
                    waiting.remove(group)
                    processes.append(process := self._process(group, jobs.threads))
                    running[process] = group
                    number = jobs.number
                    self._events.write(
                        Event(kind="group_begins", trials=group.ids, num_side_by_side=number)
                    )
                    process.tell("run")
                if not running:
                    return
                for process in _answering(running):
                    group = running.pop(process)
                    process.finish_run()
                    waiting += self._again(process, group)
                    process.kill()
                    processes.remove(process)
                    self._events.write(Event(kind="group_ends", trials=group.ids))
                    for trial in group.trials:
                        self._times_s[trial.cell] = process.busy_s / len(group.trials)

    def run_bench(self, groups: Sequence[Group]) -> None:
        """Starts the processes of a bench together and lets them take turns."""
        most_ready, ids = MOST_READY, tuple(group.ids for group in groups)
        while most_ready:
            with _ending() as processes:
                self._events.write(Event(kind="starting", groups=ids))
                for group in groups:
                    processes.append(process := self._process(group, None))
                    process.tell("ready")
                for process in processes:
                    process.answer()
                self._events.write(Event(kind="ready", groups=ids))
                take_turns(processes, groups, self._events, most_ready)
                most_ready = self._ready_again(processes, groups)

    def _process(self, group: Group, threads: int | None) -> WorkerProcess:
        # Of trials that run together each counts its share of the time.
        each_s = self._trial_timeout_s
        job = replace(
            self._job,
            trials=group.ids,
            token=new_token(),
            threads=threads or group.threads,
            limit_s=None if each_s is None else each_s * len(group.trials),
        )
        return WorkerProcess(self._run, group, job)

    def _again(self, process: WorkerProcess, group: Group) -> list[Group]:
        """What is to be run again of a group whose process has ended; trials that it left behind and that
        have had their chance are recorded as failed."""
        left = {record.id for record in process.unfinished()}
        trials = tuple(trial for trial in group.trials if trial.id in left)
        if not trials:
            return [_alone(trial) for trial in group.trials if self._may_do_better(trial)]
        if process.was_ended_from_outside and self._are_first(trials, KILLED):
            return [group.model_copy(update={"trials": trials})]
        if len(group.trials) > 1:
            return [_alone(trial) for trial in trials]
        process.record_exit()
        return []

    def _ready_again(self, processes: Sequence[WorkerProcess], groups: Sequence[Group]) -> int:
        """How many processes may stand ready as the bench is run once more; 0 where it is not."""
        first = {process: group.trials[0] for process, group in zip(processes, groups, strict=True)}
        died = [process for process in processes if process.has_died]
        for_memory = [first[one] for one in died if one.ran_out_of_memory and len(groups) > PAIR]
        if for_memory and self._are_first(for_memory, OUT_OF_MEMORY):
            return PAIR
        killed = [first[one] for one in died if one.was_ended_from_outside]
        if killed and self._are_first(killed, KILLED):
            return MOST_READY
        lost = [one for one in first.values() if self._error_of(one.id) == LOST_PROCESS]
        return MOST_READY if lost and self._are_first(lost, LOST_PROCESS) else 0

    def _may_do_better(self, trial: Trial) -> bool:
        """Whether it has failed, for the first time, for a reason that may have been others'."""
        kind = self._error_of(trial.id)
        may = kind == LOST_PROCESS or (kind == OUT_OF_MEMORY and not _is_cpu(trial.settings.device))
        return may and self._are_first([trial], kind)

    def _error_of(self, trial_id: str) -> str:
        error = self._run.trial(trial_id).read().error
        return "" if error is None else error.kind

    def _are_first(self, trials: Sequence[Trial], reason: str) -> bool:
        """Whether none of them was tried once more for that reason; they are from now on."""
        asked = {(trial.id, reason) for trial in trials}
        is_first = not asked & self._tried_again
        self._tried_again |= asked
        return is_first


def _alone(trial: Trial) -> Group:
    return Group(trials=(trial,), is_alone=True)


def _next(waiting: Iterable[Group], running: Collection[Group], jobs: Jobs) -> Group | None:
    """The first of those that wait which may start beside those that run."""

    def has_room(group: Group) -> bool:
        if group.is_alone or any(other.is_alone for other in running):
            return not running
        if running and sum(other.processes for other in running) + group.processes > jobs.number:
            return False
        on_gpu = sum(not _is_cpu(other.device) for other in running)
        return _is_cpu(group.device) or jobs.on_gpu > on_gpu

    return next(filter(has_room, waiting), None)


@cache
def _is_cpu(device: str) -> bool:
    return pick_device(device).type == "cpu"


def _answering(processes: Collection[WorkerProcess]) -> list[WorkerProcess]:
    """Those that have something to say, or have died; waits until there is one."""
    while not (answering := [process for process in processes if process.has_answered()]):
        connection.wait([process.pipe for process in processes], launch.POLL_S)
    return answering


@contextmanager
def _ending() -> Iterator[list[WorkerProcess]]:
    """An empty list: processes put there that still run at the end of the block are ended, and the trials
    that they were running recorded as interrupted."""
    processes: list[WorkerProcess] = []
    try:
        yield processes
    except KeyboardInterrupt:
        for process in processes:
            process.interrupt()
        interrupted_s = time.monotonic()
        for process in processes:
            process.wait_since(interrupted_s)
        raise
    finally:
        with signals_held():
            for process in processes:
                process.kill()
            for process in processes:
                process.record_interrupted()


def packed(
    groups: Sequence[Group], runs_together: Callable[[Group], bool] | None = None
) -> list[Group]:
    """Trials of one program, as this machine would run it, put into one group, between those that must be
    alone and in the order in which each program first comes up. Trials of one program may differ in what is
    FREE; other batch sizes are other programs."""
    found: list[Group] = []
    for is_alone, consecutive in groupby(groups, lambda group: group.is_alone):
        if is_alone:
            found += consecutive
            continue
        packs: dict[Any, list[Trial]] = {}
        for number, group in enumerate(consecutive):
            key: Any = number
            if (runs_together or _runs_together)(group):
                trial = group.trials[0]
                shared = trial.settings.model_dump(mode="json", exclude=set(FREE))
                key = trial.workload, *(str(value) for value in shared.values())
            packs.setdefault(key, []).extend(group.trials)
        found += [
            Group(trials=tuple(trials[first : first + MOST_PACKED]), is_alone=False)
            for trials in packs.values()
            for first in range(0, len(trials), MOST_PACKED)
        ]
    return found


def _runs_together(group: Group) -> bool:
    """Whether an engine that takes many trials is the first to be tried for it."""
    settings = group.trials[0].settings
    return engines_for(settings, pick_device(settings.device), has_others=True)[0].takes_many
