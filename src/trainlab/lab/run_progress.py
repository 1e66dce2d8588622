"""How far a run is, read from its folder alone: records, events and the lease of its driver."""

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any, Literal

from rich.cells import cell_len

from trainlab.execute.lease import Driver, holder_of
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Event, EventReader
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Study
from trainlab.words import WORDS, Words
from trainlab.words.error_lines import error_line
from trainlab.words.numbers import metric_value

Activity = Literal["starting_torch", "reading_records", "counting_decided"]
"""What takes long beside the trials."""


class Watcher:
    """Is told what happens while a question is answered; this one ignores it all."""

    def status(self, activity: Activity) -> AbstractContextManager[object]:
        """Entered during an activity that takes long."""
        return nullcontext()

    def preparing(self) -> AbstractContextManager[object]:
        """Entered while the machine is checked and data is fetched; `downloads` is called meanwhile."""
        return nullcontext()

    def downloads(self, name: str, done: int, total: int | None) -> None:
        """`done` bytes of a file have been downloaded, of `total` where that is known."""

    def planned(self, study: Study) -> None:
        """All checks have passed; this is what will be run."""

    def added(self, num_open: int, num_seeds: int) -> None:
        """So many comparisons are open; seeds are added up to `num_seeds`."""

    def gave_up(self, num_hopeless: int) -> None:
        """So many comparisons are open that seeds cannot decide; none is added for them."""

    def watching(self, driver: str) -> None:
        """The run has a driver on another machine; whether it is alive will be seen in some seconds."""

    def resumed(self, num_left: int, num_trials: int) -> None:
        """A run goes on: so many of its trials are left to run."""

    def running(self, run: RunFolder) -> AbstractContextManager[object]:
        """Entered while trials run; the events in the run folder say how far they are."""
        return nullcontext()


# How far a study has come and how long it will still take, from the trials that have ended.

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
        self.trials: dict[str, TrialRecord] = {}
        self._begin()

    def look(self) -> Overview:
        """The run as it is now."""
        record, driver = self._run.study(), holder_of(self._run)
        if driver is not None and (self._driver is None or driver.token != self._driver.token):
            self._begin()  # resumed by another driver
        self._driver = driver
        self.trials |= {
            one: self._run.trial(one).read() for one in record.trials if self._is_open(one)
        }
        for _ in self.new_events():
            pass
        overview = Overview(
            name=record.name,
            trials=tuple(self.trials[trial_id] for trial_id in record.trials),
            driver=driver,
            running=(),
            left_s=None,
        )
        if not overview.is_driven:
            return overview
        groups = tuple(self._group(ids) for ids in self._since_s)
        left_s = self.time_left.left_s()
        return replace(overview, running=groups, left_s=left_s)

    def new_events(self) -> Iterator[Event]:
        """What has happened since, each event taken into account before it is handed on."""
        driver = self._driver
        for event in self._events.new():
            self._now_s = datetime.fromisoformat(event.at).timestamp()
            if driver is None or event.at[:19] >= driver.begun[:19]:
                self._handle(event)
                yield event
        self._now_s = time.time()

    def _begin(self) -> None:
        """Forgets what an earlier driver ran: it may have died in the middle of it."""
        self._events = EventReader(self._run.events_folder)
        self._since_s: dict[tuple[str, ...], float] = {}
        self._last: dict[str, Event] = {}
        self._is_starting = False
        self.trials = {one.id: one for one in self._run.trials()}
        self.time_left = TimeLeft(tuple(self.trials.values()), lambda: self._now_s)

    def _is_open(self, trial_id: str) -> bool:
        """Whether its record may still change."""
        return trial_id not in self.trials or not self.trials[trial_id].is_finished

    def _group(self, trial_ids: tuple[str, ...]) -> RunningGroup:
        trials = tuple(self.trials[trial_id] for trial_id in trial_ids)
        told = [self._last[one] for one in trial_ids if one in self._last]
        last = max(told, key=lambda event: event.at, default=None)
        return RunningGroup(trials, last, max(0.0, self._now_s - self._since_s[trial_ids]))

    def _handle(self, event: Event) -> None:
        self.learn_of_new([*event.trials, *chain(*event.groups)])
        match event.kind:
            case "starting":
                self.time_left.starting(event.groups)
                self._is_starting = True
            case "ready" if self._is_starting:
                self.time_left.ready()
                self._is_starting = False
            case "group_begins":
                side_by_side = event.num_side_by_side
                self.time_left.group_begins(*event.trials, num_side_by_side=side_by_side)
                self._since_s[event.trials] = self._now_s
            case "group_ends" if event.trials in self._since_s:
                self.time_left.group_ends(*event.trials)
                del self._since_s[event.trials]
            case "progress" | "epoch":
                self.time_left.progress(event.trials[0], event.share or 0.0)
                self._last[event.trials[0]] = event

    def learn_of_new(self, trial_ids: Iterable[str]) -> None:
        """Trials that were planned after the start."""
        new = [trial_id for trial_id in trial_ids if trial_id not in self.trials]
        if new:
            trials = [self._run.trial(trial_id).read() for trial_id in new]
            self.trials |= {trial.id: trial for trial in trials}
            self.time_left.plan_more(trials)


