"""What all records of a run folder share. Plain values only: readable without trainlab.

History of `format`; `migrate` reads older ones:
    1 (2026-11-15): first; study, environment, trials with curves.
    2 (2026-11-15): notes are codes with values; an environment per host, named by each trial; attempts;
        the groups of trials that run together.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

FORMAT = 2

TrialId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._=,+-]*$")]
"""Names the trial's folder, and no other place."""


class Record(BaseModel):
    """Base of records: frozen; keys that a later version may have added are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


class FileRecord(Record):
    """A record with a file of its own."""

    format: int = FORMAT


def first_problem(error: ValidationError) -> str:
    """Where a value first breaks its schema, and how."""
    first = error.errors()[0]
    place, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


Value = str | int | float


class Note(Record):
    """What happened, and the values that go into its sentence."""

    code: str
    """The key of its sentence; `text` for a note that an older version wrote in English."""
    values: dict[str, Value] = {}


def note(code: str, **values: Value) -> Note:
    return Note(code=code, values=values)


Json = dict[str, Any]


def migrated(name: str, value: Json) -> Json:
    """The content of a file of that name, as this version would have written it."""
    for number in range(int(value["format"]), FORMAT):
        step = STEPS.get((name, number))
        value = {**(step(value) if step else value), "format": number + 1}
    return value


def _study_1(value: Json) -> Json:
    """Trials were listed one by one; every cost trial ran alone."""
    trials = value.get("trials", [])
    groups = [{"trials": [trial], "is_alone": str(trial).startswith("cost-")} for trial in trials]
    return {**value, "groups": groups}


def _notes_1(value: Json) -> Json:
    """Notes were English sentences."""
    texts = [str(note) for note in value.get("notes", [])]
    return {**value, "notes": [{"code": "text", "values": {"text": text}} for text in texts]}


def _trial_1(value: Json) -> Json:
    """Notes as above; a trial was started at most once."""
    return {**_notes_1(value), "attempt": int(value.get("state") != "pending")}


STEPS: Mapping[tuple[str, int], Callable[[Json], Json]] = {
    ("study.json", 1): _study_1,
    ("trial.json", 1): _trial_1,
    ("limits.json", 1): _notes_1,
}
"""File and the format it is read from; a file without a step is the same in the next format."""
