"""How far a run is, read from its folder alone: records, events and the lease of its driver."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

from trainlab.execute.driver.lease import Driver, holder_of
from trainlab.lab.progress.time_left import TimeLeft
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Event, EventReader
from trainlab.record.trial_record import TrialRecord


@dataclass(frozen=True)
class RunningGroup:
    """Trials that run in one process, or take turns: how far they are."""

    trials: tuple[TrialRecord, ...]
    last: Event | None
    """The last that was heard of their progress."""
    elapsed_s: float


@dataclass(frozen=True)
class Overview:
    """A run at a moment."""

    name: str
    trials: tuple[TrialRecord, ...]
    driver: Driver | None
    """The last one; None for a run from before drivers were recorded."""
    running: tuple[RunningGroup, ...]
    left_s: float | None
    """None while it is not known, and where nobody runs it."""

    @property
    def is_driven(self) -> bool:
        """Whether somebody runs it; taken for granted of a driver on another machine that has not ended."""
        return self.driver is not None and not self.driver.is_dead

    @property
    def is_finished(self) -> bool:
        """Whether no trial is left."""
        return all(trial.is_finished for trial in self.trials)

    def state(self, trial: TrialRecord) -> str:
        """A trial that runs, though nobody runs the run, was interrupted."""
        return "interrupted" if trial.state == "running" and not self.is_driven else trial.state

    def counts(self) -> Mapping[str, int]:
        """Trials by state."""
        return Counter(self.state(trial) for trial in self.trials)

    def in_state(self, state: str) -> list[TrialRecord]:
        """The trials that are in a state."""
        return [trial for trial in self.trials if self.state(trial) == state]


class Onlooker:
    """Looks at a run again and again; nothing in the folder is changed."""

    def __init__(self, run: RunFolder) -> None:
        self._run, self._driver = run, holder_of(run)
        self._now_s = time.time()
        self._trials: dict[str, TrialRecord] = {}
        self._begin()

    def look(self) -> Overview:
        """The run as it is now."""
        record, driver = self._run.study(), holder_of(self._run)
        if driver is not None and (self._driver is None or driver.token != self._driver.token):
            self._begin()  # resumed by another driver
        self._driver = driver
        self._trials |= {
            one: self._run.trial(one).read() for one in record.trials if self._is_open(one)
        }
        for event in self._events.new():
            self._now_s = datetime.fromisoformat(event.at).timestamp()
            if driver is None or event.at[:19] >= driver.begun[:19]:
                self._handle(event)
        self._now_s = time.time()
        overview = Overview(
            name=record.name,
            trials=tuple(self._trials[trial_id] for trial_id in record.trials),
            driver=driver,
            running=(),
            left_s=None,
        )
        if not overview.is_driven:
            return overview
        groups = tuple(self._group(ids) for ids in self._since_s)
        left_s = self._time_left.left_s()
        return replace(overview, running=groups, left_s=left_s)

    def _begin(self) -> None:
        """Forgets what an earlier driver ran: it may have died in the middle of it."""
        self._events = EventReader(self._run.events_folder)
        self._since_s: dict[tuple[str, ...], float] = {}
        self._last: dict[str, Event] = {}
        self._is_starting = False
        self._trials = {one.id: one for one in self._run.trials()}
        self._time_left = TimeLeft(tuple(self._trials.values()), lambda: self._now_s)

    def _is_open(self, trial_id: str) -> bool:
        """Whether its record may still change."""
        return trial_id not in self._trials or not self._trials[trial_id].is_finished

    def _group(self, trial_ids: tuple[str, ...]) -> RunningGroup:
        trials = tuple(self._trials[trial_id] for trial_id in trial_ids)
        told = [self._last[one] for one in trial_ids if one in self._last]
        last = max(told, key=lambda event: event.at, default=None)
        return RunningGroup(trials, last, max(0.0, self._now_s - self._since_s[trial_ids]))

    def _handle(self, event: Event) -> None:
        self._learn_of_new([*event.trials, *chain(*event.groups)])
        match event.kind:
            case "starting":
                self._time_left.starting(event.groups)
                self._is_starting = True
            case "ready" if self._is_starting:
                self._time_left.ready()
                self._is_starting = False
            case "group_begins":
                side_by_side = event.num_side_by_side
                self._time_left.group_begins(*event.trials, num_side_by_side=side_by_side)
                self._since_s[event.trials] = self._now_s
            case "group_ends" if event.trials in self._since_s:
                self._time_left.group_ends(*event.trials)
                del self._since_s[event.trials]
            case "progress" | "epoch":
                self._time_left.progress(event.trials[0], event.share or 0.0)
                self._last[event.trials[0]] = event

    def _learn_of_new(self, trial_ids: Sequence[str]) -> None:
        new = [trial_id for trial_id in trial_ids if trial_id not in self._trials]
        if new:
            trials = [self._run.trial(trial_id).read() for trial_id in new]
            self._trials |= {trial.id: trial for trial in trials}
            self._time_left.plan_more(trials)
