"""Events: the progress of a run, as lines of `events/*.jsonl`.

Each process that reports events writes a file of its own, so that no two ever write to the same file,
also on a network file system. Whoever watches a run reads them all and needs nothing else. Records do
not depend on events: a run without them is complete.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Literal

from trainlab.errors import RecordError
from trainlab.record.files import read_bytes
from trainlab.record.schema import Record
from trainlab.spec.base import plain_value

Kind = Literal["starting", "ready", "group_begins", "group_ends", "progress", "epoch"]


class Event(Record):
    """One thing that happened. Fields that do not apply to its kind are left out of its line."""

    kind: Kind
    """`starting` and `ready`: processes for `groups` are started, and are past their imports."""
    at: str = ""
    """When, in UTC, by the clock of the host that writes it."""
    groups: tuple[tuple[str, ...], ...] = ()
    """Trials by group."""
    trials: tuple[str, ...] = ()
    """Of the group that begins or ends, or the one trial that made progress."""
    num_side_by_side: int = 1
    """Of a group that begins: how many such groups run at a time."""
    share: float | None = None
    """How much of the trial is done."""
    epoch: int | None = None
    num_epochs: int | None = None
    metrics: dict[str, float | None] = {}
    """The last known; null where not finite."""
    time_s: float | None = None
    """Training and testing so far."""


class EventReader:
    """Reads what has been added since the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def new(self) -> list[Event]:
        """In the order of their times; lines that are no events of ours are passed over."""
        paths = sorted(self._folder.glob("*.jsonl"))
        return sorted(
            (event for path in paths for event in self._read(path)), key=lambda event: event.at
        )

    def _read(self, path: Path) -> list[Event]:
        start = self._offsets.get(path, 0)
        try:
            content = read_bytes(path, start)
        except RecordError:
            return []
        complete = content[: content.rfind(b"\n") + 1]
        self._offsets[path] = start + len(complete)
        return [event for line in complete.splitlines() if (event := _event(line)) is not None]


def _event(line: bytes) -> Event | None:
    try:
        event = Event.model_validate(plain_value(json.loads(line)))
        datetime.fromisoformat(event.at)
    except (ValueError, RecursionError):
        return None
    is_of_trials = event.kind not in ("starting", "ready")
    return None if is_of_trials and not event.trials else event
