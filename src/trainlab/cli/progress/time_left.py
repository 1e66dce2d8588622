"""How far a study has come and how long it will still take, from the trials that have ended."""

import statistics
from collections.abc import Callable, Sequence

from trainlab.record.trial import TrialRecord

FIRST_GUESS_S = 4.0
"""A cost trial, start included, before any has ended: how long training takes says nothing about it."""
MIN_SHARE = 0.02
"""Of a trial, from which on its own speed says how long it takes."""

Key = tuple[object, ...]
TrialIds = tuple[str, ...]
"""Of one group."""


class TimeLeft:
    """Times each trial; expects one to take as long as the most similar ones did."""

    def __init__(self, trials: Sequence[TrialRecord], clock: Callable[[], float]) -> None:
        self._keys = {trial.id: _similarity_keys(trial) for trial in trials}
        self._waiting = [trial.id for trial in trials]
        self._durations_s: dict[Key, list[float]] = {}
        self._clock = clock
        self._running: TrialIds = ()
        self._since_s = 0.0
        """When the running group, or the starting of processes, began."""
        self._share = 0.0
        self._done_s = 0.0
        self._unstarted = {trial.id for trial in trials if trial.kind == "cost"}
        self._start_durations_s: list[float] = []
        """Per trial, of the processes started together."""
        self._num_starting = 0
        self.num_trials = len(trials)

    def plan_more(self, trials: Sequence[TrialRecord]) -> None:
        """Trials that were planned after the start."""
        self._keys |= {trial.id: _similarity_keys(trial) for trial in trials}
        # They run next.
        self._waiting = [trial.id for trial in trials] + self._waiting
        self.num_trials += len(trials)

    @property
    def number(self) -> int:
        """Which trial runs, from 1."""
        return self.num_trials - len(self._waiting)

    def starting(self, groups: Sequence[TrialIds]) -> None:
        """Processes for these groups are being started, and run no trial yet."""
        trial_ids = [trial_id for group in groups for trial_id in group]
        self._unstarted.difference_update(trial_ids)
        self._num_starting, self._since_s = len(trial_ids), self._clock()

    def ready(self) -> None:
        """The processes have started and wait for their turn."""
        duration_s = self._elapsed_s()
        self._done_s += duration_s
        self._start_durations_s.append(duration_s / self._num_starting)
        self._num_starting = 0

    def group_begins(self, *trial_ids: str) -> None:
        """These trials start, one after the other; those planned before that never ran are passed over."""
        is_next = trial_ids[-1] in self._waiting  # else it is started once more
        passed = self._waiting.index(trial_ids[-1]) + 1 if is_next else 0
        self._unstarted -= set(self._waiting[:passed])
        self._waiting = self._waiting[passed:]
        self._running, self._since_s, self._share = trial_ids, self._clock(), 0.0

    def progress(self, share: float) -> None:
        """How much of the running trial is done."""
        self._share = share

    def group_ends(self) -> None:
        """The running trials have ended; each is taken to have run equally long."""
        duration_s = self._elapsed_s()
        self._done_s += duration_s
        for trial_id in self._running:
            for key in self._keys[trial_id]:
                self._durations_s.setdefault(key, []).append(duration_s / len(self._running))
        self._running, self._share = (), 0.0

    def expected_s(self, trial_id: str) -> float | None:
        """How long a trial should take, from the most similar that ended or else from the one that
        runs; None before either is known."""
        keys = self._keys[trial_id]
        for key in keys:
            if key in self._durations_s:
                return statistics.median(self._durations_s[key])
        if self._durations_s and keys[0][0] == "cost":
            return FIRST_GUESS_S
        return None if self._share < MIN_SHARE else self._elapsed_s() / self._share

    def left_s(self) -> float | None:
        """All that is still to come; None while nothing is known about some of it."""
        running_s, waiting_s = self._running_left_s(), self._expected_sum_s(self._waiting)
        if running_s is None or waiting_s is None:
            return None
        return running_s + waiting_s + self._starts_left_s()

    def share_done(self) -> float:
        """Of the whole study, by time; by number of trials while times are unknown."""
        left_s = self.left_s()
        if left_s is None:
            return max(0, self.number - 1 + self._share) / self.num_trials
        is_busy = self._running or self._num_starting
        done_s = self._done_s + (self._elapsed_s() if is_busy else 0.0)
        return done_s / (done_s + left_s) if done_s + left_s else 1.0

    def _running_left_s(self) -> float | None:
        if not self._running:
            return 0.0
        elapsed_s = self._elapsed_s()
        if self._share >= MIN_SHARE:
            return elapsed_s * (1 - self._share) / self._share
        expected_s = self._expected_sum_s(self._running)
        return None if expected_s is None else max(0.0, expected_s - elapsed_s)

    def _expected_sum_s(self, trial_ids: Sequence[str]) -> float | None:
        expected = [self.expected_s(trial_id) for trial_id in trial_ids]
        known = [duration_s for duration_s in expected if duration_s is not None]
        return sum(known) if len(known) == len(expected) else None

    def _starts_left_s(self) -> float:
        """For processes still to start; nothing before the first have shown how long that takes."""
        if not self._start_durations_s:
            return 0.0
        each_s = statistics.median(self._start_durations_s)
        elapsed_s = self._elapsed_s() if self._num_starting else 0.0
        return max(0.0, self._num_starting * each_s - elapsed_s) + len(self._unstarted) * each_s

    def _elapsed_s(self) -> float:
        return self._clock() - self._since_s


def _similarity_keys(trial: TrialRecord) -> tuple[Key, ...]:
    """From the most similar trials to the least: same cell, same mode, same watch, same kind."""
    cell = (trial.kind, trial.watch, trial.mode, trial.cell)
    return (cell, cell[:3], cell[:2], cell[:1])
