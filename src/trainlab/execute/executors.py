"""Executors: where and in what order the groups of a run are run.

Everything goes through the run folder: an executor gets the groups to run, each worker records its trials
there, and whoever watches the run reads the events there. Those on clusters stand in `cluster`.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from itertools import groupby
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol

import torch

from trainlab.errors import Interrupted, SpecError
from trainlab.execute.attempt import EventWriter
from trainlab.execute.bench import MOST_READY, Seat, TimedTrial, run_benches, run_seats
from trainlab.execute.jobs import (
    AUTO,
    AskedJobs,
    Jobs,
    are_processes_asked,
    check_executor,
    jobs_for,
)
from trainlab.execute.launch import POLL_S, Launcher, WorkerProcess
from trainlab.execute.planned_run import IsOver
from trainlab.execute.preflight import CheckingProcess, preflight
from trainlab.execute.signals import EndAtOnce, signals_held
from trainlab.execute.worker import run_group
from trainlab.machine.device import OUT_OF_MEMORY, pick_device
from trainlab.machine.host import capture, usable_vcpus
from trainlab.plan import Group, Trial
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Event, JobsRecord
from trainlab.spec import Study
from trainlab.spec.facts import AS_OBJECT, WorkloadFacts, is_builtin, is_script
from trainlab.train.callbacks import Instrument
from trainlab.train.engines import engines_for
from trainlab.train.engines.ddp import ProcessLostError
from trainlab.train.loader import Loader

MAX_TOGETHER, PER_VCPU = 8, 2
"""Processes started together: more than one per vCPU, since some take longer than others."""
LAST_ROUNDS = 3
"""So many rounds of jobs before the end, the longest are started first."""
SHORT_S, IN_TURN_S = 1.5, 6.0
"""Trials that take less than the first are run one after the other by one process, for about the second."""
PAIR = 2
"""The fewest that a ratio within rounds needs."""
MOST_PACKED = 256
"""Trials of one program; more gain nothing."""
FREE = frozenset(
    {"optimizer", "lr", "momentum", "weight_decay", "optimizer_options", "schedule", "lr_gamma"}
    | {"lr_step_epochs", "zero_grad", "seed_parts", "model"}
)
"""Settings that trials of one program may differ in."""


class Executor(Protocol):
    """Runs groups of trials. A group that is alone has its machine to itself."""

    def facts(self, workload: str) -> WorkloadFacts:
        """What a study needs to know of a workload that is not a built-in one."""

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
    launcher: Launcher | None = None,
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
    if name == "processes":
        return ProcessesExecutor(load, jobs, launcher, trial_timeout_s)
    return LocalExecutor(load, instruments, jobs, launcher, trial_timeout_s)


class InlineExecutor:
    """Every group in this process, one after the other: what ran here before may influence a cost.
    Workloads and instruments may be objects here: nothing leaves the process."""

    def __init__(self, load: Loader, instruments: Sequence[Instrument] = ()) -> None:
        self._load, self._instruments = load, instruments

    def facts(self, workload: str) -> WorkloadFacts:
        return self._load.workload(workload).facts

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        return preflight(study, self._load, each_device=each_device)

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        environment = run.write_environment(capture(Path.cwd()))
        study = run.study().to_study(str(run.study_file))
        with closing(EventWriter(run)) as events:

            def run_bench(members: Sequence[Group]) -> None:
                load, ids = self._load, [one for group in members for one in group.ids]
                seats = [TimedTrial(run, trial_id, environment, load) for trial_id in ids]
                threads = torch.get_num_threads()
                try:
                    _take_turns(seats, members, events)
                finally:
                    torch.set_num_threads(threads)
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


def _take_turns(
    seats: Sequence[Seat],
    groups: Sequence[Group],
    events: EventWriter,
    most_ready: int | None = None,
) -> None:
    """Lets the seats of a bench take turns, and tells how far they are."""
    spec, trial_ids = groups[0].trials[0].cost, tuple(one for group in groups for one in group.ids)
    assert spec is not None

    def report(share: float) -> None:
        events.write(Event(kind="progress", trials=trial_ids[:1], share=share))

    events.write(Event(kind="group_begins", trials=trial_ids))
    run_seats(seats, spec, groups[0].bench or "", report, most_ready)
    events.write(Event(kind="group_ends", trials=trial_ids))


class LocalExecutor:
    """This machine. Every group runs in a process of its own, so that one that crashes fails alone. A
    workload given as an object trains in this process, unless several trials are to run side by side or one
    may not take too long; instruments given as objects cannot go elsewhere at all."""

    def __init__(
        self,
        load: Loader,
        instruments: Sequence[Instrument] = (),
        jobs: AskedJobs = 1,
        launcher: Launcher | None = None,
        trial_timeout_s: float | None = None,
    ) -> None:
        self._inline = InlineExecutor(load, instruments)
        self._processes = ProcessesExecutor(load, jobs, launcher, trial_timeout_s)
        self._has_instruments = bool(instruments)
        self._sends_objects = are_processes_asked(jobs, "local", trial_timeout_s)

    def facts(self, workload: str) -> WorkloadFacts:
        return self._executor_of(workload).facts(workload)

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        return self._executor_of(study.workload).preflight(study, each_device=each_device)

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        executor = self._executor_of(run.study().study["workload"])
        if executor is self._processes:
            executor.run(run, packed_here(groups), is_over)
            return
        for is_alone, consecutive in groupby(packed_here(groups), lambda group: group.is_alone):
            executor = self._processes if is_alone else self._inline
            executor.run(run, list(consecutive), is_over)

    def close(self) -> None:
        self._processes.close()

    def _executor_of(self, workload: str) -> "InlineExecutor | ProcessesExecutor":
        """Of all groups, but for those that are alone."""
        is_sent = self._sends_objects or not workload.endswith(AS_OBJECT)
        return self._processes if is_sent and not self._has_instruments else self._inline


class ProcessesExecutor:
    """Every group in a fresh process on this machine; those that may, side by side. Nothing that ran before
    can influence what runs there. Those that must be alone are started several together, and each then
    sleeps until it is to run; those of a bench take turns."""

    def __init__(
        self,
        load: Loader,
        jobs: AskedJobs = 1,
        launcher: Launcher | None = None,
        trial_timeout_s: float | None = None,
    ) -> None:
        self._load, self._asked, self._launcher = load, jobs, launcher or Launcher()
        self._trial_timeout_s = trial_timeout_s
        self._jobs: Jobs | None = None
        self._checks: CheckingProcess | None = None
        """From the first look at the user's code to the end of the checks."""

    def facts(self, workload: str) -> WorkloadFacts:
        if not self._is_checked_apart(workload):
            return self._load.workload(workload).facts
        return self._checking().facts(workload)

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        if not self._is_checked_apart(study.workload):
            return preflight(study, self._load, each_device=each_device)
        devices, code = self._checking().preflight(study, each_device=each_device)
        self._end_checks()
        self._load.learn_code(study.workload, code)
        return devices

    def _is_checked_apart(self, workload: str) -> bool:
        """Whether the user's code runs in the checks: it may crash or hang there, and must not end or hold
        the driver. A script runs in a process of its own, and only there."""
        if workload.endswith(AS_OBJECT):
            return workload in self._load.files
        return not is_script(workload) and not is_builtin(workload)

    def _checking(self) -> CheckingProcess:
        if self._checks is None:
            files, limit_s = self._load.files, self._trial_timeout_s
            self._checks = CheckingProcess(self._launcher, files, limit_s)
        return self._checks

    def _end_checks(self) -> None:
        if self._checks is not None:
            self._checks.close()
            self._checks = None

    def jobs(self, run: RunFolder, groups: Sequence[Group]) -> Jobs:
        """How many groups run side by side: decided once, when a run begins with these groups."""
        if self._jobs is None:
            record = run.study()
            decided = record.side_by_side if self._asked == AUTO else None
            if decided is not None:
                # Resumed. What is left might be decided otherwise, and threads change rounding.
                self._jobs = Jobs(min(decided.number, usable_vcpus()), decided.threads)
                return self._jobs
            study = record.to_study(str(run.study_file))
            self._jobs = jobs_for(self._asked, study, groups, _is_on_cpu)
            if self._asked == AUTO:
                decided = JobsRecord(number=self._jobs.number, threads=self._jobs.threads)
                run.write_study(record.model_copy(update={"side_by_side": decided}))
        return self._jobs

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        study, jobs = run.study().to_study(str(run.study_file)), self.jobs(run, groups)
        num_together = min(MAX_TOGETHER, PER_VCPU * usable_vcpus())
        launcher = self._launcher

        def kind_of(group: Group) -> str:
            if group.bench is not None:
                return "timed"
            return "alone" if group.is_alone else "shared"

        with closing(EventWriter(run)) as events:
            host = _Host(run, events, launcher, self._trial_timeout_s, self._load, study.workload)
            for kind, some in groupby(groups, kind_of):
                members = list(some)
                shared = jobs.threads if kind == "shared" else None
                launcher.prepare(shared or members[0].threads)
                if kind == "timed":
                    run_benches(run, study, members, host.run_bench, is_over)
                elif kind == "shared":
                    host.run_side_by_side(members, jobs, is_over)
                else:
                    for first in range(0, len(members), num_together):
                        host.run_batch(members[first : first + num_together], is_over)

    def close(self) -> None:
        self._end_checks()
        self._launcher.close()


