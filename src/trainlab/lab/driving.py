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

from trainlab.execute import launch, planned_run
from trainlab.execute.jobs import (
    AskedJobs,
    are_processes_asked,
    are_scripts_started_here,
    check_jobs,
    check_place,
)
from trainlab.execute.lease import leased
from trainlab.execute.script_trials import ScriptExecutor
from trainlab.execute.signals import EndAtOnce, interrupted_after, signals_interrupt
from trainlab.extras import check_extra
from trainlab.lab.opened import Run
from trainlab.lab.run_progress import Watcher
from trainlab.machine.host import check_capacity
from trainlab.plan import Group, plan
from trainlab.record.run_folder import check_unused
from trainlab.resolve import asks_each_device, resolve
from trainlab.spec import Question, Study
from trainlab.spec.facts import WorkloadFacts
from trainlab.spec.question import asked_values
from trainlab.spec.settings import DATA_CHOICES
from trainlab.workloads.reference import BUILTIN, check_reference

if TYPE_CHECKING:
    from trainlab.execute.executors import Executor
    from trainlab.train.callbacks import Instrument
    from trainlab.train.loader import Loader
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

    def complete_run(self) -> Run:
        """The run; KeyboardInterrupt where it was cut short."""
        if self.was_interrupted:
            raise KeyboardInterrupt
        return self.run


@dataclass
class _Ending:
    """Once a run has started, an interrupt ends the block and no more: what has ended is worth an answer. A
    second one is raised."""

    has_started: bool = False
    was_cut: bool = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        is_first = isinstance(error, KeyboardInterrupt) and not isinstance(error, EndAtOnce)
        self.was_cut |= is_first
        return is_first and self.has_started


