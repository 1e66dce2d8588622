"""Reads what older versions wrote: one step per file and format, each on plain JSON values."""

from collections.abc import Callable, Mapping
from typing import Any

from trainlab.record.schema import FORMAT

Json = dict[str, Any]


def migrated(name: str, value: Json) -> Json:
    """The content of a file of that name, as this version would have written it."""
    for number in range(int(value["format"]), FORMAT):
        step = STEPS.get((name, number))
        value = {**(step(value) if step else value), "format": number + 1}
    return value


def _study_1(value: Json) -> Json:
    """Trials were listed one by one; all that were measured were alone."""
    trials = value.get("trials", [])
    groups = [{"trials": [trial], "is_alone": str(trial).startswith("cost-")} for trial in trials]
    return {**value, "groups": groups}


def _trial_1(value: Json) -> Json:
    """Notes were English sentences; a trial was started at most once."""
    notes = [_text(note) for note in value.get("notes", [])]
    return {**value, "notes": notes, "attempt": int(value.get("state") != "pending")}


def _limits_1(value: Json) -> Json:
    return {**value, "notes": [_text(note) for note in value.get("notes", [])]}


def _text(note: Any) -> Json:
    return {"code": "text", "values": {"text": str(note)}}


STEPS: Mapping[tuple[str, int], Callable[[Json], Json]] = {
    ("study.json", 1): _study_1,
    ("trial.json", 1): _trial_1,
    ("limits.json", 1): _limits_1,
}
"""File and the format it is read from; a file without a step is the same in the next format."""