class _Host:
    """Starts processes, some together, and lets them run."""

    def __init__(
        self,
        run: RunFolder,
        events: EventWriter,
        launcher: Launcher,
        trial_timeout_s: float | None,
        load: Loader,
        workload: str,
    ) -> None:
        self._run, self._events, self._launcher = run, events, launcher
        self._trial_timeout_s = trial_timeout_s
        self._environment = run.write_environment(capture(Path.cwd()))
        self._code, self._files = load.known_code(workload), load.files
        self._retries = Retries(run)
        self._times_s: dict[str, float] = {}
        """Of a trial, by cell, in the last group that ended."""

    def run_side_by_side(self, groups: Sequence[Group], jobs: Jobs, is_over: IsOver) -> None:
        """Keeps so many processes running as there are jobs, in the order planned; what is tried once more
        comes last. Towards the end those that take longest go first, so that none is left running alone."""
        waiting, running = list(groups), dict[WorkerProcess, Group]()
        with _ending() as processes:
            while True:
                if len(waiting) <= LAST_ROUNDS * jobs.number:
                    waiting.sort(key=self._took_s, reverse=True)
                while (group := _next(waiting, running.values(), jobs)) and not is_over():
                    waiting.remove(group)
                    group = self._with_others(group, waiting, jobs)
                    taken = set(group.ids)
                    waiting = [one for one in waiting if taken.isdisjoint(one.ids)]
                    process = self._process(group, jobs.threads)
                    processes.append(process)
                    running[process] = group
                if not running:
                    return
                for process in _answering(running):
                    if process.has_begun:
                        waiting += self._end(process, running.pop(process))
                        processes.remove(process)
                    else:
                        process.receive()
                        self._begin(process, running[process], jobs.number)

    def run_batch(self, groups: Sequence[Group], is_over: IsOver) -> None:
        """Starts the processes of these groups together, then lets one after the other run."""
        again: list[Group] = []
        if is_over():
            return
        with self._started(groups) as processes:
            for group, process in zip(groups, processes, strict=True):
                if is_over():
                    return
                self._begin(process, group, 1)
                again += self._end(process, group)
        if again:
            self.run_batch(again, is_over)

    def run_bench(self, groups: Sequence[Group]) -> None:
        """Starts the processes of a bench together and lets them take turns; once more where one was
        killed."""
        most_ready: int | None = MOST_READY
        while most_ready is not None:
            with self._started(groups) as processes:
                _take_turns(processes, groups, self._events, most_ready)
                most_ready = self._retries.of_bench(processes, groups)

    def _with_others(self, group: Group, waiting: Sequence[Group], jobs: Jobs) -> Group:
        """With as many others that are short, too, as make starting a process worth it, but no more than
        leave something for every job; unless an engine would take them for trials of one program. One that
        must not take too long is by itself."""
        took_s = self._took_s(group)
        if not 0 < took_s < SHORT_S or self._trial_timeout_s is not None or _runs_together(group):
            return group
        short = [one for one in waiting if 0 < self._took_s(one) < SHORT_S]
        number = min(int(IN_TURN_S / took_s), (1 + len(short)) // jobs.number)
        alike = [one for one in short if _runs_like(one) == _runs_like(group)][: max(0, number - 1)]
        trials = tuple(trial for one in [group, *alike] for trial in one.trials)
        return group.model_copy(update={"trials": trials})

    def _took_s(self, group: Group) -> float:
        """How long the last one of the same cell took; 0 where there was none yet."""
        return self._times_s.get(group.trials[0].cell, 0.0)

    def _begin(self, process: WorkerProcess, group: Group, num_side_by_side: int) -> None:
        event = Event(kind="group_begins", trials=group.ids, num_side_by_side=num_side_by_side)
        self._events.write(event)
        process.begin()

    def _end(self, process: WorkerProcess, group: Group) -> list[Group]:
        """Waits until it has ended; gives what is to be tried once more."""
        process.finish_run()
        again = self._retries.after(process, group)
        process.kill()
        self._events.write(Event(kind="group_ends", trials=group.ids))
        for trial in group.trials:
            self._times_s[trial.cell] = process.busy_s / len(group.trials)
        return again

    @contextmanager
    def _started(self, groups: Sequence[Group]) -> Iterator[list[WorkerProcess]]:
        """Processes past their imports; those that still run at the end of the block are ended."""
        ids = tuple(group.ids for group in groups)
        with _ending() as processes:
            self._events.write(Event(kind="starting", groups=ids))
            for group in groups:
                processes.append(self._process(group))
            for process in processes:
                process.receive()
            self._events.write(Event(kind="ready", groups=ids))
            yield processes

    def _process(self, group: Group, threads: int | None = None) -> WorkerProcess:
        return WorkerProcess(
            *(self._run, group, self._environment, self._launcher, threads),
            *(self._trial_timeout_s, self._code, self._files),
        )


class Retries:
    """Which trials of a run are tried once more: those that may have failed by chance, or because of
    others; each once for each reason.

    Killed from outside, a group runs again as it was, and so does a trial that lost one of its processes. A
    crash or a hang of several trials in one process is the fault of one of them: each then runs alone. So
    does one that found too little memory on a GPU, which others may have used. A bench of which a process
    was killed runs again as a whole, since its figures are ratios within rounds; for want of memory, with
    two processes ready at a time.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._given: set[tuple[str, str]] = set()
        """Trials that were tried once more, and why."""

    def after(self, process: WorkerProcess, group: Group) -> list[Group]:
        """What is to be run again of a group whose process has ended; trials that it left behind and that
        have had their chance are recorded as failed."""
        left = set(process.unfinished())
        trials = [trial for trial in group.trials if trial.id in left]
        if not trials:
            return [_alone(trial) for trial in group.trials if self._may_do_better(trial)]
        if process.exit().is_from_outside and self._are_first(trials, "killed"):
            return [group.model_copy(update={"trials": tuple(trials)})]
        if len(group.trials) > 1:
            return [_alone(trial) for trial in trials]
        process.record_exit()
        return []

    def of_bench(self, processes: Sequence[WorkerProcess], groups: Sequence[Group]) -> int | None:
        """How many processes may stand ready as the bench is run once more; None where it is not."""
        died = [
            (process.exit(), group.trials[0])
            for process, group in zip(processes, groups, strict=True)
            if process.has_died
        ]
        for_memory = [trial for ended, trial in died if ended.ran_out_of_memory]
        if for_memory and len(groups) > PAIR and self._are_first(for_memory, OUT_OF_MEMORY):
            return PAIR
        chance = [trial for ended, trial in died if ended.is_from_outside]
        if chance and self._are_first(chance, "killed"):
            return MOST_READY
        lost = [one.trials[0] for one in groups if self._error_of(one.ids[0]) == LOST_PROCESS]
        return MOST_READY if lost and self._are_first(lost, LOST_PROCESS) else None

    def _may_do_better(self, trial: Trial) -> bool:
        """Whether it has failed, for the first time, for a reason that may have been others'."""
        kind = self._error_of(trial.id)
        on_gpu = not _is_cpu(trial.settings.device)
        may = kind == LOST_PROCESS or (kind == OUT_OF_MEMORY and on_gpu)
        return may and self._are_first([trial], kind)

    def _error_of(self, trial_id: str) -> str:
        error = self._run.trial(trial_id).read().error
        return "" if error is None else error.kind

    def _are_first(self, trials: Sequence[Trial], reason: str) -> bool:
        """Whether none of them was tried once more for that reason; they are from now on."""
        asked = {(trial.id, reason) for trial in trials}
        is_first = not asked & self._given
        self._given |= asked
        return is_first


LOST_PROCESS = ProcessLostError.__name__


def _alone(trial: Trial) -> Group:
    return Group(trials=(trial,), is_alone=True)


def _next(waiting: Iterable[Group], running: Collection[Group], jobs: Jobs) -> Group | None:
    """The first of those that wait which may start beside those that run."""

    def has_room(group: Group) -> bool:
        if group.is_alone or any(other.is_alone for other in running):
            return not running
        if running and sum(other.processes for other in running) + group.processes > jobs.number:
            return False
        return _is_on_cpu(group) or jobs.on_gpu > sum(not _is_on_cpu(other) for other in running)

    return next(filter(has_room, waiting), None)


def _is_on_cpu(group: Group) -> bool:
    return _is_cpu(group.device)


@cache
def _is_cpu(device: str) -> bool:
    return pick_device(device).type == "cpu"


def _answering(processes: Collection[WorkerProcess]) -> list[WorkerProcess]:
    """Those that have something to say, or have died; waits until there is one."""
    while not (answering := [process for process in processes if process.has_answered()]):
        connection.wait([process.pipe for process in processes], POLL_S)
    return answering


@contextmanager
def _ending() -> Iterator[list[WorkerProcess]]:
    """An empty list: processes put there that still run at the end of the block are ended, and the trials
    that they were running recorded as interrupted."""
    processes: list[WorkerProcess] = []
    again: type[Interrupted] = Interrupted
    try:
        yield processes
    except KeyboardInterrupt:
        again = EndAtOnce
        try:
            for process in processes:
                process.interrupt()
            interrupted_s = time.monotonic()
            for process in processes:
                process.wait_since(interrupted_s)
        except KeyboardInterrupt:
            raise EndAtOnce from None
        raise
    finally:
        try:
            with signals_held():
                for process in processes:
                    process.kill()
                for process in processes:
                    process.record_interrupted()
        except KeyboardInterrupt:
            raise again from None


def packed_here(groups: Sequence[Group]) -> list[Group]:
    """Trials of one program, as this machine would run it, put into one group, between those that must be
    alone. Trials of one program may differ in what is FREE; other batch sizes are other programs."""
    found: list[Group] = []
    for is_alone, consecutive in groupby(groups, lambda group: group.is_alone):
        some = list(consecutive)
        found += some if is_alone else packed(some, _runs_together)
    return found


def packed(groups: Sequence[Group], runs_together: Callable[[Group], bool]) -> list[Group]:
    """Groups that may run beside each other, those of one program put into one; in the order in which each
    program first comes up."""
    packs: dict[Any, list[Trial]] = {}
    for number, group in enumerate(groups):
        key: Any = number
        if runs_together(group):
            trial = group.trials[0]
            shared = trial.settings.model_dump(mode="json", exclude=set(FREE))
            key = trial.workload, *(str(value) for value in shared.values())
        packs.setdefault(key, []).extend(group.trials)
    return [
        Group(trials=tuple(trials[first : first + MOST_PACKED]), is_alone=False)
        for trials in packs.values()
        for first in range(0, len(trials), MOST_PACKED)
    ]


def _runs_like(group: Group) -> tuple[Any, ...]:
    """What a process must be for it, and which engines are tried."""
    settings = group.trials[0].settings
    asked = settings.engine, settings.optimizer_code, settings.device, settings.threads
    return group.is_alone, settings.processes, *asked


def _runs_together(group: Group) -> bool:
    """Whether an engine that takes many trials is the first to be tried for it."""
    settings = group.trials[0].settings
    return engines_for(settings, pick_device(settings.device), has_others=True)[0].takes_many