def drive(
    asked: Question | Study,
    where: str = "",
    *,
    out: Path | None = None,
    many: bool = False,
    budget_s: float | None = None,
    trial_timeout_s: float | None = None,
    on: str = "local",
    jobs: AskedJobs = "auto",
    workloads: "Mapping[str, Workload] | None" = None,
    instruments: "Sequence[Instrument]" = (),
    overridden: Mapping[str, Any] | None = None,
    next_stage: NextStage | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """From a question, or a study that is laid out, to a run with its tables: resolve, check the machine,
    run the trials, read them; then the same for what `next_stage` adds.

    A mistake is raised as SpecError or the like before anything has run; whatever happens later is in the
    run's records. `workloads` are those given as objects, by name; `overridden` is what a study's file says
    and was asked for otherwise; for the others see `trainlab.run`.
    """
    watcher, given, folder = watcher or Watcher(), workloads or {}, Path.cwd()
    has_objects = {"has_workload": bool(given), "has_instruments": bool(instruments)}
    jobs = check_place(on, jobs, trial_timeout_s, **has_objects)
    check_without_torch(asked, where, out=out, many=many, given=given)
    has_processes = asked.cost is not None or are_processes_asked(jobs, on, trial_timeout_s)
    sent = given if has_processes and on != "inline" else {}
    is_forked = on in FORKED and (has_processes or not any(has_objects.values()))
    placed = (on, jobs, trial_timeout_s, watcher, given, instruments, sent)
    outcome = _Ending()
    with outcome, _executing(asked, *placed, is_forked=is_forked) as (load, executor):
        if isinstance(asked, Study):
            study = asked
            _preflight(executor, study, watcher)
        else:
            facts = facts_of(asked, load)
            study = resolve(asked, facts, where, many=many)
            each_device = asks_each_device(asked)
            devices = _preflight(executor, study, watcher, each_device=each_device)
            study = resolve(asked, facts, where, devices=devices, many=many)
        check_jobs(jobs, on, study, has_objects=any(has_objects.values()))
        os.chdir(folder)  # the user's code may have left it; paths are meant as they were given
        watcher.planned(study)
        next_stage = next_stage or _stage_of(study, watcher)
        kept: dict[str, Any] = {"on": on, "jobs": jobs, "trial_timeout_s": trial_timeout_s}
        started = planned_run.start_run(study, out, overridden=dict(overridden or {}), **kept)
        run = Run(started.path.absolute())  # trials may leave the folder, too
        outcome.has_started = True
        with leased(run):
            outcome.was_cut |= _run_stages(
                run, executor, plan(study), next_stage, budget_s, watcher
            )
            _write_tables(run, watcher)
    return Outcome(Run(started.path), outcome.was_cut)


def go_on(
    run: Run,
    next_stage: NextStage | None = None,
    *,
    allow_changed: bool = False,
    is_trusted: bool = False,
    budget_s: float | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Runs what is left of a run, then what `next_stage` makes of its records; see `resume_run`."""
    watcher = watcher or Watcher()
    record = run.study()
    study = record.to_study(str(run.study_file))
    next_stage = next_stage or _stage_of(study, watcher)
    planned_run.check_resumable(run, record, allow_changed=allow_changed, is_trusted=is_trusted)
    if is_trusted:
        planned_run.trust(run)
    outcome = _Ending(has_started=True)
    with (
        outcome,
        signals_interrupt(),
        leased(run, lambda driver: watcher.say("watching_driver", driver=driver.name)),
    ):
        planned_run.mark_interrupted(run)
        groups = planned_run.unfinished_groups(run) or (
            () if next_stage is None else next_stage(run)
        )
        num_left = sum(len(group.trials) for group in groups)
        key = "resumed" if num_left else "nothing_left"
        watcher.say(key, left=num_left, all=len(run.study().trials))
        if groups or max(study.looks, default=0) > len(study.seeds):
            limit_s = record.trial_timeout_s
            with _executing(study, record.on, record.jobs, limit_s, watcher) as (_, executor):
                _preflight(executor, study, watcher)
                outcome.was_cut |= _run_stages(run, executor, groups, next_stage, budget_s, watcher)
        _write_tables(run, watcher)
    return Outcome(run, outcome.was_cut)


def _stage_of(study: Study, watcher: Watcher) -> NextStage | None:
    """What a study says itself comes after its first trials."""
    if study.search is None:
        return None
    from trainlab.lab.searching import SearchStage

    return SearchStage(study, watcher).groups


@contextmanager
def _executing(
    asked: Question | Study,
    on: str,
    jobs: AskedJobs,
    trial_timeout_s: float | None,
    watcher: Watcher,
    given: "Mapping[str, Workload] | None" = None,
    instruments: "Sequence[Instrument]" = (),
    to_send: "Mapping[str, Workload] | None" = None,
    *,
    is_forked: bool = True,
) -> "Iterator[tuple[Loader | None, Executor]]":
    """What runs trials, and what loads workloads, once torch is there; scripts that this process starts
    itself need neither. `to_send` are those objects that fresh processes must get; `is_forked`: some are
    forked on this machine. Inside, signals interrupt; what trials change in this process is as before
    afterwards."""
    if are_scripts_started_here(asked, on, jobs, trial_timeout_s):
        with signals_interrupt():
            seen = watcher.seen if watcher.shows_output else None
            yield None, ScriptExecutor(_import_analysis, seen)
        return
    if is_forked and on in FORKED:
        launch.prepare()  # it imports torch while this process does
    with watcher.status("starting_torch"):
        from trainlab.execute.executors import executor_for
        from trainlab.machine.process_state import process_restored
        from trainlab.train.loader import Loader
        from trainlab.workloads.find import sent
    load = Loader(given, sent=sent(to_send or {}))
    executor = executor_for(on, load, instruments, jobs, trial_timeout_s)
    with signals_interrupt(), closing(executor), process_restored():
        yield load, executor


def _import_analysis() -> None:
    """What the answer needs, while a script imports torch for as long."""
    import trainlab.analysis.overview
    import trainlab.analysis.results  # noqa: F401


def _preflight(
    executor: "Executor", study: Study, watcher: Watcher, *, each_device: bool = False
) -> tuple[str, ...]:
    """Checks the study where it will run; the devices there."""
    if study.script is not None:
        return executor.preflight(study, each_device=each_device)
    from trainlab.data.fetch import reporting_to

    with watcher.fetching() as shown, reporting_to(shown):
        return executor.preflight(study, each_device=each_device)


def _run_stages(
    run: Run,
    executor: "Executor",
    groups: tuple[Group, ...],
    next_stage: NextStage | None,
    budget_s: float | None,
    watcher: Watcher,
) -> bool:
    """Runs the groups, then those of each next stage; whether it was interrupted."""
    deadline_s = math.inf if budget_s is None else time.monotonic() + budget_s
    was_cut = _run_groups(run, executor, groups, deadline_s, watcher)
    while not was_cut and next_stage is not None and (further := next_stage(run)):
        was_cut = _run_groups(run, executor, further, deadline_s, watcher)
    return was_cut


def _run_groups(
    run: Run,
    executor: "Executor",
    groups: tuple[Group, ...] | None,
    deadline_s: float,
    watcher: Watcher,
) -> bool:
    """Runs the groups, and, look by look, further seeds while a comparison is open; whether it was
    interrupted."""

    def is_over() -> bool:
        return time.monotonic() > deadline_s

    study, time_is_up = run.study().to_study(str(run.study_file)), threading.Event()
    try:
        with interrupted_after(deadline_s - time.monotonic(), time_is_up):
            looks = (number for number in study.looks[1:] if number > len(study.seeds))
            while groups is not None:
                with watcher.running(run):
                    executor.run(run, groups, is_over)
                num_seeds = None if is_over() else next(looks, None)
                groups = None if num_seeds is None else _further_seeds(run, num_seeds, watcher)
    except EndAtOnce:
        raise
    except KeyboardInterrupt:
        return not time_is_up.is_set()
    return False


def _further_seeds(run: Run, num_seeds: int, watcher: Watcher) -> tuple[Group, ...] | None:
    """What runs so many seeds, where they may decide a comparison; says which are open."""
    from trainlab.analysis.evidence import gather
    from trainlab.analysis.factors import open_comparisons

    with watcher.status("counting_decided"):
        num_open, num_hopeless = open_comparisons(gather(run))
    kind, number = ("open", num_open) if num_open else ("hopeless", num_hopeless)
    key = f"one_comparison_{kind}" if number == 1 else f"comparisons_{kind}"
    if number:
        watcher.say(key, number=number, seeds=num_seeds)
    return planned_run.add_seeds(run, num_seeds) if num_open else None


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
    jobs: AskedJobs = "auto",
    many: bool = False,
) -> Study:
    """The study that a question asks for; imports torch only for a user's own workload."""
    jobs = check_place(on, jobs)
    check_without_torch(question, where, out=out, many=many)
    study = resolve(question, facts_of(question), where, many=many)
    check_jobs(jobs, on, study)
    return study


def check_without_torch(
    asked: Question | Study,
    where: str,
    *,
    out: Path | None,
    many: bool,
    given: Mapping[str, object] | None = None,
) -> None:
    """Raises what is wrong and can be seen without torch, which takes seconds to start."""
    if out is not None:
        check_unused(out)
    if isinstance(asked, Study):
        return
    if asked.search is not None and asked.search.sampler != "grid":
        check_extra("optuna", "a search", "search")
    if asked.workload in BUILTIN:
        entry = BUILTIN[asked.workload]
        study = resolve(asked, entry, where, many=many)
        for choice in {cell.settings.data for cell in study.all_cells} - set(DATA_CHOICES):
            from trainlab.data.image_sets import folder_of, image_set

            folder_of(image_set(entry.images), choice)
    elif asked.workload not in (given or {}):
        check_reference(asked.workload, where if where.endswith(".toml") else "")
    check_capacity(asked_values(asked, "threads"), asked_values(asked, "device"))


def facts_of(question: Question, load: "Loader | None" = None) -> WorkloadFacts:
    """A built-in workload's facts are in the catalogue; a user's own workload is loaded for them."""
    if question.workload in BUILTIN:
        return BUILTIN[question.workload]
    from trainlab.train.loader import Loader

    return (load or Loader()).workload(question.workload).facts
