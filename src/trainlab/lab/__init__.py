"""The bench from Python: ask a question, open a run, read its tables and findings."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab.errors import TrialsFailedWarning
from trainlab.execute.jobs import AskedJobs
from trainlab.lab.driving import Outcome, go_on
from trainlab.lab.driving import drive as drive
from trainlab.lab.driving import planned as planned
from trainlab.lab.notebook_display import session_watcher
from trainlab.lab.opened import Run as Run
from trainlab.lab.opened import gate as gate
from trainlab.lab.opened import open_run as open_run
from trainlab.lab.run_progress import Activity as Activity
from trainlab.lab.run_progress import Watcher as Watcher
from trainlab.resolve import CONFIRMED_SEEDS
from trainlab.spec import CostSpec, Question, checked
from trainlab.spec.facts import AS_OBJECT
from trainlab.spec.question import checked_question
from trainlab.spec.search import SearchAsked
from trainlab.spec.study import cost_margins
from trainlab.workloads.reference import with_name

if TYPE_CHECKING:
    from trainlab.train.callbacks import Instrument
    from trainlab.workloads.workload import Workload


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
    jobs: AskedJobs = "auto",
    **options: Any,
) -> Run:
    """Trains a workload in every cell with every seed and returns its run.

    `workload` is a name, `FILE.py:NAME` or a Workload; `vary` maps factors to levels; `seeds` is a number
    of seeds or the seeds themselves; `profile` also measures what a step costs, untrained and trained (a
    mapping sets fields of CostSpec); `many` allows more than 500 trials; after `budget_s` what runs is
    interrupted, and a trial that takes longer than `trial_timeout_s` fails; `on` says where trials run and
    `jobs` how many side by side (a Workload object trains in this process unless `jobs` or
    `trial_timeout_s` is given). All else is a setting, as in TrainSpec, or a field of Question. In a
    notebook progress is shown. Trials that fail are records of the run, and a TrialsFailedWarning. For
    example `trainlab.run("fashion-mlp", vary={"lr": [1e-2, 1e-3]}, seeds=5).results()`.
    """
    asked = _asked(workload, vary, seeds, design, profile, options)
    limits: dict[str, Any] = {"budget_s": budget_s, "trial_timeout_s": trial_timeout_s}
    return _answered(asked, out, many=many, on=on, jobs=jobs, instruments=instruments, **limits)


def search(
    workload: "str | Workload",
    *,
    vary: Mapping[str, str | Sequence[Any]],
    settings: int | None = None,
    budget_s: float | None = None,
    sampler: str = "tpe",
    stop_early: bool = True,
    confirm: int = 3,
    **options: Any,
) -> Run:
    """Looks for the best setting of a workload, confirms it with seeds that chose nothing, and returns the
    run.

    `vary` maps what is searched to ranges, as `"1e-5..1e-1"`, or choices; `settings` are tried (60, or as
    many as `budget_s` allows), those that are clearly worse are stopped early unless `stop_early` is
    false, and the best `confirm` are trained again with every one of `seeds`. All else is as for
    `trainlab.run`. For example `trainlab.search("fashion-mlp", vary={"lr": "1e-5..1e-1"}, settings=20)`.
    """
    asked = {"vary": dict(vary), "settings": settings, "budget_s": budget_s, "sampler": sampler}
    asked |= {"stop_early": stop_early, "confirm": confirm}
    options = {"seeds": CONFIRMED_SEEDS, **options}
    return run(workload, search=checked(SearchAsked, asked, "search"), **options)


def profile(
    workload: "str | Workload",
    *,
    vary: Mapping[str, Sequence[Any]] | None = None,
    out: Path | str | None = None,
    trial_timeout_s: float | None = None,
    on: str = "local",
    **options: Any,
) -> Run:
    """Measures what a step of a workload costs, in fresh processes, and returns the run.

    `options` are settings, as in TrainSpec, and fields of CostSpec: `processes` here is the number of fresh
    processes; one trial in several processes is varied with `vary={"processes": [1, 2]}`. For example
    `trainlab.profile("mnist-cnn", batch_size=64, mode="inference").results()`.
    """
    given = {name: value for name, value in options.items() if name in CostSpec.model_fields}
    settings = {name: value for name, value in options.items() if name not in given}
    cost = checked(CostSpec, given, "profile")
    fields = {"learn": False, "cost": cost, "margins": cost_margins(cost)}
    asked = _asked(workload, vary, 1, "grid", False, settings | fields)
    return _answered(asked, out, trial_timeout_s=trial_timeout_s, on=on)


def resume_run(
    path: Path,
    *,
    allow_changed: bool = False,
    is_trusted: bool = False,
    budget_s: float | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Goes on with a run that was cut short, as it would have gone on undisturbed, and writes its tables; a
    diagnosis goes on to its answer. RecordError where another process drives the run; WorkloadError where
    the user's own workload file is not what it was, unless `allow_changed`, or where she did not start the
    run in this folder, unless `is_trusted`: its records say what code runs."""
    run = open_run(path)
    asked: dict[str, Any] = {"allow_changed": allow_changed, "is_trusted": is_trusted}
    asked |= {"budget_s": budget_s, "watcher": watcher}
    if not run.is_diagnosis:
        return go_on(run, **asked)
    from trainlab.lab.script_study import BUDGET_S, DiagnosisStage

    study = run.study().to_study(str(run.study_file))
    stage = DiagnosisStage(study, budget_s or BUDGET_S, watcher)
    outcome = go_on(run, stage.groups, **asked)
    stage.written(outcome)
    return outcome


