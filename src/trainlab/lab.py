"""The bench from Python: ask a question, open a run, read its tables and findings.

`run_question` is the one way from a question to a run, for Python and for every verb.
"""

import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainlab.errors import WorkloadError
from trainlab.record.folder import RunFolder, check_run, check_unused
from trainlab.resolve import asks_each_device, resolve
from trainlab.spec import CostSpec, Question, Study, checked
from trainlab.spec.question import asked_values, check_values, checked_question
from trainlab.spec.settings import DATA_CHOICES
from trainlab.spec.workload import AS_OBJECT, WorkloadFacts
from trainlab.words import Words
from trainlab.workloads.catalogue import BUILTIN
from trainlab.workloads.reference import check_reference

if TYPE_CHECKING:
    import pandas as pd

    from trainlab.analyse.evidence import Evidence
    from trainlab.analyse.findings.finding import Finding
    from trainlab.execute.executors.executor import Executor
    from trainlab.execute.jobs import AskedJobs
    from trainlab.plan import Group
    from trainlab.record.study import StudyRecord
    from trainlab.train.loader import Loader
    from trainlab.train.moments import Instrument
    from trainlab.workloads.workload import Workload


class Run(RunFolder):
    """A run folder that also offers its results as tables and findings."""

    _evidence: "Evidence | None" = None

    def evidence(self) -> "Evidence":
        """All its records, arranged by cell; read again only while trials are still to come."""
        from trainlab.analyse.evidence import gather

        if self._evidence is None or not self._evidence.is_complete:
            self._evidence = gather(self)
        return self._evidence

    def results(self) -> "pd.DataFrame":
        """One row per trial: levels, seed, state, final metrics, time, cost."""
        from trainlab.analyse.results import trial_table

        return trial_table(self.evidence())

    def epochs(self) -> "pd.DataFrame":
        """One row per learn trial and epoch."""
        from trainlab.analyse.results import epoch_table

        return epoch_table(self.evidence())

    def probes(self) -> "pd.DataFrame":
        """One row per value of a probe; histograms apart."""
        from trainlab.analyse.results import probe_table

        return probe_table(self.evidence().probed)

    def histograms(self) -> "pd.DataFrame":
        """One row per bin of a probe's histogram."""
        from trainlab.analyse.results import histogram_table

        return histogram_table(self.evidence().probed)

    def findings(self) -> "tuple[Finding, ...]":
        """What the study shows and what it cannot tell, as values."""
        from trainlab.analyse.findings import findings

        return findings(self.evidence())

    def sentences(self, lang: str = "en") -> list[str]:
        """The findings in words."""
        words = Words(lang)
        return [finding.sentence(words) for finding in self.findings()]


Activity = Literal["starting_torch", "reading_records", "counting_decided"]
"""What takes long beside the trials."""


class Watcher:
    """Is told what happens while a question is answered; this one ignores it all."""

    def status(self, activity: Activity) -> AbstractContextManager[object]:
        """Entered during an activity that takes long."""
        return nullcontext()

    def preparing(self) -> AbstractContextManager[object]:
        """Entered while the machine is checked and data is fetched; `downloads` is called meanwhile."""
        return nullcontext()

    def downloads(self, name: str, done: int, total: int | None) -> None:
        """`done` bytes of a file have been downloaded, of `total` where that is known."""

    def planned(self, study: Study) -> None:
        """All checks have passed; this is what will be run."""

    def added(self, num_open: int, num_seeds: int) -> None:
        """So many comparisons are open; seeds are added up to `num_seeds`."""

    def gave_up(self, num_hopeless: int) -> None:
        """So many comparisons are open that seeds cannot decide; none is added for them."""

    def watching(self, driver: str) -> None:
        """The run has a driver on another machine; whether it is alive will be seen in some seconds."""

    def resumed(self, num_left: int, num_trials: int) -> None:
        """A run goes on: so many of its trials are left to run."""

    def running(self, run: RunFolder) -> AbstractContextManager[object]:
        """Entered while trials run; the events in the run folder say how far they are."""
        return nullcontext()


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
    from trainlab.execute.driver.lease import leased
    from trainlab.execute.jobs import check_timeout
    from trainlab.execute.launch.launcher import Launcher
    from trainlab.plan import plan

    watcher = watcher or Watcher()
    given = workloads or {}
    jobs = _check_without_torch(
        question, where, out=out, on=on, jobs=jobs, many=many, given=given, instruments=instruments
    )
    has_objects = bool(given or instruments)
    check_timeout(trial_timeout_s, on, has_objects=has_objects)
    launcher, folder = Launcher(), Path.cwd()
    if on in ("local", "processes") and (question.cost is not None or not has_objects):
        # It imports torch while this process does.
        launcher.prepare(_likely_threads(question, jobs))
    with closing(launcher):
        with watcher.status("starting_torch"):
            from trainlab.data.fetch import reporting_to
            from trainlab.execute.executors import executor_for
            from trainlab.execute.jobs import check_jobs
            from trainlab.execute.run import start_run
            from trainlab.execute.signals import signals_interrupt
            from trainlab.machine.process import process_restored
            from trainlab.train.loader import Loader

            load = Loader(workloads)
            executor = executor_for(on, load, instruments, jobs, launcher, trial_timeout_s)
        with closing(executor), process_restored(), signals_interrupt():
            facts = _facts(question, load)
            study = resolve(question, facts, where, many=many)
            with watcher.preparing(), reporting_to(watcher.downloads):
                devices = executor.preflight(study, each_device=asks_each_device(question))
            study = resolve(question, facts, where, devices=devices, many=many)
            check_jobs(jobs, on, study)
            watcher.planned(study)
            os.chdir(folder)  # the user's code may have left it; paths are meant as they were given
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
                was_interrupted = _drive(run, executor, plan(study), budget_s, watcher)
                _write_tables(run, watcher)
    return Outcome(Run(started.path), was_interrupted)


