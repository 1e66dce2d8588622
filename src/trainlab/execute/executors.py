"""Executors: where and in what order the groups of a run are run.

Everything goes through the run folder: an executor gets the groups to run, each worker records its trials
there, and whoever watches the run reads the events there. Those on clusters stand in `cluster`.
"""

import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol

from trainlab.execute import launch
from trainlab.execute.attempt import EventWriter, new_token
from trainlab.execute.bench import run_benches, take_turns
from trainlab.execute.jobs import (
    AUTO,
    ONE_AT_A_TIME,
    AskedJobs,
    Jobs,
    are_processes_asked,
    jobs_for,
)
from trainlab.execute.launch import Job, WorkerProcess
from trainlab.execute.planned_run import IsOver
from trainlab.execute.preflight import preflight
from trainlab.execute.retries import Retries
from trainlab.execute.signals import signals_held
from trainlab.execute.worker import run_group, timed_trial
from trainlab.machine.device import is_cpu, pick_device
from trainlab.machine.environment import capture
from trainlab.machine.host import usable_vcpus
from trainlab.machine.process_state import torch_restored
from trainlab.plan import Group, Trial
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Event, JobsRecord
from trainlab.spec import Study
from trainlab.spec.facts import AS_OBJECT, is_script
from trainlab.train.callbacks import Instrument
from trainlab.train.engines import engines_for
from trainlab.train.loader import Loader

TURNS_TOGETHER_S = 5.0
"""The turns of a process that holds all settings take at most so long."""
REPEATED_TOGETHER = 2
"""So many times as many benches where a single process holds all settings: one is cheap, and one sample."""
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
    """The executor of that name, which `check_place` has found to be one."""
    name, _, detail = on.partition(":")
    if name in ("ray", "slurm"):
        from trainlab.execute.cluster import ClusterExecutor, RayCluster, SlurmCluster

        cluster = RayCluster(detail) if name == "ray" else SlurmCluster(detail)
        return ClusterExecutor(cluster, trial_timeout_s)
    return LocalExecutor(load, instruments, jobs, trial_timeout_s, name)


@dataclass(frozen=True)
class LocalExecutor:
    """This machine. Every group runs in a fresh process, so that one that crashes fails alone; as `local`,
    trials that an engine may train together share one. A workload given as an object learns in this
    process, unless several trials run side by side or one may not take too long. As `inline`, all run in
    this process, where what ran before may influence a cost."""

    load: Loader
    instruments: Sequence[Instrument] = ()
    asked_jobs: AskedJobs = 1
    trial_timeout_s: float | None = None
    on: str = "local"
    shares_bench: Callable[[Group], bool] | None = None
    """Which settings of a bench are timed in one process; None: those on a GPU. There their steps hardly
    depend on what else the process holds; on a CPU they would by 4 to 7%, by their memory alone."""
    folder: Path = field(default_factory=Path.cwd)

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        learns_here = self._learns_here(study.workload)
        # A batch that is run for the probes would be counted by a model that then trains here.
        asked = study.model_copy(update={"probes": ()}) if learns_here else study
        devices = preflight(asked, self.load, each_device=each_device)
        if not learns_here:
            self.load.datasets.clear()
        return devices

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        study = run.study().to_study(str(run.study_file))
        learns_here = self._learns_here(study.workload)
        jobs = ONE_AT_A_TIME if learns_here else self._jobs(run, groups)

        def kind_of(group: Group) -> str:
            return "timed" if group.bench is not None else "alone" if group.is_alone else "shared"

        with closing(EventWriter(run)) as events:
            environment = run.write_environment(capture(self.folder))
            here = _Here(run, events, environment, self.load, self.instruments)
            job = Job(
                run=run.path.absolute(),
                environment=environment,
                folder=self.folder,
                code=self.load.known_code(study.workload),
                sent=self.load.sent,
            )
            shares = self.shares_bench or _is_on_gpu
            there = _Processes(events, job, Retries(run), self.trial_timeout_s, shares)
            for kind, some in groupby(packed(groups) if self.on == "local" else groups, kind_of):
                members = list(some)
                if kind == "timed":
                    place = here if self.on == "inline" else there
                    repeats = (
                        REPEATED_TOGETHER if place is there and all(map(shares, members)) else 1
                    )
                    run_benches(run, study, members, place.run_bench, is_over, events, repeats)
                elif self.on == "inline" or (kind == "shared" and learns_here):
                    here.run_in_turn(members, is_over)
                else:
                    at_a_time = jobs if kind == "shared" else ONE_AT_A_TIME
                    there.run_side_by_side(members, at_a_time, is_over)

    def close(self) -> None:
        if self.on != "inline":
            launch.close()

    def _learns_here(self, workload: str) -> bool:
        if self.on == "inline" or self.instruments:
            return True
        is_asked = are_processes_asked(self.asked_jobs, self.on, self.trial_timeout_s)
        return workload.endswith(AS_OBJECT) and not is_asked

    def _jobs(self, run: RunFolder, groups: Sequence[Group]) -> Jobs:
        """How many groups run side by side: decided once, when a run begins with these groups."""
        record = run.study()
        if self.asked_jobs == AUTO and (decided := record.side_by_side) is not None:
            # What is left of a run might be decided otherwise, and threads change rounding.
            return Jobs(min(decided.number, usable_vcpus()), decided.threads)
        study = record.to_study(str(run.study_file))
        jobs = jobs_for(self.asked_jobs, study, groups, lambda group: is_cpu(group.settings.device))
        if self.asked_jobs == AUTO:
            decided = JobsRecord(number=jobs.number, threads=jobs.threads)
            run.write_study(record.model_copy(update={"side_by_side": decided}))
        return jobs


