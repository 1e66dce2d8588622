"""How far a run is, read from its folder alone: records, events and the lease of its driver."""

import math
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Literal, Self

from trainlab.execute.lease import holder_of
from trainlab.record.run_folder import RunFolder
from trainlab.record.script_record import WatchedRecord
from trainlab.record.study_record import Event, EventReader
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Study
from trainlab.words import WORDS, Words
from trainlab.words.error_lines import error_line
from trainlab.words.numbers import metric_value

Activity = Literal["starting_torch", "reading_records", "counting_decided"]
"""What takes long beside the trials."""
Download = Callable[[str, int, int | None], None]
"""Is told of a file how many bytes have come, of how many where that is known."""
LOOK_SHARE = 0.02
"""Looks take at most this share of the time: a run of thousands of trials is looked at less often."""


class Watcher:
    """Is told what happens while a question is answered; this one ignores it all."""

    shows_output = False
    """Whether what a script prints that runs alone is passed on to where this process prints."""

    def say(self, key: str, **values: object) -> None:
        """How the run goes on: a sentence, by its key among the words."""

    def tell(self, sentence: Callable[[Words], str]) -> None:
        """The same, a sentence that is made of several."""

    def status(self, activity: Activity) -> AbstractContextManager[object]:
        """Entered during an activity that takes long."""
        return nullcontext()

    def fetching(self) -> AbstractContextManager[Download]:
        """Entered while the machine is checked and data is fetched."""
        return nullcontext(lambda name, done, total: None)

    def planned(self, study: Study) -> None:
        """All checks have passed; this is what will be run."""

    def seen(self, watched: WatchedRecord) -> None:
        """What was seen by now of a script that runs alone."""

    def running(self, run: RunFolder) -> AbstractContextManager[object]:
        """Entered while trials run; the events in the run folder say how far they are."""
        return nullcontext()


@contextmanager
def repeated(look: Callable[[], None], every_s: float) -> Iterator[None]:
    """Looks again and again as long as the block runs, in a thread of its own, and once more at the end.
    Where the terminal has gone, or what is looked at, the trials go on."""
    is_over = threading.Event()

    def repeat() -> None:
        pause_s = every_s
        with suppress(OSError):
            while not is_over.wait(pause_s):
                begun_s = time.monotonic()
                look()
                pause_s = max(every_s, (time.monotonic() - begun_s) / LOOK_SHARE)

    # A notebook's kernel knows by its context which cell an output belongs to.
    thread = threading.Thread(target=copy_context().run, args=(repeat,), daemon=True)
    try:
        thread.start()  # which an interrupt may end
        yield
    finally:
        is_over.set()
        if thread.is_alive():
            thread.join()
        with suppress(OSError):
            look()


FIRST_GUESS_S = 4.0
"""A cost trial, start included, before any has ended: how long training takes says nothing about it."""
MIN_SHARE = 0.02
"""Of a trial, from which on its own speed says how long it takes."""
FIRST_SHARE = 0.1
"""A first word of less comes after a start (tuning, compiling) that says nothing about the speed."""


@dataclass
class RunningGroup:
    """Trials that run in one process, or take turns: how far they are."""

    trials: tuple[TrialRecord, ...]
    since_s: float
    number: int
    """How many trials had begun by then."""
    last: Event | None = None
    """The last that was heard of their progress."""
    base: tuple[float, float] | None = None
    """The time and the share from which on their speed counts; their begin where that is not set."""

    def left_s(self, now_s: float) -> float | None:
        """How long they should still take, by their own speed; None where that is not known."""
        since_s, before = self.base or (self.since_s, 0.0)
        share = 0.0 if self.last is None else self.last.share or 0.0
        if share - before < MIN_SHARE:
            return None
        return (1 - share) * (now_s - since_s) / (share - before)