def _answered(
    asked: "tuple[Question, dict[str, Workload]]", out: Path | str | None, **placed: Any
) -> Run:
    """The run, with a warning for each way in which trials failed: nobody must have to look for it in the
    records."""
    question, workloads = asked
    folder = None if out is None else Path(out)
    outcome = drive(question, out=folder, workloads=workloads, watcher=session_watcher(), **placed)
    run = outcome.complete_run()
    trials, failed = run.evidence().trials, dict[str, list[str]]()
    for trial in trials:
        if trial.state == "failed" and (error := trial.error) is not None:
            reason = error.mistake or f"{error.kind}: {error.message}".partition("\n")[0]
            trace = f"\n{error.own_traceback.rstrip()}" if error.own_traceback else ""
            failed.setdefault(f"{reason}{trace}", []).append(trial.id)
    for reason, ids in failed.items():
        warnings.warn(
            f"{run.path}: {len(ids)} of {len(trials)} trials failed; the first is {ids[0]}: {reason}",
            TrialsFailedWarning,
            stacklevel=3,
        )
    return run


def _asked(
    workload: "str | Workload",
    vary: Mapping[str, Sequence[Any]] | None,
    seeds: int | Sequence[int],
    design: str,
    profile: bool | Mapping[str, Any],
    options: Mapping[str, Any],
) -> "tuple[Question, dict[str, Workload]]":
    """The question, and the workloads that it names and that were given as objects."""
    from trainlab.workloads.workload import Workload

    workloads: dict[str, Workload] = {}
    fields = {n: v for n, v in options.items() if n in Question.model_fields and n != "settings"}
    settings = {n: v for n, v in options.items() if n not in fields}
    if profile is not False:
        cost = {} if profile is True else profile
        fields["cost"] = checked(CostSpec, {"weights": "both", **cost}, "profile")
    if isinstance(workload, Workload):
        name = f"{workload.name}{AS_OBJECT}"
        workloads[name], workload = workload, name
    elif isinstance(workload, str):
        workload = with_name(workload)
    varied: dict[str, Any] = dict(vary or {})
    for name, levels in varied.items():
        # A single value stays as it is, for the check to say what is wrong with it.
        if isinstance(levels, Iterable) and not isinstance(levels, str | Mapping):
            varied[name] = tuple(levels)
    given = {"workload": workload, "settings": settings, "vary": varied, "design": design}
    seeds = seeds if isinstance(seeds, int) else tuple(seeds)
    return checked_question({**fields, **given, "seeds": seeds}), workloads