@dataclass(frozen=True)
class _Here:
    """This process, which runs groups one after the other; nothing leaves it."""

    run: RunFolder
    events: EventWriter
    environment: str
    load: Loader
    instruments: Sequence[Instrument]

    def run_in_turn(self, groups: Sequence[Group], is_over: IsOver) -> None:
        for group in groups:
            if is_over():
                return
            self.events.write(Event(kind="group_begins", trials=group.ids))
            run_group(self.run, group.ids, self.environment, self.load, self.instruments)
            self.events.write(Event(kind="group_ends", trials=group.ids))

    def run_bench(self, groups: Sequence[Group], until_s: float) -> None:
        ids = [one for group in groups for one in group.ids]
        seats = [timed_trial(self.run, one, self.environment, self.load) for one in ids]
        try:
            with torch_restored():
                take_turns(seats, groups, self.events, until_s)
        finally:
            for seat in seats:
                seat.abandon()


@dataclass(frozen=True)
class _Processes:
    """Those of a run on this machine: starts them, has them run beside each other or in turns, and has some
    trials tried once more."""

    events: EventWriter
    job: Job
    """What is the same for all of them."""
    retries: Retries
    trial_timeout_s: float | None
    shares: Callable[[Group], bool]
    """Whether the trial of a group is timed in one process with others that are."""
    have_failed: set[str] = field(default_factory=set)
    """Benches that could not be timed in one process, for want of memory, say."""

    def run_side_by_side(self, groups: Sequence[Group], jobs: Jobs, is_over: IsOver) -> None:
        """Keeps so many processes running as there are jobs, in the order planned; what is tried once more
        comes last."""
        waiting, running = list(groups), dict[WorkerProcess, Group]()
        with _ending() as processes:
            while True:
                while (group := _next(waiting, running.values(), jobs)) and not is_over():
                    waiting.remove(group)
                    processes.append(process := self._process(group, jobs.threads))
                    running[process] = group
                    number = jobs.number
                    self.events.write(
                        Event(kind="group_begins", trials=group.ids, num_side_by_side=number)
                    )
                    process.tell("run")
                if not running:
                    return
                while not (answering := [one for one in running if one.has_answered()]):
                    connection.wait([process.pipe for process in running], launch.POLL_S)
                for process in answering:
                    group = running.pop(process)
                    process.answer()
                    process.dismiss()
                    waiting += self.retries.of_group(group, process)
                    process.kill()
                    processes.remove(process)
                    self.events.write(Event(kind="group_ends", trials=group.ids))

    def run_bench(self, groups: Sequence[Group], until_s: float) -> None:
        """Starts the processes of a bench together and lets them take turns; those that may in one, unless
        one of them has failed there before."""
        ids, shared = tuple(group.ids for group in groups), list(filter(self.shares, groups))
        if len(shared) < 2 or self.have_failed:
            shared = []
        together = Group(
            trials=tuple(trial for group in shared for trial in group.trials), is_alone=True
        )
        in_processes = [group for group in groups if group not in shared] + [together] * bool(
            shared
        )
        with _ending() as processes:
            self.events.write(Event(kind="starting", groups=tuple(one.ids for one in in_processes)))
            for group in in_processes:
                processes.append(process := self._process(group, None))
                process.tell("ready")
            for process in processes:
                process.answer()
            self.events.write(Event(kind="ready", groups=ids))
            seats = {
                trial_id: (process, seat)
                for group, process in zip(in_processes, processes, strict=True)
                for trial_id, seat in zip(group.ids, process.seats(), strict=True)
            }
            ordered = [seats[trial_id] for one in ids for trial_id in one]
            timed, turns_s = [seat for _, seat in ordered], None
            if len(shared) == len(groups):
                # What was set up first may stay slower: each in turn, so that the interval counts it.
                random.Random(groups[0].bench).shuffle(timed)  # noqa: S311
                turns_s = TURNS_TOGETHER_S
            take_turns(timed, groups, self.events, until_s, turns_s)
        if self.retries.has_failed(together.ids):
            self.have_failed.update(together.ids)
        elif not self.retries.is_for_bench(groups, [process for process, _ in ordered]):
            return
        self.run_bench(groups, until_s)

    def _process(self, group: Group, threads: int | None) -> WorkerProcess:
        # Of trials that run together each counts its share of the time.
        each_s = self.trial_timeout_s
        job = replace(
            self.job,
            trials=group.ids,
            token=new_token(),
            threads=threads or group.settings.threads,
            limit_s=None if each_s is None else each_s * len(group.trials),
        )
        return WorkerProcess(group, job)