class RunProgress:
    """A run, looked at again and again; nothing in its folder is changed."""

    def __init__(self, run: RunFolder) -> None:
        self._run, self.driver = run, holder_of(run)
        self._begin()

    @property
    def is_driven(self) -> bool:
        """Whether somebody runs it; taken for granted of a driver on another machine that has not ended."""
        return self.driver is not None and not self.driver.is_dead

    def _begin(self) -> None:
        """Forgets what an earlier driver ran: it may have died in the middle of it."""
        study = self._run.study()
        self.name, self.now_s = study.name, time.time()
        self._events = EventReader(self._run.events_folder)
        self.trials: dict[str, TrialRecord] = {}
        self._marks: dict[str, tuple[int, int]] = {}
        self.running: dict[tuple[str, ...], RunningGroup] = {}
        self._waiting: dict[str, TrialRecord] = {}
        self._durations_s: dict[tuple[object, ...], list[float]] = {}
        self._num_side_by_side, self._begun_s = 1, 0.0
        self.num_starting = 0
        """Groups whose processes are being started."""
        self.learn_of(study.trials)

    def look(self) -> Self:
        """Takes in how the run is now."""
        before, self.driver = self.driver, holder_of(self._run)
        if self.driver is not None and (before is None or before.token != self.driver.token):
            self._begin()  # resumed by another driver
        self.learn_of(self._run.study().trials)
        unfinished = [one for one, trial in self.trials.items() if not trial.is_finished]
        self.trials |= {one: self._read(one) for one in unfinished}
        for _ in self.new_events():
            pass
        if not self.is_driven:
            self.running.clear()
        return self

    def new_events(self) -> Iterator[Event]:
        """What has happened since, each event taken into account before it is handed on."""
        for event in self._events.new():
            if self.driver is None or event.at[:19] >= self.driver.begun[:19]:
                self.now_s = datetime.fromisoformat(event.at).timestamp()
                self._handle(event)
                yield event
        self.now_s = time.time()

    def learn_of(self, trial_ids: Iterable[str]) -> None:
        """Trials may be planned after the start."""
        for trial_id in trial_ids:
            if trial_id not in self.trials:
                self.trials[trial_id] = trial = self._read(trial_id)
                if not trial.is_finished:
                    self._waiting[trial_id] = trial

    def _read(self, trial_id: str) -> TrialRecord:
        """A trial as it is now, without what is large in it; as before where its file is the same."""
        file, mark = self._run.trial_record(trial_id), None
        with suppress(OSError):
            found = file.path.stat()
            mark = found.st_ino, found.st_mtime_ns
            if self._marks.get(trial_id) == mark:
                return self.trials[trial_id]
        record = file.read()
        if mark is not None:
            self._marks[trial_id] = mark
        return record.model_copy(update={"settings": {}, "resolved": {}, "files": {}, "data": None})

    def _handle(self, event: Event) -> None:
        self.learn_of([*event.trials, *chain(*event.groups)])
        match event.kind:
            case "group_begins":
                trials = tuple(self.trials[one] for one in event.trials)
                for one in event.trials:
                    self._waiting.pop(one, None)
                self.running[event.trials] = RunningGroup(trials, self.now_s, self.num_begun)
                self._begun_s = self._begun_s or self.now_s
                self._num_side_by_side = max(self._num_side_by_side, event.num_side_by_side)
                self.num_starting = 0
            case "starting":
                self.num_starting = len(event.groups)
            case "group_ends" if event.trials in self.running:
                group = self.running.pop(event.trials)
                each_s = (self.now_s - group.since_s) / len(group.trials)
                for key in chain(*map(_similarity_keys, group.trials)):
                    self._durations_s.setdefault(key, []).append(each_s)
            case "progress" | "epoch":
                for ids, group in self.running.items():
                    if event.trials[0] in ids:
                        share, group.last = event.share, event
                        if group.base is None and share is not None and share < FIRST_SHARE:
                            group.base = self.now_s, share

    # Its trials.

    @property
    def num_begun(self) -> int:
        """Trials that have begun, by now or before."""
        return len(self.trials) - len(self._waiting)

    @property
    def is_study(self) -> bool:
        """Whether it has several cells."""
        return len({trial.cell for trial in self.trials.values()}) > 1

    @property
    def is_finished(self) -> bool:
        """Whether no trial is left."""
        return all(trial.is_finished for trial in self.trials.values())

    def in_state(self, state: str) -> list[TrialRecord]:
        """The trials that are in a state."""
        return [trial for trial in self.trials.values() if self._state(trial) == state]

    def counts(self) -> Counter[str]:
        """Trials by state."""
        return Counter(map(self._state, self.trials.values()))

    def _state(self, trial: TrialRecord) -> str:
        # A trial that runs, though nobody runs the run, was interrupted.
        return "interrupted" if trial.state == "running" and not self.is_driven else trial.state

    # Its time.

    def left_s(self) -> float | None:
        """How long all will still take, each trial as long as the most similar that have ended; None while
        nothing is known about some of it."""
        running = [self._running_left_s(group) for group in self.running.values()]
        shared, alone = (
            [
                self._expected_s(one)
                for one in self._waiting.values()
                if (one.kind == "cost") == is_alone
            ]
            for is_alone in (False, True)
        )
        together_s, alone_s = sum([*running, *shared]), sum(alone)
        if math.isnan(together_s + alone_s):
            return None
        # No sooner than the one that takes longest, however many run beside it.
        return max([*running, together_s / self._num_side_by_side]) + alone_s

    def share_done(self) -> float:
        """Of the time that the run takes; of its trials while that is not known."""
        left_s = self.left_s()
        if left_s is None:
            shares = [group.last.share or 0.0 for group in self.running.values() if group.last]
            return max(0.0, self.num_begun - len(self.running) + sum(shares)) / len(self.trials)
        done_s = self.now_s - self._begun_s if self._begun_s else 0.0
        return done_s / (done_s + left_s) if done_s + left_s else 1.0

    def _running_left_s(self, group: RunningGroup) -> float:
        """By its own speed, or else by what its trials should take; nan where nothing is known."""
        if (left_s := group.left_s(self.now_s)) is not None:
            return left_s
        left_s = sum(map(self._expected_s, group.trials)) - (self.now_s - group.since_s)
        return 0.0 if left_s < 0 else left_s

    def _expected_s(self, trial: TrialRecord) -> float:
        """How long a trial should take, from the most similar that ended or else from those that run; nan
        where nothing is known."""
        for key in _similarity_keys(trial):
            if key in self._durations_s:
                return statistics.median(self._durations_s[key])
        running = [
            (self.now_s - group.since_s + left_s) / len(group.trials)
            for group in self.running.values()
            if group.trials[0].kind == trial.kind
            and (left_s := group.left_s(self.now_s)) is not None
        ]
        if running:
            return statistics.median(running)
        has_begun = self._durations_s or self.running
        return FIRST_GUESS_S if trial.kind == "cost" and has_begun else math.nan


