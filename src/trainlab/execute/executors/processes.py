"""processes: every group in a fresh process on this machine; those that may, side by side.

Nothing that ran before can influence what runs there. Starting a process may take seconds of imports: so
those that must be alone are started several together, and each then sleeps until it is to run. Those of a
bench take turns.
"""

import select
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from itertools import chain, groupby
from pathlib import Path

from trainlab.errors import Interrupted
from trainlab.execute.attempt import EventWriter
from trainlab.execute.bench import MOST_READY, run_benches, run_seats
from trainlab.execute.checking.asking import CheckingProcess
from trainlab.execute.jobs import AUTO, AskedJobs, Jobs, jobs_for
from trainlab.execute.launch.launcher import Launcher
from trainlab.execute.launch.retries import Retries
from trainlab.execute.launch.worker_process import (
    POLL_S,
    WorkerProcess,
    bench_kind,
)
from trainlab.execute.packing import in_turn
from trainlab.execute.planned_run import IsOver
from trainlab.execute.preflight import preflight
from trainlab.execute.signals import EndAtOnce, signals_held
from trainlab.machine.device import pick_device
from trainlab.machine.host import capture, usable_vcpus
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Event, JobsRecord
from trainlab.spec import Study
from trainlab.spec.facts import AS_OBJECT, WorkloadFacts, is_builtin, is_script
from trainlab.train.loader import Loader

MAX_TOGETHER = 8
LAST_ROUNDS = 3
"""So many rounds of jobs before the end, the longest are started first."""
AT_ONCE_S = 2.0
"""What is started within so long counts as begun together."""
SHORT_S, IN_TURN_S = 1.5, 6.0
"""Trials that take less than the first are run one after the other by one process, for about the second."""
PER_VCPU = 2
"""Processes started together: more than one per vCPU, since some take longer than others."""


class ProcessesExecutor:
    """A process per group."""

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
        checking = self._checking()
        devices, code = checking.preflight(study, each_device=each_device)
        checking.close()
        self._checks = None
        self._load.learn_code(study.workload, code)
        return devices

    def _is_checked_apart(self, workload: str) -> bool:
        """Whether the user's code runs in the checks: it may crash or hang there, and must not end or hold
        the driver."""
        is_object = workload.endswith(AS_OBJECT)
        if is_script(workload):
            return False  # it runs in a process of its own, and only there
        return not is_builtin(workload) if not is_object else workload in self._load.files

    def _checking(self) -> CheckingProcess:
        if self._checks is None:
            files, limit_s = self._load.files, self._trial_timeout_s
            self._checks = CheckingProcess(self._launcher, files, limit_s)
        return self._checks

    def jobs(self, run: RunFolder, groups: Sequence[Group]) -> Jobs:
        """How many groups run side by side: decided once, when a run begins with these groups."""
        if self._jobs is None:
            record = run.study()
            if self._asked == AUTO and record.side_by_side is not None:
                # Resumed. What is left might be decided otherwise, and threads change rounding.
                decided = record.side_by_side
                self._jobs = Jobs(min(decided.number, usable_vcpus()), decided.threads)
            else:
                study = record.to_study(str(run.study_file))
                self._jobs = jobs_for(self._asked, study, groups, _is_on_cpu)
            if self._asked == AUTO and record.side_by_side is None:
                decided = JobsRecord(number=self._jobs.number, threads=self._jobs.threads)
                run.write_study(record.model_copy(update={"side_by_side": decided}))
        return self._jobs

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        environment = run.write_environment(capture(Path.cwd()))
        study, jobs = run.study().to_study(str(run.study_file)), self.jobs(run, groups)
        num_together = min(MAX_TOGETHER, PER_VCPU * usable_vcpus())

        def kind_of(group: Group) -> str:
            if group.bench is not None:
                return "timed"
            return "alone" if group.is_alone else "shared"

        with closing(EventWriter(run)) as events:
            host = _Host(
                *(run, environment, events, self._launcher, self._trial_timeout_s),
                code=self._load.known_code(study.workload),
                files=self._load.files,
            )
            parts = [(kind, list(some)) for kind, some in groupby(groups, kind_of)]
            for number, (kind, members) in enumerate(parts):
                if kind == "timed":
                    run_benches(run, study, members, host.run_bench, is_over)
                    continue
                if kind == "shared":
                    later = [part for other, part in parts[number + 1 :] if other == "shared"]
                    host.run_side_by_side(members, jobs, is_over, later)
                    continue
                for first in range(0, len(members), num_together):
                    if is_over():
                        return
                    host.run_batch(members[first : first + num_together], is_over)

    def close(self) -> None:
        if self._checks is not None:
            self._checks.close()
        self._launcher.close()


