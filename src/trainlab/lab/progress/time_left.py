"""How far a study has come and how long it will still take, from the trials that have ended."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainlab.record.trial_record import TrialRecord

FIRST_GUESS_S = 4.0
"""A cost trial, start included, before any has ended: how long training takes says nothing about it."""
MIN_SHARE = 0.02
"""Of a trial, from which on its own speed says how long it takes."""
FIRST_SHARE = 0.1
"""A first word of less comes after a start (tuning, compiling) that says nothing about the speed."""

Key = tuple[object, ...]
TrialIds = tuple[str, ...]
"""Of one group."""


@dataclass
class _Running:
    """A group of trials that runs."""

    since_s: float
    share: float = 0.0
    """How much of it is done."""
    _base: tuple[float, float] | None = None
    """The time and the share from which on its speed counts; its begin where that is not set."""

    def progress(self, share: float, now_s: float) -> None:
        """So much of it is done."""
        if self._base is None and share < FIRST_SHARE:
            self._base = now_s, share
        self.share = share

    def left_s(self, now_s: float) -> float | None:
        """How long it should still take, by its own speed; None where that is not known."""
        since_s, before = self._base or (self.since_s, 0.0)
        if self.share - before < MIN_SHARE:
            return None
        return (1 - self.share) * (now_s - since_s) / (self.share - before)

    def expected_s(self, now_s: float) -> float | None:
        """How long it should take altogether, by its own speed."""
        left_s = self.left_s(now_s)
        return None if left_s is None else now_s - self.since_s + left_s


class TimeLeft:
    """Times each trial; expects one to take as long as the most similar ones did."""

    def __init__(self, trials: Sequence[TrialRecord], clock: Callable[[], float]) -> None:
        self._keys = {trial.id: _similarity_keys(trial) for trial in trials}
        waiting = [trial for trial in trials if not trial.is_finished]
        self._waiting = [trial.id for trial in waiting]
        self._durations_s: dict[Key, list[float]] = {}
        self._clock = clock
        self._running: dict[TrialIds, _Running] = {}
        self._since_s = 0.0
        """When the starting of processes, or the work that is not in `_done_s`, began."""
        self._num_side_by_side = 1
        """Learn trials that run at a time."""
        self._done_s = 0.0
        self._unstarted = {trial.id for trial in waiting if trial.kind == "cost"}
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

    def group_begins(self, *trial_ids: str, num_side_by_side: int = 1) -> None:
        """These trials start, one after the other, beside other groups. Where they measure, those planned
        before that never ran are passed over."""
        if self._is_shared(trial_ids[0]):
            # Those that share the machine are not begun in the order planned.
            passed = set(trial_ids)
        else:
            is_next = trial_ids[-1] in self._waiting  # else it is started once more
            count = self._waiting.index(trial_ids[-1]) + 1 if is_next else 0
            passed = set(self._waiting[:count])
        self._unstarted -= passed
        self._waiting = [trial_id for trial_id in self._waiting if trial_id not in passed]
        self._num_side_by_side = max(self._num_side_by_side, num_side_by_side)
        if not self._running:
            self._since_s = self._clock()
        self._running[trial_ids] = _Running(self._clock())

    def progress(self, trial_id: str, share: float) -> None:
        """How much of a running trial, or of the group that it stands for, is done."""
        for trial_ids, running in self._running.items():
            if trial_id in trial_ids:
                running.progress(share, self._clock())

    def group_ends(self, *trial_ids: str) -> None:
        """These trials have ended; each is taken to have run equally long."""
        duration_s = self._clock() - self._running.pop(trial_ids).since_s
        for trial_id in trial_ids:
            for key in self._keys[trial_id]:
                self._durations_s.setdefault(key, []).append(duration_s / len(trial_ids))
        self._done_s += self._elapsed_s()
        self._since_s = self._clock()

    def expected_s(self, trial_id: str) -> float | None:
        """How long a trial should take, from the most similar that ended or else from the one that
        runs; None before either is known."""
        keys = self._keys[trial_id]
        for key in keys:
            if key in self._durations_s:
                return statistics.median(self._durations_s[key])
        learns = any(self._is_shared(running[0]) for running in self._running)
        if keys[0][0] == "cost" and (self._durations_s or learns):
            return FIRST_GUESS_S
        now_s = self._clock()
        running = [(one.expected_s(now_s), len(ids)) for ids, one in self._running.items()]
        known = [group_s / number for group_s, number in running if group_s is not None]
        return statistics.median(known) if known else None

    def left_s(self) -> float | None:
        """All that is still to come; None while nothing is known about some of it."""
        running = [self._running_left_s(trial_ids) for trial_ids in self._running]
        known = [left_s for left_s in running if left_s is not None]
        shared = [trial_id for trial_id in self._waiting if self._is_shared(trial_id)]
        alone = [trial_id for trial_id in self._waiting if not self._is_shared(trial_id)]
        shared_s, alone_s = self._expected_sum_s(shared), self._expected_sum_s(alone)
        if len(known) < len(running) or shared_s is None or alone_s is None:
            return None
        # No sooner than the one that takes longest, however many run beside it.
        together_s = max([*known, (sum(known) + shared_s) / self._num_side_by_side])
        return together_s + alone_s + self._starts_left_s()

    def share_done(self) -> float:
        """Of the whole study, by time; by number of trials while times are unknown."""
        left_s = self.left_s()
        if left_s is None:
            shares = sum(one.share for one in self._running.values())
            return max(0.0, self.number - len(self._running) + shares) / self.num_trials
        is_busy = self._running or self._num_starting
        done_s = self._done_s + (self._elapsed_s() if is_busy else 0.0)
        return done_s / (done_s + left_s) if done_s + left_s else 1.0

    def _is_shared(self, trial_id: str) -> bool:
        """Whether it may run beside others: one that learns."""
        return self._keys[trial_id][0][0] == "learn"

    def _running_left_s(self, trial_ids: TrialIds) -> float | None:
        running, now_s = self._running[trial_ids], self._clock()
        if (left_s := running.left_s(now_s)) is not None:
            return left_s
        expected_s = self._expected_sum_s(trial_ids)
        return None if expected_s is None else max(0.0, expected_s - (now_s - running.since_s))

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
