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
