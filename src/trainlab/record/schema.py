"""What all records of a run folder share. Plain values only: readable without trainlab.

History of `format`; `migrate` reads older ones:
    1 (2026-11-15): first; study, environment, trials with curves.
    2 (2026-11-15): notes are codes with values; an environment per host, named by each trial; attempts;
        the groups of trials that run together.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

FORMAT = 2

TrialId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._=,+-]*$")]
"""Names the trial's folder, and no other place."""


class Record(BaseModel):
    """Base of records: frozen; keys that a later version may have added are ignored."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True
    )


class FileRecord(Record):
    """A record with a file of its own."""

    format: int = FORMAT


def first_problem(error: ValidationError) -> str:
    """Where a value first breaks its schema, and how."""
    first = error.errors()[0]
    place, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