# What the progress of a study says: which trial runs, how far it is, how it ended, in one line each.


def trial_label(trial: TrialRecord, words: Words, *, is_study: bool) -> str:
    """A trial of a study goes by its cell's name, one without a study by the workload's."""
    if trial.kind == "learn":
        seed = f" {words('seed')} {trial.seed}" if is_study or trial.seed != 1 else ""
        return f"{trial.cell if is_study else trial.workload}{seed}"
    mode = words.mode(trial.mode or "")
    name = f"{trial.cell} {mode}" if is_study else mode
    name = words("trial_again", name=name) if trial.again else name
    return words("trial_measured", name=name, watch=watch_text(trial, words))


def group_label(trials: Sequence[TrialRecord], words: Words, *, is_study: bool) -> str:
    """What trials that run in one process, or take turns, are called together."""
    first, *others = trials
    if others and all(trial.watch == "steps" for trial in trials):
        mode = words.mode(first.mode or "")
        return words("timing_in_turns", mode=mode, number=len(trials))
    if others and first.kind == "learn":
        return words("trained_together", number=len(trials))
    name = trial_label(first, words, is_study=is_study)
    return words.listed([name, *(watch_text(other, words) for other in others)])


def watch_text(trial: TrialRecord, words: Words) -> str:
    """What is measured in a cost trial."""
    return words(f"watch_{trial.watch or 'steps'}")


def end_text(trial: TrialRecord, words: Words) -> str:
    """How a trial ended, where that was not its last epoch; empty otherwise."""
    if trial.state == "failed" and trial.error is not None:
        message = error_line(trial.error.message, words.lang)
        first_line = next(iter(message.splitlines()), "")
        return words("ended_failed", kind=trial.error.kind, reason=first_line)
    if trial.state != "diverged":
        return ""
    if trial.diverged_at_step is not None:
        return words("ended_at_update", step=f"{trial.diverged_at_step:,}")
    is_last = trial.epochs_done == trial.settings.get("epochs")
    return "" if is_last else words("ended_in_test", epoch=trial.epochs_done)


def metric_texts(metrics: Mapping[str, float | None], words: Words) -> list[str]:
    """`train loss 0.3012`, `test accuracy 87.10%`."""
    return [f"{_short_name(n, words)} {_value(n, v, words)}" for n, v in metrics.items()]


def time_left_text(time_left: TimeLeft, words: Words) -> str:
    """The time left, or that it is not known yet."""
    left_s = time_left.left_s()
    if left_s is None:
        return words("time_unknown")
    return words("time_left", time=duration_text(left_s, words))