def _similarity_keys(trial: TrialRecord) -> tuple[tuple[object, ...], ...]:
    """From the most similar trials to the least: same cell, same mode, same watch, same kind."""
    cell = (trial.kind, trial.watch, trial.mode, trial.cell)
    return (cell, cell[:3], cell[:2], cell[:1])


# What the progress of a study says: which trial runs, how far it is, how it ended, in one line each.


def trial_label(trial: TrialRecord, words: Words, *, is_study: bool) -> str:
    """A trial of a study goes by its cell's name, one without a study by the workload's."""
    if trial.kind == "try":
        return trial.cell
    if trial.kind == "learn":
        seed = f" {words('seed')} {trial.seed}" if is_study or trial.seed != 1 else ""
        return f"{trial.cell if is_study else trial.workload}{seed}"
    mode = words.mode(trial.mode or "")
    name = f"{trial.cell} {mode}" if is_study else mode
    name = words("trial_again", name=name) if trial.again else name
    return words("trial_measured", name=name, watch=words(f"watch_{trial.watch or 'steps'}"))


def group_label(trials: Sequence[TrialRecord], words: Words, *, is_study: bool) -> str:
    """What trials that run in one process, or take turns, are called together."""
    first, *others = trials
    if others and all(trial.watch == "steps" for trial in trials):
        mode = words.mode(first.mode or "")
        return words("timing_in_turns", mode=mode, number=len(trials))
    if others and first.kind != "cost":
        return words("trained_together", number=len(trials))
    name = trial_label(first, words, is_study=is_study)
    return words.listed([name, *(words(f"watch_{one.watch or 'steps'}") for one in others)])


def end_text(trial: TrialRecord, words: Words) -> str:
    """How a trial ended, where that was not its last epoch; empty otherwise."""
    if trial.state == "failed" and trial.error is not None:
        message = error_line(trial.error.message, words.lang)
        first_line = next(iter(message.splitlines()), "")
        return words("ended_failed", kind=trial.error.kind, reason=first_line)
    step = trial.diverged_at_step
    return "" if step is None else words("ended_at_update", step=f"{step:,}")


