"""study.json: what was asked, how it was resolved, and which trials run together."""

from typing import Any

from pydantic import ValidationError

from trainlab.errors import RecordError
from trainlab.record.schema import FileRecord, Record, first_problem
from trainlab.spec import Study


class GroupRecord(Record):
    """Trials that one worker runs, as planned."""

    trials: tuple[str, ...]
    is_alone: bool
    """Nothing else may run on the machine meanwhile."""
    bench: str | None = None
    """Groups of one bench take turns."""


class StudyRecord(FileRecord):
    """What was asked and how it was resolved."""

    name: str
    created: str
    trainlab: str
    command: str
    study: dict[str, Any]
    overridden: dict[str, Any] = {}
    """What the study's file says of settings and factors that were asked for otherwise."""
    groups: tuple[GroupRecord, ...]
    """In the order planned."""

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
