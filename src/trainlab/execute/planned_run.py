"""A run as it is planned: its folder, with what was asked and every trial as pending."""

import os
import shlex
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from trainlab import __version__
from trainlab.errors import RecordError, WorkloadError
from trainlab.machine.host import private_folder
from trainlab.plan import Group, Trial, further_groups, plan, trials_of
from trainlab.record.run_folder import RunFolder, TrialFolder, create_run
from trainlab.record.study_record import GroupRecord, StudyRecord
from trainlab.record.trial_record import PLANNED, Failure, State, TrialRecord
from trainlab.spec import CostSpec, Study, checked
from trainlab.spec.facts import AS_OBJECT, is_script
from trainlab.workloads.reference import BUILTIN, file_digest

SESSIONS = ("", "-", "-c", "ipykernel_launcher.py", "ipython")
"""What runs where Python is typed in: the words after it say nothing of the run."""
IsOver = Callable[[], bool]
"""Whether no further group is to be started."""


def start_run(
    study: Study, out: Path | None = None, command: str | None = None, **asked: Any
) -> RunFolder:
    """A new run folder; `command` is what was typed, where it was not typed here. What else was asked, as
    `on` and `jobs`, is kept for whoever resumes the run."""
    now = datetime.now().astimezone()
    if command is None:
        # Where trainlab is installed says nothing, and is nobody's business.
        program, *words = sys.argv
        name = Path(program).name
        name = "trainlab" if name in ("trainlab", "__main__.py") else name
        command = "python" if name in SESSIONS else shlex.join([name, *words])
    groups = plan(study)
    folder = create_run(out, study.name, now)
    _write_trials(folder, groups)
    # Last: a folder with a study has all its trials.
    folder.write_study(
        StudyRecord(
            name=study.name,
            created=now.isoformat(timespec="seconds"),
            trainlab=__version__,
            command=command,
            study=study.model_dump(mode="json"),
            workload_digest=file_digest(study.workload),
            groups=_records(groups),
            **asked,
        )
    )
    trust(folder)
    return folder


def add_groups(run: RunFolder, groups: Sequence[Group], study: Study | None = None) -> None:
    """Plans further groups in a run that has started, as pending; where they come of further seeds or
    cells, of the study that has them."""
    _write_trials(run, groups)
    record = run.study()
    # Both at once: a driver that dies here must not leave one without the other.
    asked = record.study if study is None else study.model_dump(mode="json")
    changes = {"study": asked, "groups": record.groups + _records(groups)}
    run.write_study(record.model_copy(update=changes))


def add_seeds(run: RunFolder, num_seeds: int) -> tuple[Group, ...]:
    """Adds seeds to a study up to so many: their trials, pending, which are returned by group."""
    study = run.study().to_study(str(run.study_file))
    added = range(len(study.seeds) + 1, num_seeds + 1)
    study = study.model_copy(update={"seeds": (*study.seeds, *added)})
    groups = further_groups(study, added)
    add_groups(run, groups, study)
    return groups


def planned_trial(folder: TrialFolder) -> Trial:
    """A trial as it was planned, from its record; what this version does not know of how a cost is measured
    is left out, as of a study."""
    values = folder.read().model_dump(include=PLANNED)
    if cost := values["cost"]:
        values["cost"] = {n: v for n, v in cost.items() if n in CostSpec.model_fields}
    return checked(Trial, values, str(folder.trial_file))


def _write_trials(run: RunFolder, groups: Sequence[Group]) -> None:
    for trial in trials_of(groups):
        record = TrialRecord(**trial.model_dump(mode="json"))
        run.trial(trial.id).write(record, synced=False)


def _records(groups: Sequence[Group]) -> tuple[GroupRecord, ...]:
    return tuple(
        GroupRecord(trials=group.ids, is_alone=group.is_alone, bench=group.bench)
        for group in groups
    )


def mark_interrupted(run: RunFolder) -> None:
    """Trials that were running when their driver died are recorded as interrupted."""
    end_left(map(run.trial, run.study().trials), ("running",), "interrupted")


def end_left(
    folders: Iterable[TrialFolder],
    states: Container[State],
    state: State,
    error: Failure | None = None,
) -> None:
    """Records the end of those trials that stand so, whose process could not."""
    for folder in folders:
        if (record := folder.read()).state in states:
            folder.end(record.model_copy(update={"state": state, "error": error}))