def metric_texts(metrics: Mapping[str, float | None], words: Words) -> list[str]:
    """`train loss 0.3012`, `test accuracy 87.10%`."""
    texts = []
    for name, value in metrics.items():
        key = f"short_{name.replace('/', '_')}"
        short = words(key) if key in WORDS else name.replace("/", " ")
        shown = words("not_finite") if value is None else metric_value(name, value)
        texts.append(f"{short} {shown}")
    return texts


def time_left_text(left_s: float | None, words: Words) -> str:
    """The time left, or that it is not known yet."""
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


# An overview of a run in words, a line each, and as JSON for programs.

MOST_NAMED = 10
"""Trials of one state that are named one by one."""


def overview_lines(progress: RunProgress, path: str, words: Words) -> Iterator[str]:
    """The study's progress, who runs it, what runs, what failed or was interrupted."""
    yield progress_line(progress, words)
    driver = progress.driver
    if progress.is_driven and driver is not None:
        who = {"user": driver.user, "host": driver.host, "pid": driver.pid}
        yield words("status_driven", **who, begun=driver.begun)
    else:
        yield words("status_over" if progress.is_finished else "status_left", path=path)
    yield from running_lines(progress, words)
    for state in ("failed", "interrupted"):
        yield from ended_lines(progress, state, words, MOST_NAMED)
        if (number := len(progress.in_state(state)) - MOST_NAMED) > 0:
            yield words("status_more", number=number, state=words.named("state", state))


def progress_line(progress: RunProgress, words: Words) -> str:
    """How many trials are in which state, and the time left."""
    counts, trials = progress.counts(), progress.trials.values()
    num_finished = sum(trial.is_finished for trial in trials)
    parts = [words("status_finished", some=num_finished, all=len(trials))]
    parts += [
        words("status_count", number=counts[state], state=words(f"status_{state}"))
        for state in ("running", "pending", "interrupted", "failed")
        if counts.get(state)
    ]
    left_s = progress.left_s() if progress.is_driven and not progress.is_finished else None
    if left_s is not None:
        parts.append(time_left_text(left_s, words))
    return f"{progress.name}{words('colon')}{words.listed(parts)}"


def running_lines(progress: RunProgress, words: Words) -> Iterator[str]:
    """What runs, and how far it is."""
    for group in progress.running.values():
        label = group_label(group.trials, words, is_study=progress.is_study)
        last, parts = group.last, []
        if last is not None and last.epoch is not None and (last.num_epochs or 1) > 1:
            parts.append(words("status_epoch", epoch=last.epoch, epochs=last.num_epochs))
        if last is not None and last.share is not None:
            parts.append(f"{100 * last.share:.0f}%")
        parts.append(duration_text(progress.now_s - group.since_s, words))
        yield f"{label}{words('colon')}{words.listed(parts)}"


def ended_lines(progress: RunProgress, state: str, words: Words, most: int) -> Iterator[str]:
    """The first trials in a state, and how they ended."""
    for trial in progress.in_state(state)[:most]:
        label = trial_label(trial, words, is_study=progress.is_study)
        yield f"{label}{words('colon')}{end_text(trial, words) or words.named('state', state)}"


def overview_json(progress: RunProgress, path: str) -> dict[str, Any]:
    """The same for programs."""
    driver = progress.driver
    return {
        "run": path,
        "name": progress.name,
        "trials": len(progress.trials),
        "states": dict(progress.counts()),
        "is_finished": progress.is_finished,
        "is_driven": progress.is_driven,
        "driver": driver and driver.model_dump(include={"user", "host", "pid", "begun"}),
        "left_s": progress.left_s() if progress.is_driven else None,
        "running": [
            {
                "trials": list(ids),
                **{n: getattr(group.last, n, None) for n in ("share", "epoch", "num_epochs")},
                "elapsed_s": max(0.0, progress.now_s - group.since_s),
            }
            for ids, group in progress.running.items()
        ],
        "failed": [trial.id for trial in progress.in_state("failed")],
        "interrupted": [trial.id for trial in progress.in_state("interrupted")],
    }
