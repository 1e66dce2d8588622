"""From a study to a run folder: plan it, write down what was asked, run the trials here."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from trainlab import __version__
from trainlab.errors import WorkloadError
from trainlab.execute.fresh import run_fresh
from trainlab.execute.resolve import make_study
from trainlab.execute.worker import Loader, run_group
from trainlab.plan import plan
from trainlab.record.environment import capture
from trainlab.record.folder import RunFolder, create_run
from trainlab.record.schema import StudyRecord, TrialRecord
from trainlab.spec import CostSpec, Study, checked
from trainlab.train.moments import Instrument
from trainlab.workloads.workload import Workload


def start_run(study: Study, out: Path | None = None, command: str | None = None) -> RunFolder:
    """A run folder with the study, the environment and every planned trial as pending."""
    now = datetime.now().astimezone()
    trials, environment = plan(study), capture(Path.cwd())
    folder = create_run(out, study.name, now)
    folder.write_environment(environment)
    folder.write_study(
        StudyRecord(
            name=study.name,
            created=now.isoformat(timespec="seconds"),
            trainlab=__version__,
            command=shlex.join(sys.argv) if command is None else command,
            study=study.model_dump(mode="json"),
            trials=tuple(trial.id for trial in trials),
        )
    )
    for trial in trials:
        folder.trial(trial.id).write(TrialRecord(**trial.model_dump(mode="json")))
    return folder


def run_study(
    folder: RunFolder,
    watchers: Sequence[Instrument] = (),
    load: Loader | None = None,
    around: Callable[[str], AbstractContextManager[Any]] = nullcontext,
) -> None:
    """Runs every trial of a started run in the order planned: learn trials here, each cost trial in a
    fresh process, with `around(its id)` entered meanwhile."""
    kinds = {trial.id: trial.kind for trial in folder.trials()}
    load = load or Loader()
    for kind, ids in groupby(folder.study().trials, key=kinds.__getitem__):
        if kind == "learn":
            run_group(folder, list(ids), watchers, load)
            continue
        for trial_id in ids:
            with around(trial_id):
                run_fresh(folder, trial_id)


def run(
    workload: str | Workload,
    *,
    seeds: int | Sequence[int] = 1,
    out: Path | str | None = None,
    instruments: Sequence[Instrument] = (),
    tensorboard: bool = True,
    save_model: bool = False,
    profile: bool | Mapping[str, Any] = False,
    **settings: Any,
) -> RunFolder:
    """Trains a workload once per seed and returns its run folder; settings as in TrainSpec.

    `profile` also measures what a step costs, untrained and trained; a mapping sets fields of CostSpec.

    `workload` is a name, `FILE.py:NAME` or a Workload; `seeds` a number of seeds or the seeds
    themselves. For example `trainlab.run("fashion-mlp", seeds=3, lr=0.01).trials()`.
    """
    load, reference = Loader(), workload
    if isinstance(workload, Workload):
        reference = f"{workload.name} (given as an object)"
        load = Loader({reference: workload})
    assert isinstance(reference, str)
    chosen = range(1, seeds + 1) if isinstance(seeds, int) else seeds
    options: dict[str, Any] = {"tensorboard": tensorboard, "save_model": save_model}
    if profile is not False:
        if isinstance(workload, Workload):
            raise WorkloadError(
                f"{workload.name}: cost is measured in fresh processes, which cannot get an object; "
                "name it as FILE.py:NAME"
            )
        given = {} if profile is True else profile
        options["cost"] = checked(CostSpec, {"weights": "both", **given}, "profile")
    study = make_study(load, reference, settings, tuple(chosen), **options)
    folder = start_run(study, None if out is None else Path(out))
    run_study(folder, instruments, load)
    return folder
