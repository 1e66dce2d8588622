"""From a question to a run, and on with a run that was cut short: the one way for Python and every verb."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab.lab.asked import check_without_torch, facts_of, threads_expected, threads_recorded
from trainlab.lab.opened import Run
from trainlab.lab.watcher import Watcher
from trainlab.record.run_folder import check_unused
from trainlab.resolve import asks_each_device, resolve
from trainlab.spec import Question, Study

if TYPE_CHECKING:
    from trainlab.execute.executors.executor import Executor
    from trainlab.execute.jobs import AskedJobs
    from trainlab.execute.launch.launcher import Launcher
    from trainlab.plan import Group
    from trainlab.train.moments import Instrument
    from trainlab.workloads.workload import Workload


@dataclass(frozen=True)
class Outcome:
    """A run, and whether it was cut short from outside."""

    run: Run
    was_interrupted: bool

    @property
    def is_diagnosis(self) -> bool:
        """Whether it was to say what limits a script."""
        script = self.run.study().to_study(str(self.run.study_file)).script
        return script is not None and script.diagnosis is not None

    def complete_run(self) -> Run:
        """The run; KeyboardInterrupt where it was cut short."""
        if self.was_interrupted:
            raise KeyboardInterrupt
        return self.run


NextStage = Callable[[Run], "tuple[Group, ...]"]
"""Adds to a run what follows from its records so far, and gives it."""


@dataclass(frozen=True)
class Placement:
    """Where trials run, how many side by side, and how long one may take; as `start_run` records it."""

    on: str
    jobs: "AskedJobs"
    trial_timeout_s: float | None


def run_question(
    question: Question,
    where: str = "",
    *,
    out: Path | None = None,
    many: bool = False,
    budget_s: float | None = None,
    trial_timeout_s: float | None = None,
    on: str = "local",
    jobs: "AskedJobs" = "auto",
    workloads: "Mapping[str, Workload] | None" = None,
    instruments: "Sequence[Instrument]" = (),
    overridden: Mapping[str, Any] | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """From a question to a run with its tables: resolve, check the machine, run the trials, read them.

    A mistake is raised as SpecError or the like before anything has run; whatever happens later is in the
    run's records. Once `budget_s` is spent no trial is started, and what runs is interrupted; a trial that
    takes longer than `trial_timeout_s` fails. `jobs` learn trials run side by side. `workloads` are those
    given as objects, by name; `overridden` is what a study's file says and was asked for otherwise.
    """
    from trainlab.execute.jobs import are_processes_asked, check_timeout
    from trainlab.execute.launch.launcher import Launcher

    watcher = watcher or Watcher()
    given = workloads or {}
    jobs = check_without_torch(
        question, where, out=out, on=on, jobs=jobs, many=many, given=given, instruments=instruments
    )
    has_objects = bool(given or instruments)
    check_timeout(trial_timeout_s, on, has_instruments=bool(instruments))
    has_processes = question.cost is not None or are_processes_asked(jobs, on, trial_timeout_s)
    launcher, folder = Launcher(), Path.cwd()
    if on in ("local", "processes") and (has_processes or not has_objects):
        # It imports torch while this process does.
        launcher.prepare(threads_expected(question, jobs))
    place = Placement(on, jobs, trial_timeout_s)
    sent = given if has_processes and on != "inline" else {}
    with _executing(place, launcher, watcher, given, instruments, sent) as executor:
        from trainlab.execute.jobs import check_jobs, check_processes_sendable

        facts = facts_of(question, executor.facts)
        study = resolve(question, facts, where, many=many)
        devices = _preflight(executor, study, watcher, each_device=asks_each_device(question))
        study = resolve(question, facts, where, devices=devices, many=many)
        check_jobs(jobs, on, study)
        most = max(cell.settings.processes for cell in study.all_cells)
        check_processes_sendable(most, has_objects=has_objects)
        os.chdir(folder)  # the user's code may have left it; paths are meant as they were given
        return _run_planned(study, out, place, executor, budget_s, watcher, overridden)


def run_study(
    study: Study,
    *,
    out: Path | None = None,
    budget_s: float | None = None,
    trial_timeout_s: float | None = None,
    on: str = "local",
    jobs: "AskedJobs" = "auto",
    watcher: Watcher | None = None,
) -> Outcome:
    """Runs a study whose cells are laid out; as `run_question` otherwise."""
    from trainlab.execute.jobs import check_jobs, jobs_of, likely_threads
    from trainlab.execute.launch.launcher import Launcher
    from trainlab.execute.places import check_executor

    watcher = watcher or Watcher()
    check_executor(on)
    place = Placement(on, jobs_of(jobs), trial_timeout_s)
    if out is not None:
        check_unused(out)
    launcher = Launcher()
    if on in ("local", "processes"):
        launcher.prepare(likely_threads(place.jobs, ()) if study.num_learn > 1 else None)
    with _executing(place, launcher, watcher) as executor:
        _preflight(executor, study, watcher, each_device=False)
        check_jobs(place.jobs, on, study)
        return _run_planned(study, out, place, executor, budget_s, watcher)


def _run_planned(
    study: Study,
    out: Path | None,
    place: Placement,
    executor: "Executor",
    budget_s: float | None,
    watcher: Watcher,
    overridden: Mapping[str, Any] | None = None,
) -> Outcome:
    """From a study to a run with its tables."""
    from trainlab.execute.driver.lease import leased
    from trainlab.execute.run import start_run
    from trainlab.plan import plan

    watcher.planned(study)
    started = start_run(study, out, overridden=overridden, **asdict(place))
    run = Run(started.path.absolute())  # trials may leave the folder, too
    with leased(run):
        was_interrupted = _drive(run, executor, plan(study), budget_s, watcher)
        _write_tables(run, watcher)
    return Outcome(Run(started.path), was_interrupted)


def run_in_stages(
    study: Study,
    next_stage: "NextStage",
    *,
    out: Path | None = None,
    budget_s: float | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Runs a study over a script, then what `next_stage` makes of its records, in the same run."""
    from trainlab.execute.driver.lease import leased
    from trainlab.execute.launch.launcher import Launcher
    from trainlab.execute.run import start_run
    from trainlab.plan import plan

    watcher = watcher or Watcher()
    place = Placement("local", 1, None)
    if out is not None:
        check_unused(out)
    launcher = Launcher()
    launcher.prepare(None)
    with _executing(place, launcher, watcher) as executor:
        _preflight(executor, study, watcher, each_device=False)
        watcher.planned(study)
        started = start_run(study, out, **asdict(place))
        run = Run(started.path.absolute())
        with leased(run):
            drive = partial(_drive, run, executor, watcher=watcher)
            was_interrupted = _drive_stages(run, plan(study), next_stage, budget_s, drive)
            _write_tables(run, watcher)
        return Outcome(Run(started.path), was_interrupted)