def _is_on_gpu(group: Group) -> bool:
    """Whether the trial of a timed group is one process's own work on a GPU."""
    settings, workload = group.settings, group.trials[0].workload
    return settings.processes == 1 and not is_script(workload) and not is_cpu(settings.device)


def _next(waiting: Iterable[Group], running: Collection[Group], jobs: Jobs) -> Group | None:
    """The first of those that wait which may start beside those that run."""

    def has_room(group: Group) -> bool:
        if group.is_alone or any(other.is_alone for other in running):
            return not running
        processes = sum(other.settings.processes for other in (*running, group))
        if running and processes > jobs.number:
            return False
        on_gpu = sum(not is_cpu(other.settings.device) for other in running)
        return is_cpu(group.settings.device) or jobs.on_gpu > on_gpu

    return next(filter(has_room, waiting), None)


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
            process.end_within(process.patience_s - (time.monotonic() - interrupted_s))
        raise
    finally:
        with signals_held():
            for process in processes:
                process.kill()
            for process in processes:
                process.record_interrupted()


def packed(groups: Sequence[Group]) -> list[Group]:
    """Trials of one program, which differ in what is FREE alone, put into one group where an engine that
    takes many is the first to be tried here; in the order in which each program first comes up."""
    found: list[Group] = []
    for is_alone, consecutive in groupby(groups, lambda group: group.is_alone):
        if is_alone:
            found += consecutive
            continue
        packs: dict[Any, list[Trial]] = {}
        for number, group in enumerate(consecutive):
            key: Any = number
            trial, settings = group.trials[0], group.trials[0].settings
            if engines_for(settings, pick_device(settings.device), has_others=True)[0].takes_many:
                shared = settings.model_dump(mode="json", exclude=set(FREE))
                key = trial.workload, *(str(value) for value in shared.values())
            packs.setdefault(key, []).extend(group.trials)
        found += [
            Group(trials=tuple(trials[first : first + MOST_PACKED]), is_alone=False)
            for trials in packs.values()
            for first in range(0, len(trials), MOST_PACKED)
        ]
    return found
