"""What a person sees while a question is answered: spinners and bars on a terminal, lines elsewhere.

What is shown of trials is read from the run folder, in a thread of its own: whatever happens to the
terminal does not disturb them.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from os.path import relpath
from pathlib import Path

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
from rich.table import Column

from trainlab.cli.output import say
from trainlab.errors import RecordError
from trainlab.execute.jobs import passes_output_on
from trainlab.lab import Activity, Watcher
from trainlab.lab.run_progress import (
    Download,
    RunningGroup,
    RunProgress,
    end_text,
    group_label,
    metric_texts,
    repeated,
    time_left_text,
)
from trainlab.record.run_folder import RunFolder
from trainlab.record.script_record import WatchedRecord
from trainlab.record.study_record import Event
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Study
from trainlab.watching.script_process import begin_line
from trainlab.words import Words
from trainlab.words.numbers import figure, percent

SILENCE_S = 3.0
"""After so long without a line one is printed."""
LONG_RUN_SHARE = 0.01
"""In a long run, silence may last this share of the time elapsed, so that a log stays readable."""
POLL_S = 0.2
"""Between two looks at what has happened."""
WIDE = 100
"""Columns of a terminal from which on the bar is twice as long."""


class ConsoleWatcher(Watcher):
    """Spinners and bars on a terminal, lines elsewhere."""

    shows_output = True

    def __init__(self, console: Console, words: Words) -> None:
        self._console, self._words = console, words
        self._progress: StudyProgress | None = None

    def say(self, key: str, **values: object) -> None:
        say(self._console, self._words(key, **values))

    def tell(self, sentence: Callable[[Words], str]) -> None:
        say(self._console, sentence(self._words))

    def status(self, activity: Activity) -> AbstractContextManager[object]:
        return showing_status(self._console, activity, self._words)

    def fetching(self) -> AbstractContextManager[Download]:
        return showing_downloads(self._console, self._words)

    def planned(self, study: Study) -> None:
        if study.cells:
            from trainlab.cli.plan_text import print_plan

            print_plan(self._console, study, self._words)

    def seen(self, watched: WatchedRecord) -> None:
        from trainlab.analysis.scripts import lines_so_far

        if lines := lines_so_far(watched, self._words):
            self._say_beside(*lines)

    def running(self, run: RunFolder) -> AbstractContextManager[object]:
        """The same progress each time: what was shown before is not shown again."""
        record = run.study()
        study = record.to_study(str(run.study_file))
        if passes_output_on(study, record.on, record.jobs, record.trial_timeout_s):
            return self._passing_output_on(study, run)
        self._progress = self._progress or StudyProgress(self._console, run, self._words)
        return self._progress.shown()

    @contextmanager
    def _passing_output_on(self, study: Study, run: RunFolder) -> Iterator[None]:
        """A script prints: ours comes before it and after it."""
        assert study.script is not None
        name = study.script.module or Path(study.script.path).name
        self._say_beside(self._words("watching_script", script=name, path=relpath(run.path)))
        try:
            yield
        finally:
            self._say_beside()

    def _say_beside(self, *lines: str) -> None:
        """Lines that cannot be taken for those of the script."""
        if self._console.quiet:
            return
        begin_line()
        if not lines and self._console.is_terminal:
            self._console.rule(style="dim")
        for line in lines:
            say(self._console, f"trainlab: {line}", "dim")


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
    """That data and machine are checked; of each file fetched a bar on a terminal, elsewhere a line."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=None))
    rates = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    is_terminal, tasks = console.is_terminal, dict[str, TaskID]()
    bar = Progress(
        SpinnerColumn(), *columns, *rates, console=console, transient=True, disable=not is_terminal
    )

    checking = ExitStack()

    def show(name: str, done: int, total: int | None) -> None:
        if name not in tasks:
            checking.close()
            bar.start()
            activity = words("activity_fetching", name=name)
            tasks[name] = bar.add_task(activity, total=total)
            if not is_terminal:
                say(console, activity)
        bar.update(tasks[name], completed=done, total=total)

    try:
        with checking:
            checking.enter_context(showing_status(console, "checking", words))
            yield show
    finally:
        bar.stop()


