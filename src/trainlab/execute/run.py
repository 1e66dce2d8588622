"""Starts a run: its folder, with what was asked and every planned trial as pending."""

import shlex
import sys
from datetime import datetime
from pathlib import Path

from trainlab import __version__
from trainlab.plan import plan
from trainlab.record.folder import RunFolder, create_run
from trainlab.record.study import GroupRecord, StudyRecord
from trainlab.record.trial import TrialRecord
from trainlab.spec import Study


def start_run(study: Study, out: Path | None = None, command: str | None = None) -> RunFolder:
    """A new run folder; `command` is what was typed, where it was not typed here."""
    now = datetime.now().astimezone()
    groups = plan(study)
    folder = create_run(out, study.name, now)
    for group in groups:
        for trial in group.trials:
            folder.trial(trial.id).write(TrialRecord(**trial.model_dump(mode="json")))
    # Last: a folder with a study has all its trials.
    folder.write_study(
        StudyRecord(
            name=study.name,
            created=now.isoformat(timespec="seconds"),
            trainlab=__version__,
            command=shlex.join(_command()) if command is None else command,
            study=study.model_dump(mode="json"),
            groups=tuple(GroupRecord(trials=one.ids, is_alone=one.is_alone) for one in groups),
        )
    )
    return folder


def _command() -> list[str]:
    """What was typed: where trainlab is installed says nothing, and is nobody's business."""
    program, *words = sys.argv
    name = Path(program).name
    return ["trainlab" if name in ("trainlab", "__main__.py") else name, *words]
