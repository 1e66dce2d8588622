"""Search: what a script's own text has to do with where its time and memory go."""

from pathlib import Path

from trainlab.record.scripts.watched import GrowingRow, WatchedRecord
from trainlab.watching.finding.growing import Growth
from trainlab.watching.finding.statements import StatementSampler
from trainlab.watching.seeing.watcher import Watcher

FIRST_LOOK, NEXT_LOOK = 10, 25
"""Containers are looked at after so many updates; then again, ever more seldom."""
WARM_STEPS = 3
"""What happens before is start-up."""


class Search:
    """Samples statements, and looks at containers now and then."""

    def __init__(self, script: Path, watcher: Watcher) -> None:
        self._script, self._watcher = script, watcher
        self._growth = Growth(self._script)
        self._sampler: StatementSampler | None = None
        self._next_look = NEXT_LOOK
        self._growing: list[GrowingRow] = []

    def step_ended(self, step: int) -> None:
        """At the end of each."""
        if step == WARM_STEPS:
            self._sampler = StatementSampler(self._script, self._watcher.timeline)
        elif step == FIRST_LOOK:
            self._growth.begin(step)
        elif step == self._next_look:
            self._growing = self._growth.rows(step)
            self._next_look = 2 * step

    def close(self) -> None:
        """The script has ended."""
        if self._sampler is not None:
            self._sampler.close()

    def added_to(self, record: WatchedRecord) -> WatchedRecord:
        """The record with what was found."""
        sampler = self._sampler
        found = {
            "samples": {} if sampler is None else dict(sampler.samples),
            "statements": [] if sampler is None else sampler.rows(),
            "growing": self._growing,
        }
        return record.model_copy(update=found)
