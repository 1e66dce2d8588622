"""What a person sees while a question is answered: spinners and bars on a terminal, lines elsewhere.

What is shown of trials comes from the events in the run folder, in a thread of its own: whatever happens to
the terminal does not disturb them.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from itertools import chain, islice

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from trainlab.cli.output import say
from trainlab.cli.plan_text import print_plan
from trainlab.errors import RecordError
from trainlab.lab import Activity, Watcher
from trainlab.lab.run_progress import (
    TimeLeft,
    end_text,
    fitted,
    group_label,
    metric_texts,
    time_left_text,
    trial_label,
)
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Event, EventReader
from trainlab.spec import Study
from trainlab.words import Words

SILENCE_S = 3.0
"""After so long without a line one is printed."""
LONG_RUN_SHARE = 0.01
"""In a long run, silence may last this share of the time elapsed, so that a log stays readable."""
HEARTBEAT_POLL_S = 0.5
POLL_S = 0.2
"""Between two reads of the events."""
WIDE = 100
"""Columns of a terminal from which on the bar is twice as long."""
BESIDE_LABEL = 22
"""Columns of the spinner, the longest time left, and the gaps between all."""


class ConsoleWatcher(Watcher):
    """Spinners and bars on a terminal, lines elsewhere."""

    def __init__(self, console: Console, words: Words) -> None:
        self._console, self._words = console, words
        self._download: DownloadProgress | None = None
        self._progress: StudyProgress | None = None

    def status(self, activity: Activity) -> AbstractContextManager[object]:
        return showing_status(self._console, activity, self._words)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        with DownloadProgress(self._console, self._words) as self._download:
            yield

    def downloads(self, name: str, done: int, total: int | None) -> None:
        if self._download is not None:
            self._download(name, done, total)

    def planned(self, study: Study) -> None:
        if study.cells:
            print_plan(self._console, study, self._words)

    def watching(self, driver: str) -> None:
        say(self._console, self._words("watching_driver", driver=driver))

    def resumed(self, num_left: int, num_trials: int) -> None:
        key = "resumed" if num_left else "nothing_left"
        say(self._console, self._words(key, left=num_left, all=num_trials))

    def added(self, num_open: int, num_seeds: int) -> None:
        key = "one_comparison_open" if num_open == 1 else "comparisons_open"
        say(self._console, self._words(key, number=num_open, seeds=num_seeds))

    def gave_up(self, num_hopeless: int) -> None:
        key = "one_comparison_hopeless" if num_hopeless == 1 else "comparisons_hopeless"
        say(self._console, self._words(key, number=num_hopeless))

    def running(self, run: RunFolder) -> AbstractContextManager[object]:
        """The same progress each time: what was shown before is not shown again."""
        if self._progress is None:
            self._progress = StudyProgress(self._console, run, self._words)
        return self._progress


class Silence:
    """How long nothing has been printed, by anybody in this process."""

    _last_line_s = time.monotonic()

    def __init__(self) -> None:
        self._start_s = time.monotonic()

    def restart(self) -> None:
        """A line was printed: silence is counted from now."""
        Silence._last_line_s = time.monotonic()

    def is_too_long(self) -> bool:
        """Whether a line ought to be printed."""
        now_s = time.monotonic()
        limit_s = max(SILENCE_S, LONG_RUN_SHARE * (now_s - self._start_s))
        return now_s - Silence._last_line_s >= limit_s


@contextmanager
def showing_status(console: Console, activity: str, words: Words) -> Iterator[None]:
    """Shows that an activity, one of the words, is under way, as long as the block runs: a spinner on a
    terminal, a line now and then elsewhere."""
    text = words(f"activity_{activity}")
    if console.is_terminal:
        with console.status(text):
            yield
        return
    start_s, silence, is_over = time.monotonic(), Silence(), threading.Event()

    def print_heartbeats() -> None:
        while not is_over.wait(HEARTBEAT_POLL_S):
            if silence.is_too_long():
                silence.restart()
                seconds = f"{time.monotonic() - start_s:.0f}"
                say(console, words("heartbeat", activity=text, seconds=seconds))

    thread = threading.Thread(target=print_heartbeats, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class DownloadProgress:
    """A bar per file on a terminal; elsewhere a line per file."""

    def __init__(self, console: Console, words: Words) -> None:
        self._console, self._words = console, words
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "DownloadProgress":
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        if name not in self._tasks:
            self._bar.start()
            activity = self._words("activity_fetching", name=name)
            self._tasks[name] = self._bar.add_task(activity, total=total)
            if not self._console.is_terminal:
                say(self._console, activity)
        self._bar.update(self._tasks[name], completed=done, total=total)


class StudyProgress:
    """One bar for a whole study, with the time left, and a line per result; off a terminal, lines only.

    Entered once more, it goes on where it was: trials may have been planned meanwhile.
    """

    def __init__(self, console: Console, run: RunFolder, words: Words) -> None:
        trials = run.trials()
        self._console, self._events = console, EventReader(run.events_folder)
        self._run, self._words = run, words
        self._events.new()  # of an earlier driver, where the run is resumed: they were shown then
        self._event_time_s: float | None = None
        """Of the event being handled; None between events."""
        self._time_left = TimeLeft(trials, self._now_s)
        self._is_study = len({trial.cell for trial in trials}) > 1
        self._trials = {trial.id: trial for trial in trials}
        self._ended = {trial.id for trial in trials if trial.is_finished}
        self._label = ""
        self._running: dict[tuple[str, ...], str] = {}
        """The groups that run, and what each is called."""
        self._metrics: list[str] = []
        self._silence = Silence()
        self._is_over = threading.Event()
        self._bar_width = 16 if console.width >= WIDE else 8
        self._room = console.width - BESIDE_LABEL - self._bar_width
        """Columns for what runs and its metrics."""
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=self._bar_width),
            TextColumn("{task.fields[metrics]}", markup=False),
            _TimeLeftColumn(self._time_left, words),
            console=console,
            transient=True,
            # Only twice: drawing takes time from what is being measured.
            refresh_per_second=2,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=1.0, metrics="", visible=False)

    def __enter__(self) -> "StudyProgress":
        self._learn_of_new(self._run.study().trials)
        self._is_over.clear()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        try:
            self._thread.start()
        except BaseException:  # interrupted while it waits for the thread, which nobody would end
            self._is_over.set()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._bar.stop()

    def _watch(self) -> None:
        try:
            while not self._is_over.wait(POLL_S):
                self._read_events()
                if not self._console.is_terminal and self._silence.is_too_long():
                    self._print_heartbeat()
            self._read_events()
        except OSError:
            return  # the terminal is gone; the trials go on

    def _read_events(self) -> None:
        for event in self._events.new():
            self._event_time_s = datetime.fromisoformat(event.at).timestamp()
            self._handle(event)
        self._event_time_s = None
        self._bar.update(self._task, completed=self._time_left.share_done())

    def _handle(self, event: Event) -> None:
        self._learn_of_new(chain(event.trials, *event.groups))
        match event.kind:
            case "starting":
                self._time_left.starting(event.groups)
                several = len(event.groups) > 1
                key = "starting_several" if several else "starting_one"
                self._set_label(self._words(key, number=len(event.groups)))
            case "ready":
                self._time_left.ready()
            case "group_begins":
                self._begin_group(event)
            case "group_ends":
                self._end_group(event.trials)
            case "progress":
                self._show_progress(event)
            case "epoch":
                self._show_progress(event)
                self._print_epoch(event)

    def _learn_of_new(self, trial_ids: Iterable[str]) -> None:
        """Trials that were planned after the start."""
        new = [trial_id for trial_id in trial_ids if trial_id not in self._trials]
        if new:
            trials = [self._run.trial(trial_id).read() for trial_id in new]
            self._trials |= {trial.id: trial for trial in trials}
            self._time_left.plan_more(trials)

    def _begin_group(self, event: Event) -> None:
        trial_ids = event.trials
        self._time_left.group_begins(*trial_ids, num_side_by_side=event.num_side_by_side)
        self._running[trial_ids] = self._count() + self._name(trial_ids)
        self._show_running()
        if self._trials[trial_ids[0]].kind == "cost" and not self._console.is_terminal:
            self._print(self._label)

    def _end_group(self, trial_ids: tuple[str, ...]) -> None:
        self._time_left.group_ends(*trial_ids)
        self._print_ends(trial_ids)
        self._ended.update(trial_ids)
        del self._running[trial_ids]
        if self._running:
            self._show_running()

    def _show_running(self) -> None:
        """What runs; of several groups side by side only how many, where their names do not fit."""
        if len(self._running) == 1:
            self._set_label(*self._running.values())
            return
        names = self._words.listed(self._name(trial_ids) for trial_ids in self._running)
        if cell_len(self._count() + names) > self._room:
            names = self._words("side_by_side", number=len(self._running))
        self._set_label(self._count() + names)

    def _count(self, number: int | None = None) -> str:
        """So many trials of all; not given: those that have begun."""
        number, num_trials = number or self._time_left.number, self._time_left.num_trials
        return f"{number}/{num_trials} " if num_trials > 1 else ""

    def _result_label(self, trial_id: str) -> str:
        """A trial that has ended, with how many have by now, whatever else runs."""
        self._ended.add(trial_id)
        own = trial_label(self._trials[trial_id], self._words, is_study=self._is_study)
        return self._count(len(self._ended)) + own

    def _name(self, trial_ids: tuple[str, ...]) -> str:
        trials = [self._trials[trial_id] for trial_id in trial_ids]
        return group_label(trials, self._words, is_study=self._is_study)

    def _label_of(self, trial_id: str) -> str:
        """The label of the group that a trial is in; of trials that train together the trial's own."""
        trial = self._trials[trial_id]
        for ids, text in self._running.items():
            if trial_id in ids and len(ids) > 1 and trial.kind == "learn":
                return self._count() + trial_label(trial, self._words, is_study=self._is_study)
            if trial_id in ids:
                return text
        return self._label

    def _show_progress(self, event: Event) -> None:
        self._time_left.progress(event.trials[0], event.share or 0.0)
        if len(self._running) > 1:
            return  # the metrics of one of several would change places with those of another
        train = ((n[6:], v) for n, v in event.metrics.items() if n.startswith("train/"))
        self._metrics = metric_texts(dict(islice(train, 2)), self._words)
        several = (event.num_epochs or 1) > 1
        own = self._words("epoch_of", label=self._label, epoch=event.epoch, epochs=event.num_epochs)
        self._update_bar(own if several else self._label)

    def _print_epoch(self, event: Event) -> None:
        """Of a study a line per trial; of a single cell a line per epoch, off a terminal only."""
        is_last = event.epoch == event.num_epochs
        if is_last if self._is_study else not self._console.is_terminal:
            metrics = {name: value for name, value in event.metrics.items() if "/" in name}
            trial_id = event.trials[0]
            label = self._result_label(trial_id) if self._is_study else self._epoch_label(event)
            texts = self._words.listed(metric_texts(metrics, self._words))
            seconds = f"{event.time_s:.1f}"
            self._print(self._words("epoch_result", label=label, metrics=texts, seconds=seconds))

    def _print_ends(self, trial_ids: tuple[str, ...]) -> None:
        """Of a study, the trials that did not reach their last epoch, or failed; the others have a line."""
        for trial_id in trial_ids if self._is_study else ():
            try:
                trial = self._run.trial(trial_id).read()
            except RecordError:
                continue  # told when the run is read
            if text := end_text(trial, self._words):
                label = self._result_label(trial_id)
                self._print(f"{label}{self._words('colon')}{text}")

    def _epoch_label(self, event: Event) -> str:
        epoch, epochs = event.epoch, event.num_epochs
        label = self._label_of(event.trials[0])
        return self._words("epoch_of", label=label, epoch=epoch, epochs=epochs)

    def _set_label(self, label: str) -> None:
        """What the bar says runs, until the next label; the metrics of what ran before are cleared."""
        self._label, self._metrics = label, []
        self._bar.start()
        self._update_bar(label)

    def _update_bar(self, label: str) -> None:
        shown, metrics = fitted(label, self._metrics, self._room, self._words)
        self._bar.update(self._task, description=shown, metrics=metrics, visible=True)

    def _print_heartbeat(self) -> None:
        left = time_left_text(self._time_left, self._words)
        parts = self._words.listed([*self._metrics, left])
        self._print(f"{self._label or self._words('starting')} … {parts}")

    def _print(self, line: str) -> None:
        self._silence.restart()
        say(self._console, line)

    def _now_s(self) -> float:
        """The time of the event being handled, else now."""
        return time.time() if self._event_time_s is None else self._event_time_s


class _TimeLeftColumn(ProgressColumn):
    """Time left, counted down at every refresh, whether or not anything was reported since."""

    def __init__(self, time_left: TimeLeft, words: Words) -> None:
        super().__init__()
        self._time_left, self._words = time_left, words

    def render(self, task: Task) -> Text:
        return Text(time_left_text(self._time_left, self._words), style="cyan")
