"""study.json: what was asked, how it was resolved, and which trials run together."""

from collections import Counter
from typing import Any, Literal

from pydantic import ValidationError, field_validator

from trainlab.errors import RecordError
from trainlab.record.schema import FileRecord, Record, TrialId, first_problem
from trainlab.spec import Study


class GroupRecord(Record):
    """Trials that one worker runs, as planned."""

    trials: tuple[TrialId, ...]
    is_alone: bool
    """Nothing else may run on the machine meanwhile."""
    bench: str | None = None
    """Groups of one bench take turns."""


class JobsRecord(Record):
    """How many learn trials run side by side; the threads of each, None: torch's choice."""

    number: int
    threads: int | None


class StudyRecord(FileRecord):
    """What was asked and how it was resolved."""

    name: str
    created: str
    trainlab: str
    command: str
    study: dict[str, Any]
    on: str = "local"
    """The executor, as asked."""
    jobs: int | Literal["auto"] = "auto"
    """Learn trials side by side, as asked."""
    side_by_side: JobsRecord | None = None
    """What the jobs became; None before the first learn trial."""
    trial_timeout_s: float | None = None
    """How long a trial may take, as asked."""
    workload_digest: str | None = None
    """SHA-256 of the user's own workload file as it was when the run began; None for other workloads."""
    overridden: dict[str, Any] = {}
    """What the study's file says of settings and factors that were asked for otherwise."""
    groups: tuple[GroupRecord, ...]
    """In the order planned."""

    @field_validator("groups")
    @classmethod
    def _trials_are_distinct(cls, groups: tuple[GroupRecord, ...]) -> tuple[GroupRecord, ...]:
        counts = Counter(trial for group in groups for trial in group.trials)
        if twice := [trial for trial, count in counts.items() if count > 1]:
            raise ValueError(f"has {twice[0]} twice")
        return groups

    @property
    def trials(self) -> tuple[str, ...]:
        """The ids of all trials, in the order planned."""
        return tuple(trial for group in self.groups for trial in group.trials)

    def to_study(self, where: str) -> Study:
        """The study as a value; a setting that this version does not know is left out."""
        try:
            return Study.model_validate(self.study, extra="ignore")
        except ValidationError as error:
            raise RecordError(
                f"{where}: study: {first_problem(error)}; written by another trainlab?"
            ) from None
