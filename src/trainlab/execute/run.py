"""From a study to a run folder: plan it, write down what was asked, run the trials here."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from trainlab import __version__
from trainlab.execute.worker import run_group
from trainlab.plan import plan
from trainlab.record.environment import capture
from trainlab.record.files import write_json
from trainlab.record.folder import RunFolder, create_run
from trainlab.record.schema import StudyRecord, TrialRecord
from trainlab.spec import Study, checked, settings_for
from trainlab.train.device import pick_device
from trainlab.train.moments import Instrument
from trainlab.workloads.find import find_workload


def make_study(
    workload: str, asked: Mapping[str, Any], seeds: Sequence[int], where: str = "", **options: Any
) -> Study:
    """A study of one workload: its defaults, overridden by what was asked; checked before anything runs."""
    found = find_workload(workload)
    settings = settings_for(found.defaults, asked, where)
    pick_device(settings.device)
    found.check_parameters(settings.model)
    values = {"name": found.name, "workload": workload, "settings": settings, "seeds": seeds}
    return checked(Study, values | options, where)


def start_run(study: Study, out: Path | None = None, command: str | None = None) -> RunFolder:
    """A run folder with the study, the environment and every planned trial as pending."""
    now = datetime.now().astimezone()
    folder = create_run(out, study.name, now)
    trials = plan(study)
    write_json(folder.environment_file, capture(Path.cwd()).model_dump(mode="json"))
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


def run_study(folder: RunFolder, watchers: Sequence[Instrument] = ()) -> None:
    """Runs every trial of a started run, one after another, in this process."""
    run_group(folder, folder.study().trials, watchers)


def run(
    workload: str,
    *,
    seeds: Sequence[int] = (1,),
    out: Path | str | None = None,
    instruments: Sequence[Instrument] = (),
    tensorboard: bool = True,
    save_model: bool = False,
    **settings: Any,
) -> RunFolder:
    """Trains a workload once per seed and returns its run folder; settings as in TrainSpec.

    For example `trainlab.run("fashion-mlp", seeds=(1, 2), lr=0.01).trials()`.
    """
    study = make_study(workload, settings, seeds, tensorboard=tensorboard, save_model=save_model)
    folder = start_run(study, None if out is None else Path(out))
    run_study(folder, instruments)
    return folder
