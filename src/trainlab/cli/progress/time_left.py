"""How far a study has come and how long it will still take, from the trials that have ended."""

import statistics
import time
from collections.abc import Callable, Sequence

from trainlab.record.trial import TrialRecord

FIRST_GUESS_S = 4.0
"""A cost trial, start included, before any has ended: how long training takes says nothing about it."""
LEAST_SHARE = 0.02
"""Of a trial, before its own speed says how long it takes."""

Key = tuple[object, ...]
Ids = tuple[str, ...]
"""Trials of one group."""


class TimeLeft:
    """Times each trial; expects one to take as long as the most similar ones did."""

    def __init__(
        self, trials: Sequence[TrialRecord], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._keys = {trial.id: _likeness(trial) for trial in trials}
        self._waiting = [trial.id for trial in trials]
        self._took: dict[Key, list[float]] = {}
        self._clock = clock
        self._now: Ids = ()
        self._since = 0.0
        self._share = 0.0
        self._done_s = 0.0
        self._unstarted = {trial.id for trial in trials if trial.kind == "cost"}
        self._start_took: list[float] = []
        """Per trial, of the processes started together."""
        self._starting: int = 0
        self.num_trials = len(trials)

    @property
    def number(self) -> int:
        """Which trial runs, from 1."""
        return self.num_trials - len(self._waiting)

    def starting(self, processes: Sequence[Ids]) -> None:
        """Processes for these trials are being started, and run none of them yet."""
        starting = [trial_id for trial_ids in processes for trial_id in trial_ids]
        self._unstarted.difference_update(starting)
        self._starting, self._since = len(starting), self._clock()

    def started(self) -> None:
        """They wait for their turn."""
        took = self._gone_s()
        self._done_s += took
        self._start_took.append(took / self._starting)
        self._starting = 0

    def begins(self, *trial_ids: str) -> None:
        """A trial starts, or several in a row; those planned before that never ran are passed over."""
        passed = self._waiting.index(trial_ids[-1]) + 1
        self._unstarted -= set(self._waiting[:passed])
        self._waiting = self._waiting[passed:]
        self._now, self._since, self._share = trial_ids, self._clock(), 0.0

    def is_at(self, share: float) -> None:
        """How much of the running trial is done."""
        self._share = share

    def ends(self) -> None:
        """What runs has ended."""
        took = self._gone_s()
        self._done_s += took
        for trial_id in self._now:
            for key in self._keys[trial_id]:
                self._took.setdefault(key, []).append(took / len(self._now))
        self._now, self._share = (), 0.0

    def expected_s(self, trial_id: str) -> float | None:
        """How long a trial should take, from the most similar that ended or else from the one that
        runs; None before either is known."""
        keys = self._keys[trial_id]
        for key in keys:
            if key in self._took:
                return statistics.median(self._took[key])
        if self._took and keys[0][0] == "cost":
            return FIRST_GUESS_S
        return None if self._share < LEAST_SHARE else self._gone_s() / self._share

    def left_s(self) -> float | None:
        """All that is still to come; None while nothing is known about some of it."""
        waiting = [self.expected_s(trial_id) for trial_id in self._waiting]
        current = self._current_left_s()
        if current is None or None in waiting:
            return None
        return current + sum(one for one in waiting if one is not None) + self._starts_left_s()

    def share_done(self) -> float:
        """Of the whole study, by time; by number of trials while times are unknown."""
        left = self.left_s()
        if left is None:
            return max(0, self.number - 1 + self._share) / self.num_trials
        done = self._done_s + (self._gone_s() if self._now or self._starting else 0.0)
        return done / (done + left) if done + left else 1.0

    def _current_left_s(self) -> float | None:
        if not self._now:
            return 0.0
        gone = self._gone_s()
        if self._share >= LEAST_SHARE:
            return gone * (1 - self._share) / self._share
        expected = [self.expected_s(trial_id) for trial_id in self._now]
        if None in expected:
            return None
        return max(0.0, sum(one for one in expected if one is not None) - gone)

    def _starts_left_s(self) -> float:
        """For processes still to start; nothing before the first have shown how long that takes."""
        if not self._start_took:
            return 0.0
        each = statistics.median(self._start_took)
        gone = self._gone_s() if self._starting else 0.0
        return max(0.0, self._starting * each - gone) + len(self._unstarted) * each

    def _gone_s(self) -> float:
        """Since the running trial, or the starting of processes, began."""
        return self._clock() - self._since


def _likeness(trial: TrialRecord) -> tuple[Key, ...]:
    """From the most similar trials to the least: same cell, same look, same kind."""
    mode = (trial.cost or {}).get("mode")
    cell = (trial.kind, trial.watch, mode, trial.cell)
    return (cell, cell[:3], cell[:2], cell[:1])