class _Host:
    """Starts processes, some together, and lets them run."""

    def __init__(
        self,
        run: RunFolder,
        environment: str,
        events: EventWriter,
        launcher: Launcher,
        trial_timeout_s: float | None,
        code: str | None,
        files: Mapping[str, str],
    ) -> None:
        self._run, self._environment, self._events = run, environment, events
        self._launcher, self._trial_timeout_s = launcher, trial_timeout_s
        self._code, self._files = code, files
        self._retries = Retries(run)
        self._times_s: dict[str, float] = {}
        """Of a trial, by cell, in the last group that ended."""

    def run_side_by_side(
        self,
        groups: Sequence[Group],
        jobs: Jobs,
        is_over: IsOver,
        later: Sequence[list[Group]] = (),
    ) -> None:
        """Keeps so many processes running as there are jobs, in the order planned; what is tried once more
        comes last. Towards the end those that take longest go first, so that none is left running alone.
        Where a place is free, those of later that should end before the last of these are begun."""
        waiting, running = list(groups), dict[WorkerProcess, Group]()
        waiting_for = _WaitingFor(groups, self._took_s)
        with _ending() as processes:

            def start(group: Group) -> None:
                process = self._process(group, jobs.threads)
                processes.append(process)
                running[process] = group

            while True:
                if len(waiting) <= LAST_ROUNDS * jobs.number:
                    waiting.sort(key=self._took_s, reverse=True)
                while (group := _next(waiting, running.values(), jobs)) and not is_over():
                    waiting.remove(group)
                    group = self._with_others(group, waiting, jobs)
                    taken = set(group.ids)
                    waiting = [one for one in waiting if taken.isdisjoint(one.ids)]
                    start(group)
                for part in later if not waiting else ():
                    worth_it = [group for group in part if waiting_for.has_time_for(group)]
                    while (group := _next(worth_it, running.values(), jobs)) and not is_over():
                        worth_it.remove(group)
                        part.remove(group)
                        start(group)
                if not running:
                    return
                for process in _answering(running):
                    if process.has_begun:
                        group = running.pop(process)
                        waiting += self._end(process, group)
                        waiting_for.ended(group)
                        processes.remove(process)
                    else:
                        process.wait_until_ready()
                        self._begin(process, running[process], jobs.number)

    def run_batch(self, groups: Sequence[Group], is_over: IsOver) -> None:
        """Starts the processes of these groups together, then lets one after the other run."""
        again: list[Group] = []
        with self._started(groups) as processes:
            for group, process in zip(groups, processes, strict=True):
                if is_over():
                    return
                self._begin(process, group, 1)
                again += self._end(process, group)
        if again and not is_over():
            self.run_batch(again, is_over)

    def _with_others(self, group: Group, waiting: Sequence[Group], jobs: Jobs) -> Group:
        """With as many others that are short, too, as make starting a process worth it, but no more than
        leave something for every job. One that must not take too long is by itself."""
        took_s = self._took_s(group)
        if not 0 < took_s < SHORT_S or self._trial_timeout_s is not None:
            return group
        short = [one for one in waiting if 0 < self._took_s(one) < SHORT_S]
        number = min(int(IN_TURN_S / took_s), (1 + len(short)) // jobs.number)
        return in_turn(group, short, number)

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

    def run_bench(self, groups: Sequence[Group]) -> None:
        """Starts the processes of a bench together and lets them take turns; once more where one was
        killed."""
        most_ready: int | None = MOST_READY
        while most_ready is not None:
            most_ready = self._run_bench_once(groups, most_ready)

    def _run_bench_once(self, groups: Sequence[Group], most_ready: int) -> int | None:
        """How many may stand ready the next time; None where there is none."""
        spec, trial_ids = groups[0].trials[0].cost, tuple(chain(*(group.ids for group in groups)))
        assert spec is not None

        def report(share: float) -> None:
            self._events.write(Event(kind="progress", trials=trial_ids[:1], share=share))

        self._launcher.begin_bench(bench_kind(groups[0]) or "")
        with self._started(groups) as processes:
            self._events.write(Event(kind="group_begins", trials=trial_ids))
            run_seats(processes, spec, groups[0].bench or "", report, most_ready)
            self._events.write(Event(kind="group_ends", trials=trial_ids))
            return self._retries.of_bench(processes, groups)

    @contextmanager
    def _started(self, groups: Sequence[Group]) -> Iterator[list[WorkerProcess]]:
        """Processes past their imports; those that still run at the end of the block are ended."""
        ids = tuple(group.ids for group in groups)
        with _ending() as processes:
            self._events.write(Event(kind="starting", groups=ids))
            for group in groups:
                processes.append(self._process(group))
            for process in processes:
                process.wait_until_ready()
            self._events.write(Event(kind="ready", groups=ids))
            yield processes

    def _process(self, group: Group, threads: int | None = None) -> WorkerProcess:
        return WorkerProcess(
            self._run,
            group,
            self._environment,
            self._launcher,
            threads,
            self._trial_timeout_s,
            self._code,
            self._files,
        )


class _WaitingFor:
    """The groups that others wait for: while they run, places that are free can be used."""

    def __init__(self, groups: Iterable[Group], took_s: Callable[[Group], float]) -> None:
        self._left, self._took_s = {group.ids for group in groups}, took_s
        self._since_s = time.monotonic()

    def ended(self, group: Group) -> None:
        self._left = {ids for ids in self._left if set(ids).isdisjoint(group.ids)}

    def has_time_for(self, group: Group) -> bool:
        """Whether one on a CPU should have ended before the last of them. What has run for so long goes on
        for about as long; where none of its cell has ended, this holds for those begun at once."""
        if not self._left or group.is_alone or not _is_on_cpu(group):
            return False
        passed_s, took_s = time.monotonic() - self._since_s, self._took_s(group)
        return took_s <= passed_s if took_s else passed_s < AT_ONCE_S


def _next(waiting: Iterable[Group], running: Collection[Group], jobs: Jobs) -> Group | None:
    """The first of those that wait which may start beside those that run."""
    return next((group for group in waiting if _has_room(group, running, jobs)), None)


def _has_room(group: Group, running: Collection[Group], jobs: Jobs) -> bool:
    """Whether a group may start beside those that run."""
    if group.is_alone or any(other.is_alone for other in running):
        return not running
    if running and sum(other.processes for other in running) + group.processes > jobs.number:
        return False
    return _is_on_cpu(group) or jobs.on_gpu > sum(not _is_on_cpu(other) for other in running)


def _is_on_cpu(group: Group) -> bool:
    return _is_cpu(group.device)


@cache
def _is_cpu(device: str) -> bool:
    return pick_device(device).type == "cpu"


def _answering(processes: Iterable[WorkerProcess]) -> list[WorkerProcess]:
    """Those that have something to say, or have died; waits until there is one."""
    while not (answering := [process for process in processes if process.has_answered()]):
        select.select([process.answers for process in processes], [], [], POLL_S)
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
            _interrupt(processes)
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


def _interrupt(processes: Sequence[WorkerProcess]) -> None:
    """Asks them to close their records, and waits a little."""
    for process in processes:
        process.interrupt()
    interrupted_s = time.monotonic()
    for process in processes:
        process.wait_since(interrupted_s)
