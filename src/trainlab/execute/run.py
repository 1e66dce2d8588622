"""From a study to a run folder: plan it, write down what was asked, run the trials here."""

import shlex
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path

from trainlab import __version__
from trainlab.execute.executors.processes import Watcher, run_fresh
from trainlab.execute.worker import Loader, run_group
from trainlab.machine.environment import capture
from trainlab.plan import plan
from trainlab.record.folder import RunFolder, create_run
from trainlab.record.schema import StudyRecord, TrialRecord
from trainlab.spec import Study
from trainlab.train.moments import Instrument


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
            command=shlex.join(_command()) if command is None else command,
            study=study.model_dump(mode="json"),
            trials=tuple(trial.id for trial in trials),
        )
    )
    for trial in trials:
        folder.trial(trial.id).write(TrialRecord(**trial.model_dump(mode="json")))
    return folder


def _command() -> list[str]:
    """What was typed: where trainlab is installed says nothing, and is nobody's business."""
    program, *words = sys.argv
    name = Path(program).name
    return ["trainlab" if name in ("trainlab", "__main__.py") else name, *words]


def run_study(
    folder: RunFolder,
    watchers: Sequence[Instrument] = (),
    load: Loader | None = None,
    fresh: Watcher | None = None,
    budget_s: float | None = None,
) -> None:
    """Runs every trial of a started run in the order planned: learn trials here, each cost trial in a
    fresh process, of which `fresh` is told. Once the budget is spent none is started."""
    load, start = load or Loader(), time.monotonic()

    def is_over() -> bool:
        return budget_s is not None and time.monotonic() - start > budget_s

    for kind, trials in groupby(folder.trials(), lambda trial: trial.kind):
        if kind == "cost":
            run_fresh(folder, list(trials), fresh, is_over)
            continue
        for trial in trials:
            if is_over():
                return
            run_group(folder, [trial.id], watchers, load)