def go_on(
    run: Run,
    next_stage: "NextStage" = lambda run: (),
    *,
    allow_changed: bool = False,
    budget_s: float | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Runs what is left of a run, then what `next_stage` makes of its records; see `resume_run`."""
    from trainlab.execute.driver.abandoned import mark_interrupted
    from trainlab.execute.driver.lease import leased
    from trainlab.execute.launch.launcher import Launcher

    watcher = watcher or Watcher()
    run.check_links()
    record = run.study()
    study = record.to_study(str(run.study_file))
    with watcher.status("starting_torch"):
        from trainlab.execute.driver.unfinished import check_resumable, unfinished_groups
    check_resumable(run, record, allow_changed=allow_changed)
    with leased(run, lambda driver: watcher.watching(driver.name)):
        mark_interrupted(run)
        groups, was_interrupted = unfinished_groups(run) or next_stage(run), False
        num_trials = len(run.study().trials)
        watcher.resumed(sum(len(group.trials) for group in groups), num_trials)
        if groups or max(study.looks, default=0) > len(study.seeds):
            place = Placement(record.on, record.jobs, record.trial_timeout_s)
            launcher = Launcher()
            if place.on in ("local", "processes"):
                launcher.prepare(threads_recorded(record))
            with _executing(place, launcher, watcher) as executor:
                _preflight(executor, study, watcher, each_device=False)
                drive = partial(_drive, run, executor, watcher=watcher)
                was_interrupted = _drive_stages(run, groups, next_stage, budget_s, drive)
        _write_tables(run, watcher)
    return Outcome(run, was_interrupted)


@contextmanager
def _executing(
    place: Placement,
    launcher: "Launcher",
    watcher: Watcher,
    workloads: "Mapping[str, Workload] | None" = None,
    instruments: "Sequence[Instrument]" = (),
    sent: "Mapping[str, Workload] | None" = None,
) -> "Iterator[Executor]":
    """What runs trials, once torch is there. `sent` are those objects that fresh processes must get.
    Inside, signals interrupt; what trials change in this process is as before afterwards."""
    with closing(launcher):
        with watcher.status("starting_torch"):
            from trainlab.execute.executors import executor_for
            from trainlab.execute.signals import signals_interrupt
            from trainlab.machine.process import process_restored
            from trainlab.train.loader import Loader
            from trainlab.workloads.sent import sent_files
        with sent_files(sent or {}) as files:
            load, limit_s = Loader(workloads, files=files), place.trial_timeout_s
            executor = executor_for(place.on, load, instruments, place.jobs, launcher, limit_s)
            with closing(executor), process_restored(), signals_interrupt():
                yield executor


def _preflight(
    executor: "Executor", study: Study, watcher: Watcher, *, each_device: bool
) -> tuple[str, ...]:
    """Checks the study where it will run; the devices there."""
    from trainlab.data.fetch import reporting_to

    with watcher.preparing(), reporting_to(watcher.downloads):
        return executor.preflight(study, each_device=each_device)


def _drive_stages(
    run: Run,
    groups: "tuple[Group, ...]",
    next_stage: NextStage,
    budget_s: float | None,
    drive: Callable[["tuple[Group, ...]", float | None], bool],
) -> bool:
    """Runs the groups, then those of the next stage; whether it was interrupted."""
    deadline_s = math.inf if budget_s is None else time.monotonic() + budget_s
    was_interrupted = drive(groups, budget_s)
    if not was_interrupted and (further := next_stage(run)):
        left_s = max(1.0, deadline_s - time.monotonic())
        was_interrupted = drive(further, None if budget_s is None else left_s)
    return was_interrupted


def _drive(
    run: Run,
    executor: "Executor",
    groups: "tuple[Group, ...]",
    budget_s: float | None,
    watcher: Watcher,
) -> bool:
    """Runs the groups, and further seeds while a comparison is open; whether it was interrupted."""
    from trainlab.execute.signals import EndAtOnce, interrupted_after

    budget_s = math.inf if budget_s is None else budget_s
    deadline, time_is_up = time.monotonic() + budget_s, threading.Event()
    try:
        with interrupted_after(budget_s, time_is_up):
            for some in _planned_groups(run, groups, watcher):
                with watcher.running(run):
                    executor.run(run, some, lambda: time.monotonic() > deadline)
                if time.monotonic() > deadline:
                    break
    except EndAtOnce:
        raise
    except KeyboardInterrupt:
        return not time_is_up.is_set()
    return False


def _planned_groups(
    run: Run, groups: "tuple[Group, ...]", watcher: Watcher
) -> "Iterator[tuple[Group, ...]]":
    """What is to run: these groups; then, look by look, further seeds while a comparison is open."""
    from trainlab.analysis.evidence import gather
    from trainlab.analysis.findings.effects import open_comparisons
    from trainlab.execute.run import add_seeds

    yield groups
    study = run.study().to_study(str(run.study_file))
    for num_seeds in (number for number in study.looks[1:] if number > len(study.seeds)):
        with watcher.status("counting_decided"):
            left = open_comparisons(gather(run))
        if not left.num_open:
            if left.num_hopeless:
                watcher.gave_up(left.num_hopeless)
            return
        groups = add_seeds(run, num_seeds)
        watcher.added(left.num_open, num_seeds)
        yield groups


def _write_tables(run: Run, watcher: Watcher) -> None:
    with watcher.status("reading_records"):
        from trainlab.analysis.results import write_results

        write_results(run, run.evidence())
