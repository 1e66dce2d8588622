"""The bench from Python: ask a question, open a run, read its tables and findings."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab.errors import WorkloadError
from trainlab.lab.asked import planned as planned
from trainlab.lab.driving import resume_run as resume_run
from trainlab.lab.driving import run_question as run_question
from trainlab.lab.opened import Run as Run
from trainlab.lab.opened import open_run as open_run
from trainlab.lab.watcher import Activity as Activity
from trainlab.lab.watcher import Watcher as Watcher
from trainlab.spec import CostSpec, Question, checked
from trainlab.spec.question import checked_question
from trainlab.spec.workload import AS_OBJECT

if TYPE_CHECKING:
    from trainlab.execute.jobs import AskedJobs
    from trainlab.train.moments import Instrument
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
    question, workloads = _asked(workload, vary, seeds, design, profile, options)
    ran = run_question(
        question,
        out=None if out is None else Path(out),
        many=many,
        budget_s=budget_s,
        trial_timeout_s=trial_timeout_s,
        on=on,
        jobs=jobs,
        workloads=workloads,
        instruments=instruments,
    ).complete_run()
    _warn_of_failures(ran)
    return ran


def _warn_of_failures(run: Run) -> None:
    """Warns once for each way in which trials failed: nobody must have to look for it in the records."""
    failed: dict[str, list[str]] = {}
    for trial in run.trials():
        if trial.state == "failed" and (error := trial.error) is not None:
            reason = error.mistake or f"{error.kind}: {error.message}"
            trace = f"\n{error.traceback.rstrip()}" if error.line else ""
            failed.setdefault(f"{reason}{trace}", []).append(trial.id)
    for reason, ids in failed.items():
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        warnings.warn(f"{ids[0]}{more}: failed: {reason}", RuntimeWarning, stacklevel=3)


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
    return checked_question(values), workloads


def _levels(values: Any) -> Any:
    """Any series as a tuple; a single value stays as it is, for the check to say what is wrong with it."""
    is_series = isinstance(values, Iterable) and not isinstance(values, str | Mapping)
    return tuple(values) if is_series else values