def has_run(run: RunFolder, members: Sequence[Group]) -> bool:
    """Whether every trial of a bench is done. A bench that was cut short is run again as a whole: its
    figures are ratios within rounds, which all of its processes must share."""
    trials = [run.trial(trial_id).read() for group in members for trial_id in group.ids]
    return all(trial.state == "done" for trial in trials)


# What is left of a run that was cut short: finished trials never run twice.


def unfinished_groups(run: RunFolder) -> tuple[Group, ...]:
    """The groups that are still to run, without their finished trials, in the order planned. Benches that
    were added later stand beside those planned at first; where one is left, those that have run come along:
    how many there are says which would be added next."""
    record = run.study()
    benches = [group for group in record.groups if group.bench is not None]
    left: list[Group] = []
    for group in record.groups:
        if group.bench is None:
            ids = [one for one in group.trials if not run.trial(one).read().is_finished]
            left += [_group(run, group, ids)] if ids else []
        elif benches:
            whole = [_group(run, member, member.trials) for member in benches]
            left += [] if has_run(run, whole) else whole
            benches = []
    return tuple(left)


# Resuming a run executes what its records name. Who owns the folder says little: one that came in an
# archive belongs to whoever unpacked it. So which runs a user has started is kept where only she can write.


def trust(run: RunFolder) -> None:
    """From now on this user resumes the run unasked, as long as its folder stays where it is."""
    with (
        suppress(RecordError, OSError),
        (private_folder("runs") / "trusted.txt").open("a") as lines,
    ):
        lines.write(f"{run.path.resolve()}\n")


def has_trust(run: RunFolder) -> bool:
    with suppress(RecordError, OSError):
        folders = (private_folder("runs") / "trusted.txt").read_text().splitlines()
        return str(run.path.resolve()) in folders and run.study_file.stat().st_uid == os.getuid()
    return False


def code_of(run: RunFolder) -> str:
    """What a run executes beside trainlab: a file, a module or a cluster; empty where nothing."""
    record = run.study()
    study = record.to_study(str(run.study_file))
    own = "" if study.workload in BUILTIN else study.workload.rpartition(":")[0] or study.workload
    own = own if study.script is None else study.script.path
    return own or ("" if record.on in ("local", "processes", "inline") else record.on)


def check_resumable(
    run: RunFolder, record: StudyRecord, *, allow_changed: bool, is_trusted: bool
) -> None:
    """Refuses a run whose workload is not to be had again, is another one now, or may be somebody else's.
    Runs none of it."""
    study = record.to_study(str(run.study_file))
    workload = study.workload
    if study.script is not None and study.script.from_inside:
        rule = "is of a loop that trainlab.watch watched from inside, and only that can run it"
        raise WorkloadError(f"{run.path}: {rule} again; run the loop anew")
    if workload.endswith(AS_OBJECT):
        remedy = "name it as FILE.py:NAME in a new run"
        raise WorkloadError(f"{run.path}: its workload was an object of a Python session; {remedy}")
    if not (is_trusted or has_trust(run)) and (code := code_of(run)):
        rule = f"was not started by you from here, and resuming it runs {code}"
        raise WorkloadError(f"{run.path}: {rule}; read that first, then add --trust")
    if others := {trial.workload for trial in run.trials()} - {workload}:
        rule = f"is of {workload}, but has trials of {min(others)}; copy the run folder again"
        raise WorkloadError(f"{run.path}: {rule}")
    if record.workload_digest is None or allow_changed:
        return
    now = file_digest(workload)
    place = workload if is_script(workload) else workload.rpartition(":")[0]
    if now is None:
        rule = "no such file; resume the run from the folder it was started in"
        raise WorkloadError(f"{place}: {rule}")
    if now != record.workload_digest:
        remedy = "put it back as it was, or add --allow-changed"
        raise WorkloadError(f"{place}: has changed since the run began; {remedy}")


def _group(run: RunFolder, group: GroupRecord, trial_ids: Iterable[str]) -> Group:
    trials = tuple(planned_trial(run.trial(trial_id)) for trial_id in trial_ids)
    return Group(trials=trials, is_alone=group.is_alone, bench=group.bench)
