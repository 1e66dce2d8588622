"""From a question to a run, and on with a run that was cut short: the one way for Python and every verb."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab.lab.opened import Run
from trainlab.lab.run_progress import Watcher
from trainlab.record.run_folder import check_unused
from trainlab.resolve import asks_each_device, resolve
from trainlab.spec import Question, Study
from trainlab.spec.facts import WorkloadFacts
from trainlab.spec.question import asked_values, check_values
from trainlab.spec.settings import DATA_CHOICES
from trainlab.workloads.reference import BUILTIN, check_reference

if TYPE_CHECKING:
    from trainlab.execute.executors import Executor
    from trainlab.execute.jobs import AskedJobs
    from trainlab.execute.launch import Launcher
    from trainlab.plan import Group
    from trainlab.train.callbacks import Instrument
    from trainlab.workloads.workload import Workload

    NextStage = Callable[[Run], tuple[Group, ...]]
    """Adds to a run what follows from its records so far, and gives it."""

FORKED = ("local", "processes")
"""Executors that run trials in processes of this machine."""


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


def drive(
    asked: Question | Study,
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
    next_stage: "NextStage | None" = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """From a question, or a study that is laid out, to a run with its tables: resolve, check the machine,
    run the trials, read them; then the same for what `next_stage` adds.

    A mistake is raised as SpecError or the like before anything has run; whatever happens later is in the
    run's records. Once `budget_s` is spent no trial is started, and what runs is interrupted; a trial that
    takes longer than `trial_timeout_s` fails. `jobs` learn trials run side by side. `workloads` are those
    given as objects, by name; `overridden` is what a study's file says and was asked for otherwise.
    """
    from trainlab.execute.jobs import (
        are_processes_asked,
        check_jobs,
        check_processes_sendable,
        check_timeout,
    )
    from trainlab.execute.launch import Launcher
    from trainlab.execute.lease import leased
    from trainlab.execute.planned_run import start_run
    from trainlab.plan import plan

    watcher, given, folder = watcher or Watcher(), workloads or {}, Path.cwd()
    jobs = check_without_torch(
        asked, where, out=out, on=on, jobs=jobs, many=many, given=given, instruments=instruments
    )
    check_timeout(trial_timeout_s, on, has_instruments=bool(instruments))
    has_processes = asked.cost is not None or are_processes_asked(jobs, on, trial_timeout_s)
    has_objects = bool(given or instruments)
    launcher = Launcher()
    if on in FORKED and (has_processes or not has_objects):
        launcher.prepare(_threads_expected(asked, jobs))  # it imports torch while this process does
    sent = given if has_processes and on != "inline" else {}
    with _executing(
        on, jobs, trial_timeout_s, launcher, watcher, given, instruments, sent
    ) as executor:
        if isinstance(asked, Study):
            study = asked
            _preflight(executor, study, watcher)
        else:
            facts = facts_of(asked, executor.facts)
            study = resolve(asked, facts, where, many=many)
            each_device = asks_each_device(asked)
            devices = _preflight(executor, study, watcher, each_device=each_device)
            study = resolve(asked, facts, where, devices=devices, many=many)
        check_jobs(jobs, on, study)
        most = max(cell.settings.processes for cell in study.all_cells)
        check_processes_sendable(most, has_objects=has_objects)
        os.chdir(folder)  # the user's code may have left it; paths are meant as they were given
        watcher.planned(study)
        started = start_run(
            study,
            out,
            overridden=overridden,
            on=on,
            jobs=jobs,
            trial_timeout_s=trial_timeout_s,
        )
        run = Run(started.path.absolute())  # trials may leave the folder, too
        with leased(run):
            was_cut = _run_stages(run, executor, plan(study), next_stage, budget_s, watcher)
            _write_tables(run, watcher)
    return Outcome(Run(started.path), was_cut)


def go_on(
    run: Run,
    next_stage: "NextStage | None" = None,
    *,
    allow_changed: bool = False,
    budget_s: float | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Runs what is left of a run, then what `next_stage` makes of its records; see `resume_run`."""
    from trainlab.execute.jobs import likely_threads
    from trainlab.execute.launch import Launcher
    from trainlab.execute.lease import leased
    from trainlab.execute.planned_run import check_resumable, mark_interrupted, unfinished_groups

    watcher = watcher or Watcher()
    record = run.study()
    study = record.to_study(str(run.study_file))
    check_resumable(run, record, allow_changed=allow_changed)
    was_cut = False
    with leased(run, lambda driver: watcher.watching(driver.name)):
        mark_interrupted(run)
        groups = unfinished_groups(run) or (() if next_stage is None else next_stage(run))
        num_trials = len(run.study().trials)
        watcher.resumed(sum(len(group.trials) for group in groups), num_trials)
        if groups or max(study.looks, default=0) > len(study.seeds):
            on, jobs, limit_s = record.on, record.jobs, record.trial_timeout_s
            launcher = Launcher()
            if on in FORKED:
                decided, several = record.side_by_side, jobs not in ("auto", 1)
                threads = likely_threads(jobs, ()) if several else None
                launcher.prepare(threads if decided is None else decided.threads)
            with _executing(on, jobs, limit_s, launcher, watcher) as executor:
                _preflight(executor, study, watcher)
                was_cut = _run_stages(run, executor, groups, next_stage, budget_s, watcher)
        _write_tables(run, watcher)
    return Outcome(run, was_cut)