def duration_text(duration_s: float, words: Words) -> str:
    """`45 s`, `3:20 min`, `1:05 h`."""
    minutes, seconds = divmod(max(0, round(duration_s)), 60)
    if not minutes:
        return words("duration_s", seconds=seconds)
    if minutes < 60:
        return words("duration_min", minutes=minutes, seconds=f"{seconds:02}")
    return words("duration_h", hours=minutes // 60, minutes=f"{minutes % 60:02}")


def fitted(label: str, metrics: list[str], room: int, words: Words) -> tuple[str, str]:
    """Label and metrics that fit beside each other: the last metrics are left out first, then the end of
    the label, so that no number is cut."""
    for count in range(len(metrics), -1, -1):
        shown = words.listed(metrics[:count])
        if cell_len(label) + cell_len(shown) <= room:
            return label, shown
    parts = re.findall(r"[^ ,]+[ ,]*", label)
    while len(parts) > 1 and cell_len("".join(parts).rstrip(" ,")) + 1 > room:
        parts.pop()
    return "".join(parts).rstrip(" ,") + "…", ""


def _short_name(metric: str, words: Words) -> str:
    key = f"short_{metric.replace('/', '_')}"
    return words(key) if key in WORDS else metric.replace("/", " ")


def _value(metric: str, value: float | None, words: Words) -> str:
    return words("not_finite") if value is None else metric_value(metric, value)


# An overview of a run in words, a line each, and as JSON for programs.

MOST_NAMED = 10
"""Trials of one state that are named one by one."""


def overview_lines(overview: Overview, path: str, words: Words) -> Iterator[str]:
    """The study's progress, who runs it, what runs, what failed or was interrupted."""
    is_study = len({trial.cell for trial in overview.trials}) > 1
    yield progress_line(overview, words)
    yield _driver_line(overview, path, words)
    yield from running_lines(overview, words)
    for state in ("failed", "interrupted"):
        trials = overview.in_state(state)
        for trial in trials[:MOST_NAMED]:
            label = trial_label(trial, words, is_study=is_study)
            what = end_text(trial, words) or words.named("state", state)
            yield f"{label}{words('colon')}{what}"
        if len(trials) > MOST_NAMED:
            number = len(trials) - MOST_NAMED
            yield words("status_more", number=number, state=words.named("state", state))


def running_lines(overview: Overview, words: Words) -> Iterator[str]:
    """What runs, and how far it is."""
    is_study = len({trial.cell for trial in overview.trials}) > 1
    for group in overview.running:
        label = group_label(group.trials, words, is_study=is_study)
        yield f"{label}{words('colon')}{_how_far(group, words)}"


def overview_json(overview: Overview, path: str) -> dict[str, Any]:
    """The same for programs."""
    driver = overview.driver
    return {
        "run": path,
        "name": overview.name,
        "trials": len(overview.trials),
        "states": dict(overview.counts()),
        "is_finished": overview.is_finished,
        "is_driven": overview.is_driven,
        "driver": None
        if driver is None
        else {"user": driver.user, "host": driver.host, "pid": driver.pid, "begun": driver.begun},
        "left_s": overview.left_s,
        "running": [
            {
                "trials": [trial.id for trial in group.trials],
                "share": None if group.last is None else group.last.share,
                "epoch": None if group.last is None else group.last.epoch,
                "num_epochs": None if group.last is None else group.last.num_epochs,
                "elapsed_s": group.elapsed_s,
            }
            for group in overview.running
        ],
        "failed": [trial.id for trial in overview.in_state("failed")],
        "interrupted": [trial.id for trial in overview.in_state("interrupted")],
    }


def progress_line(overview: Overview, words: Words) -> str:
    """How many trials are in which state, and the time left."""
    counts = overview.counts()
    num_finished = sum(trial.is_finished for trial in overview.trials)
    parts = [words("status_finished", some=num_finished, all=len(overview.trials))]
    parts += [
        words("status_count", number=counts[state], state=words(f"status_{state}"))
        for state in ("running", "pending", "interrupted", "failed")
        if counts.get(state)
    ]
    if overview.left_s is not None and not overview.is_finished:
        parts.append(words("time_left", time=duration_text(overview.left_s, words)))
    return f"{overview.name}{words('colon')}{words.listed(parts)}"


def _driver_line(overview: Overview, path: str, words: Words) -> str:
    driver = overview.driver
    if overview.is_driven and driver is not None:
        who = {"user": driver.user, "host": driver.host, "pid": driver.pid}
        return words("status_driven", **who, begun=driver.begun)
    if overview.is_finished:
        return words("status_over", path=path)
    return words("status_left", path=path)


def _how_far(group: RunningGroup, words: Words) -> str:
    last, parts = group.last, []
    if last is not None and last.epoch is not None and (last.num_epochs or 1) > 1:
        parts.append(words("status_epoch", epoch=last.epoch, epochs=last.num_epochs))
    if last is not None and last.share is not None:
        parts.append(f"{100 * last.share:.0f}%")
    return words.listed([*parts, duration_text(group.elapsed_s, words)])