class StudyProgress:
    """One bar for a whole study, with the time left, and a line per result; off a terminal, lines only."""

    def __init__(self, console: Console, run: RunFolder, words: Words) -> None:
        self._console, self._run, self._words = console, run, words
        self._progress = RunProgress(run)
        self._ended = {one.id for one in self._progress.trials.values() if one.is_finished}
        self._label, self._metrics = words("starting"), list[str]()
        self._silence = Silence()
        bar_width = 16 if console.width >= WIDE else 8
        self._bar = Progress(
            SpinnerColumn(),
            # What runs has the room that is left: no number is cut.
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            BarColumn(bar_width=bar_width),
            TextColumn("{task.fields[metrics]}", markup=False),
            TextColumn("{task.fields[left]}", markup=False, style="cyan"),
            console=console,
            expand=True,
            transient=True,
            # Only twice: drawing takes time from what is being measured.
            refresh_per_second=2,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=1.0, metrics="", left="")

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
        progress, words = self._progress, self._words
        for event in progress.new_events():
            shown = self._ratio_so_far if event.kind == "ratio" else self._lines
            for line in shown(event):
                self._print(line)
        if progress.running or progress.num_starting:
            self._label, self._metrics = self._what_runs()
            self._bar.start()
        metrics = words.listed(self._metrics)
        share, left = progress.share_done(), time_left_text(progress.left_s(), words)
        self._bar.update(
            self._task, completed=share, description=self._label, metrics=metrics, left=left
        )
        if not self._console.is_terminal and self._silence.is_too_long():
            self._print(f"{self._label} … {words.listed([*self._metrics, left])}")

    def _what_runs(self) -> tuple[str, list[str]]:
        """What runs, and its metrics: those of several groups would change places with each other. Of
        several only how many, where their names do not fit."""
        words, groups = self._words, list(self._progress.running.values())
        if number := self._progress.num_starting:
            return words("starting_several" if number > 1 else "starting_one", number=number), []
        if len(groups) > 1:
            count = self._count(self._progress.num_begun)
            names = words.listed(self._name(group.trials) for group in groups)
            if cell_len(count + names) > self._console.width // 2:
                names = words("side_by_side", number=len(groups))
            return count + names, []
        label, last = self._numbered(groups[0]), groups[0].last
        if last is None:
            return label, []
        if (last.num_epochs or 1) > 1:
            label = self._epoch_label(label, last)
        train = {n[6:]: v for n, v in last.metrics.items() if n.startswith("train/")}
        return label, metric_texts(train, words)[:2]

    def _lines(self, event: Event) -> Iterator[str]:
        """Of a study a line per trial that has ended; off a terminal also each measurement as it begins,
        and of a single cell each epoch."""
        words, progress = self._words, self._progress
        is_study, is_terminal = progress.is_study, self._console.is_terminal
        match event.kind:
            case "group_begins" if not is_terminal:
                group = progress.running[event.trials]
                if group.trials[0].kind == "cost":
                    yield self._numbered(group)
            case "group_ends":
                # Trials that did not reach their last epoch, or failed; the others have a line.
                for trial_id in event.trials if is_study else ():
                    with suppress(RecordError):  # told when the run is read
                        record = self._run.trial(trial_id).read()
                        if record.state != "pending":  # that is to run in another process
                            self._ended.add(trial_id)
                        if text := end_text(record, words):
                            yield f"{self._ended_label(trial_id)}{words('colon')}{text}"
            case "epoch" if is_study and event.epoch == event.num_epochs:
                yield self._epoch_line(self._ended_label(event.trials[0]), event)
            case "epoch" if not is_study and not is_terminal:
                # Trials that train together go by their own names.
                alone = progress.running.get(event.trials)
                number = progress.num_begun if alone is None else alone.number
                name = self._name([progress.trials[event.trials[0]]])
                label = self._epoch_label(self._count(number) + name, event)
                yield self._epoch_line(label, event)

    def _ratio_so_far(self, event: Event) -> Iterator[str]:
        """Of fresh weights, where its interval is known; with trained ones it is much the same."""
        first, other = (self._progress.trials[one] for one in event.trials)
        ratio, off_by = (event.metrics[name] for name in ("ratio", "off_by"))
        if ratio is not None and off_by is not None and first.weights_of is None:
            told = {"ratio": figure(ratio), "off_by": percent(off_by)}
            mode, cells = self._words.mode(first.mode or ""), (first.cell, other.cell)
            yield self._words("ratio_so_far", first=cells[0], cell=cells[1], mode=mode, **told)

    def _ended_label(self, trial_id: str) -> str:
        """A trial that has ended, with how many have by now, whatever else runs."""
        self._ended.add(trial_id)
        return self._count(len(self._ended)) + self._name([self._progress.trials[trial_id]])

    def _numbered(self, group: RunningGroup) -> str:
        return self._count(group.number) + self._name(group.trials)

    def _name(self, trials: Sequence[TrialRecord]) -> str:
        return group_label(trials, self._words, is_study=self._progress.is_study)

    def _count(self, number: int) -> str:
        """So many trials of all."""
        num_trials = len(self._progress.trials)
        return f"{number}/{num_trials} " if num_trials > 1 else ""

    def _epoch_label(self, label: str, event: Event) -> str:
        return self._words("epoch_of", label=label, epoch=event.epoch, epochs=event.num_epochs)

    def _epoch_line(self, label: str, event: Event) -> str:
        metrics = {name: value for name, value in event.metrics.items() if "/" in name}
        texts, seconds = self._words.listed(metric_texts(metrics, self._words)), event.time_s
        return self._words("epoch_result", label=label, metrics=texts, seconds=f"{seconds:.1f}")

    def _print(self, line: str) -> None:
        self._silence.restart()
        say(self._console, line)
