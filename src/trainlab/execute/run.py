"""A run as it is planned: its folder, with what was asked and every trial as pending."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from trainlab import __version__
from trainlab.plan import Group, Trial, further_groups, plan, trials_of
from trainlab.record.run_folder import RunFolder, TrialFolder, create_run
from trainlab.record.study_record import GroupRecord, StudyRecord
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Study, checked
from trainlab.workloads.reference import file_digest

SESSIONS = ("", "-", "-c", "ipykernel_launcher.py", "ipython")
"""What runs where Python is typed in: the words after it say nothing of the run."""
IsOver = Callable[[], bool]
"""Whether no further group is to be started."""


def start_run(
    study: Study,
    out: Path | None = None,
    command: str | None = None,
    overridden: Mapping[str, Any] | None = None,
    on: str = "local",
    jobs: int | Literal["auto"] = "auto",
    trial_timeout_s: float | None = None,
) -> RunFolder:
    """A new run folder; `command` is what was typed, where it was not typed here. `on`, `jobs` and the time
    a trial may take are kept for whoever resumes the run."""
    now = datetime.now().astimezone()
    groups = plan(study)
    folder = create_run(out, study.name, now)
    _write_trials(folder, groups)
    # Last: a folder with a study has all its trials.
    folder.write_study(
        StudyRecord(
            name=study.name,
            created=now.isoformat(timespec="seconds"),
            trainlab=__version__,
            command=shlex.join(_command()) if command is None else command,
            study=study.model_dump(mode="json"),
            on=on,
            jobs=jobs,
            trial_timeout_s=trial_timeout_s,
            workload_digest=file_digest(study.workload),
            overridden=dict(overridden or {}),
            groups=_records(groups),
        )
    )
    return folder


def add_groups(run: RunFolder, groups: Sequence[Group]) -> None:
    """Plans further groups in a run that has started, as pending."""
    _write_trials(run, groups)
    record = run.study()
    run.write_study(record.model_copy(update={"groups": record.groups + _records(groups)}))


def add_seeds(run: RunFolder, num_seeds: int) -> tuple[Group, ...]:
    """Adds seeds to a study up to so many: their trials, pending, which are returned by group."""
    record = run.study()
    study = record.to_study(str(run.study_file))
    added = range(len(study.seeds) + 1, num_seeds + 1)
    study = study.model_copy(update={"seeds": (*study.seeds, *added)})
    groups = further_groups(study, added)
    _write_trials(run, groups)
    # Seeds and groups at once: a driver that dies here must not leave one without the other.
    changes = {"study": study.model_dump(mode="json"), "groups": record.groups + _records(groups)}
    run.write_study(record.model_copy(update=changes))
    return groups


def add_cells(run: RunFolder, study: Study, groups: Sequence[Group]) -> None:
    """A study that has got further cells, in a run that has started: the groups that measure them."""
    _write_trials(run, groups)
    record = run.study()
    changes = {"study": study.model_dump(mode="json"), "groups": record.groups + _records(groups)}
    run.write_study(record.model_copy(update=changes))


def planned_trial(folder: TrialFolder) -> Trial:
    """A trial as it was planned, from its record."""
    values = folder.read().model_dump(include=set(Trial.model_fields))
    return checked(Trial, values, str(folder.trial_file))


def _write_trials(run: RunFolder, groups: Sequence[Group]) -> None:
    run.write_trials(TrialRecord(**trial.model_dump(mode="json")) for trial in trials_of(groups))


def _records(groups: Sequence[Group]) -> tuple[GroupRecord, ...]:
    return tuple(
        GroupRecord(trials=group.ids, is_alone=group.is_alone, bench=group.bench)
        for group in groups
    )


def _command() -> list[str]:
    """What was typed: where trainlab is installed says nothing, and is nobody's business."""
    program, *words = sys.argv
    name = Path(program).name
    if name in SESSIONS:
        return ["python"]
    return ["trainlab" if name in ("trainlab", "__main__.py") else name, *words]
