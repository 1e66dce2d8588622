"""What is left of a run that was cut short: finished trials never run twice."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from trainlab.errors import WorkloadError
from trainlab.execute.benches.bench import has_run
from trainlab.execute.run import planned_trial
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import GroupRecord, StudyRecord
from trainlab.spec.facts import AS_OBJECT, is_script
from trainlab.workloads.reference import file_digest


def unfinished_groups(run: RunFolder) -> tuple[Group, ...]:
    """The groups that are still to run, without their finished trials, in the order planned.

    Benches that were added later stand beside those planned at first. Where one is left, those that have
    run come along: how many there are says which would be added next.
    """
    record = run.study()
    benches = [group for group in record.groups if group.bench is not None]
    left: list[Group] = []
    for group in record.groups:
        if group.bench is None:
            left += _without_finished(run, group)
        elif benches:
            whole = [_group(run, member, member.trials) for member in benches]
            left += whole if _is_bench_left(run, whole) else []
            benches = []
    return tuple(left)


def check_resumable(run: RunFolder, record: StudyRecord, *, allow_changed: bool) -> None:
    """Refuses a run whose workload is not to be had again, or is another one now. Runs none of it."""
    study = record.to_study(str(run.study_file))
    workload = study.workload
    if study.script is not None and study.script.from_inside:
        rule = (
            "is of a loop that trainlab.watch watched from inside, and only that can run it again"
        )
        raise WorkloadError(f"{run.path}: {rule}; run the loop anew")
    if workload.endswith(AS_OBJECT):
        raise WorkloadError(
            f"{run.path}: its workload was an object of a Python session; "
            "name it as FILE.py:NAME in a new run"
        )
    if record.workload_digest is None or allow_changed:
        return
    now = file_digest(workload)
    place = workload if is_script(workload) else workload.rpartition(":")[0]
    if now is None:
        raise WorkloadError(
            f"{place}: no such file; resume the run from the folder it was started in"
        )
    if now != record.workload_digest:
        raise WorkloadError(
            f"{place}: has changed since the run began; put it back as it was, or add --allow-changed"
        )


def _without_finished(run: RunFolder, group: GroupRecord) -> list[Group]:
    ids = [one for one in group.trials if not run.trial(one).read().is_finished]
    return [_group(run, group, ids)] if ids else []


def _is_bench_left(run: RunFolder, groups: Sequence[Group]) -> bool:
    by_bench = groupby(groups, lambda group: group.bench)
    return not all(has_run(run, list(members)) for _, members in by_bench)


def _group(run: RunFolder, group: GroupRecord, trial_ids: Iterable[str]) -> Group:
    trials = tuple(planned_trial(run.trial(trial_id)) for trial_id in trial_ids)
    return Group(trials=trials, is_alone=group.is_alone, bench=group.bench)
