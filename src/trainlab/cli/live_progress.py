"""What a person sees while a question is answered: spinners and bars on a terminal, lines elsewhere.

What is shown of trials is read from the run folder, in a thread of its own: whatever happens to the
terminal does not disturb them.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from trainlab.cli.output import say
from trainlab.cli.plan_text import print_plan
from trainlab.errors import RecordError
from trainlab.lab import Activity, Watcher
from trainlab.lab.run_progress import (
    Download,
    RunProgress,
    end_text,
    fitted,
    group_label,
    metric_texts,
    repeated,
    time_left_text,
)
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Event
from trainlab.spec import Study
from trainlab.words import Words

SILENCE_S = 3.0
"""After so long without a line one is printed."""
LONG_RUN_SHARE = 0.01
"""In a long run, silence may last this share of the time elapsed, so that a log stays readable."""
POLL_S = 0.2
"""Between two looks at what has happened."""
WIDE = 100
"""Columns of a terminal from which on the bar is twice as long."""
BESIDE_LABEL = 22
"""Columns of the spinner, the longest time left, and the gaps between all."""


class ConsoleWatcher(Watcher):
    """Spinners and bars on a terminal, lines elsewhere."""

    def __init__(self, console: Console, words: Words) -> None:
        self._console, self._words = console, words
        self._progress: StudyProgress | None = None

    def say(self, key: str, **values: object) -> None:
        say(self._console, self._words(key, **values))

    def status(self, activity: Activity) -> AbstractContextManager[object]:
        return showing_status(self._console, activity, self._words)

    def fetching(self) -> AbstractContextManager[Download]:
        return showing_downloads(self._console, self._words)

    def planned(self, study: Study) -> None:
        if study.cells:
            print_plan(self._console, study, self._words)

    def running(self, run: RunFolder) -> AbstractContextManager[object]:
        """The same progress each time: what was shown before is not shown again."""
        self._progress = self._progress or StudyProgress(self._console, run, self._words)
        return self._progress.shown()


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
    start_s, silence = time.monotonic(), Silence()

    def print_heartbeat() -> None:
        if silence.is_too_long():
            silence.restart()
            seconds = f"{time.monotonic() - start_s:.0f}"
            say(console, words("heartbeat", activity=text, seconds=seconds))

    with console.status(text) if console.is_terminal else repeated(print_heartbeat, POLL_S):
        yield


@contextmanager
def showing_downloads(console: Console, words: Words) -> Iterator[Download]:
    """A bar per file on a terminal; elsewhere a line per file."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=None))
    rates = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    is_terminal, tasks = console.is_terminal, dict[str, TaskID]()
    bar = Progress(
        SpinnerColumn(), *columns, *rates, console=console, transient=True, disable=not is_terminal
    )

    def show(name: str, done: int, total: int | None) -> None:
        if name not in tasks:
            bar.start()
            activity = words("activity_fetching", name=name)
            tasks[name] = bar.add_task(activity, total=total)
            if not is_terminal:
                say(console, activity)
        bar.update(tasks[name], completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()


class StudyProgress:
    """One bar for a whole study, with the time left, and a line per result; off a terminal, lines only."""

    def __init__(self, console: Console, run: RunFolder, words: Words) -> None:
        self._console, self._run, self._words = console, run, words
        self._progress = RunProgress(run)
        self._is_study = self._progress.is_study
        self._ended = {one.id for one in self._progress.trials.values() if one.is_finished}
        self._label, self._metrics = "", list[str]()
        self._running: dict[tuple[str, ...], str] = {}
        """The groups that run, and what each is called."""
        self._silence = Silence()
        bar_width = 16 if console.width >= WIDE else 8
        self._room = console.width - BESIDE_LABEL - bar_width
        """Columns for what runs and its metrics."""
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=bar_width),
            TextColumn("{task.fields[metrics]}", markup=False),
            TextColumn("{task.fields[left]}", markup=False, style="cyan"),
            console=console,
            transient=True,
            # Only twice: drawing takes time from what is being measured.
            refresh_per_second=2,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=1.0, metrics="", left="", visible=False)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """As long as the block runs; entered once more, it goes on where it was, with the trials planned
        meanwhile."""
        self._progress.learn_of(self._run.study().trials)
        try:
            with repeated(self._look, POLL_S):
                yield
        finally:
            self._bar.stop()

    def _look(self) -> None:
        for event in self._progress.new_events():
            self._show(event)
        left = time_left_text(self._progress.left_s(), self._words)
        self._bar.update(self._task, completed=self._progress.share_done(), left=left)
        if not self._console.is_terminal and self._silence.is_too_long():
            parts = self._words.listed([*self._metrics, left])
            self._print(f"{self._label or self._words('starting')} … {parts}")

    def _show(self, event: Event) -> None:
        words = self._words
        match event.kind:
            case "starting":
                key = "starting_several" if len(event.groups) > 1 else "starting_one"
                self._set_label(words(key, number=len(event.groups)))
            case "group_begins":
                self._running[event.trials] = self._count() + self._name(event.trials)
                self._show_running()
                is_cost = self._progress.trials[event.trials[0]].kind == "cost"
                if is_cost and not self._console.is_terminal:
                    self._print(self._label)
            case "group_ends":
                # Of a study, trials that did not reach their last epoch, or failed; the others have a line.
                for trial_id in event.trials if self._is_study else ():
                    with suppress(RecordError):  # told when the run is read
                        if text := end_text(self._run.trial(trial_id).read(), words):
                            self._print(f"{self._result_label(trial_id)}{words('colon')}{text}")
                self._ended.update(event.trials)
                self._running.pop(event.trials, None)
                self._show_running()
            case "progress" | "epoch":
                if (
                    len(self._running) <= 1
                ):  # metrics of several would change places with each other
                    train = {n[6:]: v for n, v in event.metrics.items() if n.startswith("train/")}
                    self._metrics = metric_texts(train, words)[:2]
                    several = (event.num_epochs or 1) > 1
                    self._update_bar(
                        self._epoch_label(self._label, event) if several else self._label
                    )
                is_last = event.epoch == event.num_epochs
                # Of a study a line per trial; of a single cell a line per epoch, off a terminal only.
                if event.kind == "epoch" and (
                    is_last if self._is_study else not self._console.is_terminal
                ):
                    self._print_epoch(event)

    def _show_running(self) -> None:
        """What runs; of several groups side by side only how many, where their names do not fit."""
        if len(self._running) == 1:
            self._set_label(*self._running.values())
        elif self._running:
            names = self._words.listed(map(self._name, self._running))
            if cell_len(self._count() + names) > self._room:
                names = self._words("side_by_side", number=len(self._running))
            self._set_label(self._count() + names)

    def _count(self, number: int | None = None) -> str:
        """So many trials of all; not given: those that have begun."""
        number, num_trials = number or self._progress.num_begun, len(self._progress.trials)
        return f"{number}/{num_trials} " if num_trials > 1 else ""

    def _name(self, trial_ids: tuple[str, ...]) -> str:
        trials = [self._progress.trials[trial_id] for trial_id in trial_ids]
        return group_label(trials, self._words, is_study=self._is_study)

    def _result_label(self, trial_id: str) -> str:
        """A trial that has ended, with how many have by now, whatever else runs."""
        self._ended.add(trial_id)
        return self._count(len(self._ended)) + self._name((trial_id,))

    def _epoch_label(self, label: str, event: Event) -> str:
        return self._words("epoch_of", label=label, epoch=event.epoch, epochs=event.num_epochs)

    def _print_epoch(self, event: Event) -> None:
        if self._is_study:
            label = self._result_label(event.trials[0])
        else:  # trials that train together go by their own names
            own = self._running.get(event.trials, self._count() + self._name(event.trials))
            label = self._epoch_label(own, event)
        metrics = {name: value for name, value in event.metrics.items() if "/" in name}
        texts, seconds = self._words.listed(metric_texts(metrics, self._words)), event.time_s
        line = self._words("epoch_result", label=label, metrics=texts, seconds=f"{seconds:.1f}")
        self._print(line)

    def _set_label(self, label: str) -> None:
        """What the bar says runs, until the next label; the metrics of what ran before are cleared."""
        self._label, self._metrics = label, []
        self._bar.start()
        self._update_bar(label)

    def _update_bar(self, label: str) -> None:
        label, metrics = fitted(label, self._metrics, self._room, self._words)
        self._bar.update(self._task, description=label, metrics=metrics, visible=True)

    def _print(self, line: str) -> None:
        self._silence.restart()
        say(self._console, line)