@contextmanager
def _executing(
    on: str,
    jobs: "AskedJobs",
    trial_timeout_s: float | None,
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
            from trainlab.machine.process_state import process_restored
            from trainlab.train.loader import Loader
            from trainlab.workloads.find import sent_files
        with sent_files(sent or {}) as files:
            load = Loader(workloads, files=files)
            executor = executor_for(on, load, instruments, jobs, launcher, trial_timeout_s)
            with closing(executor), process_restored(), signals_interrupt():
                yield executor


def _preflight(
    executor: "Executor", study: Study, watcher: Watcher, *, each_device: bool = False
) -> tuple[str, ...]:
    """Checks the study where it will run; the devices there."""
    from trainlab.data.fetch import reporting_to

    with watcher.preparing(), reporting_to(watcher.downloads):
        return executor.preflight(study, each_device=each_device)


def _run_stages(
    run: Run,
    executor: "Executor",
    groups: "tuple[Group, ...]",
    next_stage: "NextStage | None",
    budget_s: float | None,
    watcher: Watcher,
) -> bool:
    """Runs the groups, then those of the next stage; whether it was interrupted."""
    deadline_s = math.inf if budget_s is None else time.monotonic() + budget_s
    was_cut = _run_groups(run, executor, groups, deadline_s, watcher)
    if not was_cut and next_stage is not None and (further := next_stage(run)):
        deadline_s = max(deadline_s, time.monotonic() + 1.0)
        was_cut = _run_groups(run, executor, further, deadline_s, watcher)
    return was_cut


def _run_groups(
    run: Run,
    executor: "Executor",
    groups: "tuple[Group, ...]",
    deadline_s: float,
    watcher: Watcher,
) -> bool:
    """Runs the groups, and further seeds while a comparison is open; whether it was interrupted."""
    from trainlab.execute.signals import EndAtOnce, interrupted_after

    time_is_up = threading.Event()
    try:
        with interrupted_after(deadline_s - time.monotonic(), time_is_up):
            for some in _with_seeds(run, groups, watcher):
                with watcher.running(run):
                    executor.run(run, some, lambda: time.monotonic() > deadline_s)
                if time.monotonic() > deadline_s:
                    break
    except EndAtOnce:
        raise
    except KeyboardInterrupt:
        return not time_is_up.is_set()
    return False


def _with_seeds(
    run: Run, groups: "tuple[Group, ...]", watcher: Watcher
) -> "Iterator[tuple[Group, ...]]":
    """These groups; then, look by look, further seeds while a comparison is open."""
    from trainlab.analysis.evidence import gather
    from trainlab.analysis.factors import open_comparisons
    from trainlab.execute.planned_run import add_seeds

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


def planned(
    question: Question,
    where: str = "",
    *,
    out: Path | None = None,
    on: str = "local",
    jobs: "AskedJobs" = "auto",
    many: bool = False,
) -> Study:
    """The study that a question asks for; imports torch only for a user's own workload."""
    from trainlab.execute.jobs import check_jobs

    jobs = check_without_torch(question, where, out=out, on=on, jobs=jobs, many=many)
    study = resolve(question, facts_of(question), where, many=many)
    check_jobs(jobs, on, study)
    return study


def check_without_torch(
    asked: Question | Study,
    where: str,
    *,
    out: Path | None,
    on: str,
    jobs: "AskedJobs",
    many: bool,
    given: Mapping[str, object] | None = None,
    instruments: Sequence[object] = (),
) -> "AskedJobs":
    """Raises what is wrong and can be seen without torch, which takes seconds to start; gives the jobs."""
    from trainlab.execute.jobs import check_executor, check_sendable, jobs_of
    from trainlab.machine.host import check_capacity

    check_executor(on)
    jobs = jobs_of(jobs)
    check_sendable(jobs, on, has_workload=bool(given), has_instruments=bool(instruments))
    if out is not None:
        check_unused(out)
    if isinstance(asked, Study):
        return jobs
    if asked.workload in BUILTIN:
        entry = BUILTIN[asked.workload]
        study = resolve(asked, entry.facts, where, many=many)
        for choice in {cell.settings.data for cell in study.all_cells} - set(DATA_CHOICES):
            from trainlab.data.image_sets import folder_of, image_set

            folder_of(image_set(entry.images), choice)
    elif asked.workload not in (given or {}):
        check_values(asked, where)
        check_reference(asked.workload, where if where.endswith(".toml") else "")
    check_capacity(asked_values(asked, "threads"), asked_values(asked, "device"))
    return jobs


def facts_of(
    question: Question, ask: "Callable[[str], WorkloadFacts] | None" = None
) -> WorkloadFacts:
    """A built-in workload's facts are in the catalogue; a user's own workload is loaded for them, here or
    by whom we ask."""
    if question.workload in BUILTIN:
        return BUILTIN[question.workload].facts
    if ask is None:
        from trainlab.train.loader import Loader

        return Loader().workload(question.workload).facts
    return ask(question.workload)


def _threads_expected(asked: Question | Study, jobs: "AskedJobs") -> int | None:
    """Of the processes that learn trials will run in, as far as that shows before torch is there."""
    from trainlab.execute.jobs import likely_threads

    if isinstance(asked, Study):
        return likely_threads(jobs, ()) if asked.num_learn > 1 else None
    several = asked.seeds != 1 or asked.vary or asked.cells
    if asked.learn and jobs != 1 and several:
        return likely_threads(jobs, asked_values(asked, "device"))
    threads = asked_values(asked, "threads")
    return threads[0] if threads and isinstance(threads[0], int) else None
