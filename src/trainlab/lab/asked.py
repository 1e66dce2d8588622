"""What a question asks for, as far as it can be seen before torch is there."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainlab.record.run_folder import check_unused
from trainlab.resolve import resolve
from trainlab.spec import Question, Study
from trainlab.spec.facts import WorkloadFacts
from trainlab.spec.question import asked_values, check_values
from trainlab.spec.settings import DATA_CHOICES
from trainlab.workloads.catalogue import BUILTIN
from trainlab.workloads.reference import check_reference

if TYPE_CHECKING:
    from trainlab.execute.jobs import AskedJobs
    from trainlab.record.study_record import StudyRecord


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

    jobs = check_without_torch(question, where, out=out, on=on, jobs=jobs, many=many, given={})
    study = resolve(question, facts_of(question), where, many=many)
    check_jobs(jobs, on, study)
    return study


def check_without_torch(
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
    check_sendable(jobs, on, has_workload=bool(given), has_instruments=bool(instruments))
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


def threads_expected(question: Question, jobs: "AskedJobs") -> int | None:
    """Of the processes that learn trials will run in, as far as that shows before torch is there."""
    from trainlab.execute.jobs import likely_threads

    several = question.seeds != 1 or question.vary or question.cells
    if question.learn and jobs != 1 and several:
        return likely_threads(jobs, asked_values(question, "device"))
    asked = asked_values(question, "threads")
    return asked[0] if asked and isinstance(asked[0], int) else None


def threads_recorded(record: "StudyRecord") -> int | None:
    """The same for a run that goes on."""
    from trainlab.execute.jobs import likely_threads

    if record.side_by_side is not None:
        return record.side_by_side.threads
    return likely_threads(record.jobs, ()) if record.jobs not in ("auto", 1) else None


def facts_of(
    question: Question, ask: "Callable[[str], WorkloadFacts] | None" = None
) -> WorkloadFacts:
    """A built-in workload's facts are in the catalogue; a user's own workload is loaded for them, here or
    by whom we ask."""
    if question.workload in BUILTIN:
        return BUILTIN[question.workload].facts
    if ask is None:
        from trainlab.train.loader import Loader

        return Loader().workload(question.workload).facts
    return ask(question.workload)
