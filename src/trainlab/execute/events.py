"""Writes what happens in a run to this process's own file of events in the run folder."""

import os
import socket
from datetime import UTC, datetime

from trainlab.record.files import LineWriter, writing
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Event


class EventWriter:
    """This process's file of events, created with the first event."""

    def __init__(self, run: RunFolder) -> None:
        self._path = run.events_folder / f"{socket.gethostname()}-{os.getpid()}.jsonl"
        self._lines: LineWriter | None = None

    def write(self, event: Event) -> None:
        """Appends an event, with the time."""
        if self._lines is None:
            with writing(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lines = LineWriter(self._path, append=True)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._lines.write({**event.model_dump(mode="json", exclude_defaults=True), "at": now})

    def close(self) -> None:
        """Closes the file, if there is one."""
        if self._lines is not None:
            self._lines.close()