def resume_run(
    path: Path,
    *,
    allow_changed: bool = False,
    budget_s: float | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Goes on with a run that was cut short, as it would have gone on undisturbed, and writes its tables.

    Finished trials are left as they are; one that has a checkpoint goes on from there. Where and how many
    at a time is as it was asked for. RecordError where another process drives the run; WorkloadError where
    the user's own workload file is not what it was, unless `allow_changed`.
    """
    from trainlab.execute.driver.abandoned import mark_interrupted
    from trainlab.execute.driver.lease import leased

    watcher = watcher or Watcher()
    check_run(path)
    run = Run(path)
    record = run.study()
    study = record.to_study(str(run.study_file))
    with watcher.status("starting_torch"):
        from trainlab.execute.driver.unfinished import check_resumable, unfinished_groups
    check_resumable(run, record, allow_changed=allow_changed)
    with leased(run, lambda driver: watcher.watching(driver.name)):
        mark_interrupted(run)
        groups, was_interrupted = unfinished_groups(run), False
        watcher.resumed(sum(len(group.trials) for group in groups), len(record.trials))
        if groups or max(study.looks, default=0) > len(study.seeds):
            was_interrupted = _resume(run, record, study, groups, budget_s, watcher)
        _write_tables(run, watcher)
    return Outcome(run, was_interrupted)


def _resume(
    run: Run,
    record: "StudyRecord",
    study: Study,
    groups: "tuple[Group, ...]",
    budget_s: float | None,
    watcher: Watcher,
) -> bool:
    """Runs what is left of a run, once the machine has been checked again."""
    from trainlab.execute.launch.launcher import Launcher

    with closing(Launcher()) as launcher:
        with watcher.status("starting_torch"):
            from trainlab.data.fetch import reporting_to
            from trainlab.execute.executors import executor_for
            from trainlab.execute.signals import signals_interrupt
            from trainlab.machine.process import process_restored
            from trainlab.train.loader import Loader

            limit_s = record.trial_timeout_s
            executor = executor_for(record.on, Loader(), (), record.jobs, launcher, limit_s)
        with closing(executor), process_restored(), signals_interrupt():
            with watcher.preparing(), reporting_to(watcher.downloads):
                executor.preflight(study, each_device=False)
            return _drive(run, executor, groups, budget_s, watcher)


def _drive(
    run: Run,
    executor: "Executor",
    groups: "tuple[Group, ...]",
    budget_s: float | None,
    watcher: Watcher,
) -> bool:
    """Runs the groups, and further seeds while a comparison is open; whether it was interrupted."""
    from trainlab.execute.signals import interrupted_after

    budget_s = math.inf if budget_s is None else budget_s
    deadline, time_is_up = time.monotonic() + budget_s, threading.Event()
    try:
        with interrupted_after(budget_s, time_is_up):
            for some in _planned_groups(run, groups, watcher):
                with watcher.running(run):
                    executor.run(run, some, lambda: time.monotonic() > deadline)
                if time.monotonic() > deadline:
                    break
    except KeyboardInterrupt:
        return not time_is_up.is_set()
    return False


def _write_tables(run: Run, watcher: Watcher) -> None:
    with watcher.status("reading_records"):
        from trainlab.analyse.results import write_results

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

    jobs = _check_without_torch(question, where, out=out, on=on, jobs=jobs, many=many, given={})
    study = resolve(question, _facts(question), where, many=many)
    check_jobs(jobs, on, study)
    return study


def open_run(path: Path | str) -> Run:
    """A run folder of this or another machine."""
    check_run(Path(path))
    run = Run(Path(path))
    run.study()
    return run


def run(
    workload: "str | Workload",
    *,
    vary: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | Sequence[int] = 1,
    design: str = "grid",
    out: Path | str | None = None,
    instruments: "Sequence[Instrument]" = (),
    profile: bool | Mapping[str, Any] = False,
    many: bool = False,
    budget_s: float | None = None,
    trial_timeout_s: float | None = None,
    on: str = "local",
    jobs: "AskedJobs" = "auto",
    **options: Any,
) -> Run:
    """Trains a workload in every cell with every seed and returns its run.

    `workload` is a name, `FILE.py:NAME` or a Workload; `vary` maps factors to levels; `seeds` is a number
    of seeds or the seeds themselves; `profile` also measures what a step costs, untrained and trained (a
    mapping sets fields of CostSpec); `many` allows more than 500 trials; after `budget_s` what runs is
    interrupted, and a trial that takes longer than `trial_timeout_s` fails; `on` says where trials run and
    `jobs` how many side by side (with objects, which cannot go to another process: one, in this process).
    All else is a setting, as in TrainSpec, or a field of Question. For example
    `trainlab.run("fashion-mlp", vary={"lr": [1e-2, 1e-3]}, seeds=5).results()`.
    """
    from trainlab.workloads.workload import Workload

    workloads: dict[str, Workload] = {}
    fields = {n: v for n, v in options.items() if n in Question.model_fields and n != "settings"}
    settings = {n: v for n, v in options.items() if n not in fields}
    if profile is not False:
        cost = {} if profile is True else profile
        fields["cost"] = checked(CostSpec, {"weights": "both", **cost}, "profile")
    if isinstance(workload, Workload):
        if fields.get("cost") is not None:
            raise WorkloadError(
                f"{workload.name}: cost is measured in fresh processes, which cannot get an object; "
                "name it as FILE.py:NAME"
            )
        name = f"{workload.name}{AS_OBJECT}"
        workloads[name], workload = workload, name
    values = {
        **fields,
        "workload": workload,
        "settings": settings,
        "vary": {name: _levels(levels) for name, levels in (vary or {}).items()},
        "seeds": seeds if isinstance(seeds, int) else tuple(seeds),
        "design": design,
    }
    return run_question(
        checked_question(values),
        out=None if out is None else Path(out),
        many=many,
        budget_s=budget_s,
        trial_timeout_s=trial_timeout_s,
        on=on,
        jobs=jobs,
        workloads=workloads,
        instruments=instruments,
    ).complete_run()


def _planned_groups(
    run: Run, groups: "tuple[Group, ...]", watcher: Watcher
) -> "Iterator[tuple[Group, ...]]":
    """What is to run: these groups; then, look by look, further seeds while a comparison is open."""
    from trainlab.analyse.evidence import gather
    from trainlab.analyse.findings.effects import open_comparisons
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


def _check_without_torch(
    question: Question,
    where: str,
    *,
    out: Path | None,
    on: str,
    jobs: "AskedJobs",
    many: bool,
    given: Mapping[str, object],
    instruments: Sequence[object] = (),
) -> "AskedJobs":
    """Raises what is wrong and can be seen without torch, which takes seconds to start; gives the jobs."""
    from trainlab.execute.jobs import check_sendable, jobs_of
    from trainlab.execute.places import check_executor
    from trainlab.machine.capacity import check_capacity

    check_executor(on)
    jobs = jobs_of(jobs)
    check_sendable(jobs, has_objects=bool(given or instruments))
    if out is not None:
        check_unused(out)
    if question.workload in BUILTIN:
        entry = BUILTIN[question.workload]
        study = resolve(question, entry.facts, where, many=many)
        for choice in {cell.settings.data for cell in study.all_cells} - set(DATA_CHOICES):
            from trainlab.data.places import folder_of
            from trainlab.data.sets import image_set

            folder_of(image_set(entry.images), choice)
    elif question.workload not in given:
        check_values(question, where)
        check_reference(question.workload, where if where.endswith(".toml") else "")
    check_capacity(asked_values(question, "threads"), asked_values(question, "device"))
    return jobs


def _likely_threads(question: Question, jobs: "AskedJobs") -> int | None:
    """Of the processes that learn trials will run in, as far as that shows before torch is there."""
    from trainlab.execute.jobs import likely_threads

    several = question.seeds != 1 or question.vary or question.cells
    if question.learn and jobs != 1 and several:
        return likely_threads(jobs, asked_values(question, "device"))
    asked = asked_values(question, "threads")
    return asked[0] if asked and isinstance(asked[0], int) else None


def _facts(question: Question, load: "Loader | None" = None) -> WorkloadFacts:
    """A built-in workload's facts are in the catalogue; a user's own workload is loaded for them."""
    if question.workload in BUILTIN:
        return BUILTIN[question.workload].facts
    if load is None:
        from trainlab.train.loader import Loader

        load = Loader()
    return load.workload(question.workload).facts


def _levels(values: Any) -> Any:
    """Any series as a tuple; a single value stays as it is, for the check to say what is wrong with it."""
    is_series = isinstance(values, Iterable) and not isinstance(values, str | Mapping)
    return tuple(values) if is_series else values
