"""What a person sees while trials run: a bar on a terminal, a line every few seconds elsewhere.

Everything comes from the events in the run folder and is shown by a thread of its own: whatever happens
to the terminal does not disturb the trials.
"""

import threading
import time
from collections.abc import Iterable
from datetime import datetime
from itertools import chain, islice

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from trainlab.cli.progress.heartbeat import Silence
from trainlab.cli.progress.time_left import TimeLeft
from trainlab.errors import RecordError
from trainlab.record.event import Event, EventReader
from trainlab.record.folder import RunFolder
from trainlab.record.trial import TrialRecord
from trainlab.words.numbers import metric_value

POLL_S = 0.2
"""Between two reads of the events."""

WATCH_TEXTS = {
    "steps": "timing steps",
    "operators": "profiling operators",
    "layers": "watching layers and memory",
}


class StudyProgress:
    """One bar for a whole study, with the time left, and a line per result; off a terminal, lines only.

    Entered once more, it goes on where it was: trials may have been planned meanwhile.
    """

    def __init__(self, console: Console, run: RunFolder) -> None:
        trials = run.trials()
        self._console, self._events = console, EventReader(run.events_folder)
        self._run = run
        self._event_time_s: float | None = None
        """Of the event being handled; None between events."""
        self._time_left = TimeLeft(trials, self._now_s)
        self._is_study = len({trial.cell for trial in trials}) > 1
        self._trials = {trial.id: trial for trial in trials}
        self._label = self._metrics = ""
        self._silence = Silence()
        self._is_over = threading.Event()
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[metrics]}"),
            _TimeLeftColumn(self._time_left),
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
        self._thread.start()
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
                count = len(event.groups)
                processes = "a fresh process" if count == 1 else f"{count} fresh processes"
                self._set_label(f"starting {processes}")
            case "ready":
                self._time_left.ready()
            case "group_begins":
                self._begin_group(event.trials)
            case "group_ends":
                self._time_left.group_ends()
                self._print_ends(event.trials)
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

    def _begin_group(self, trial_ids: tuple[str, ...]) -> None:
        time_left = self._time_left
        time_left.group_begins(*trial_ids)
        count = f"{time_left.number}/{time_left.num_trials} " if time_left.num_trials > 1 else ""
        first, *others = (self._trials[trial_id] for trial_id in trial_ids)
        if others and all(trial.watch == "steps" for trial in (first, *others)):
            text = f"{first.mode}: timing steps of {len(trial_ids)} processes in turns"
            self._set_label(f"{count}{text}")
            if not self._console.is_terminal:
                self._print(self._label)
            return
        also = "".join(f", {WATCH_TEXTS[other.watch or 'steps']}" for other in others)
        self._set_label(f"{count}{_trial_text(first, self._is_study)}{also}")
        if first.kind == "cost" and not self._console.is_terminal:
            self._print(self._label)

    def _show_progress(self, event: Event) -> None:
        self._time_left.progress(event.share or 0.0)
        train = ((n[6:], v) for n, v in event.metrics.items() if n.startswith("train/"))
        self._metrics = _metrics_text(dict(islice(train, 2)))
        several = (event.num_epochs or 1) > 1
        description = self._epoch_label(event) if several else self._label
        self._bar.update(self._task, description=description, metrics=self._metrics)

    def _print_epoch(self, event: Event) -> None:
        """Of a study a line per trial; of a single cell a line per epoch, off a terminal only."""
        is_last = event.epoch == event.num_epochs
        if is_last if self._is_study else not self._console.is_terminal:
            metrics = {name: value for name, value in event.metrics.items() if "/" in name}
            label = self._label if self._is_study else self._epoch_label(event)
            self._print(f"{label}: {_metrics_text(metrics)}, {event.time_s:.1f} s")

    def _print_ends(self, trial_ids: tuple[str, ...]) -> None:
        """Of a study, the trials that did not reach their last epoch, or failed; the others have a line."""
        for trial_id in trial_ids if self._is_study else ():
            try:
                trial = self._run.trial(trial_id).read()
            except RecordError:
                continue  # told when the run is read
            if text := _end_text(trial):
                is_alone = len(trial_ids) == 1
                label = self._label if is_alone else _trial_text(trial, self._is_study)
                self._print(f"{label}: {text}")

    def _epoch_label(self, event: Event) -> str:
        return f"{self._label} epoch {event.epoch}/{event.num_epochs}"

    def _set_label(self, label: str) -> None:
        """What the bar says runs, until the next label; the metrics of what ran before are cleared."""
        self._label, self._metrics = label, ""
        self._bar.start()
        self._bar.update(self._task, description=label, metrics="", visible=True)

    def _print_heartbeat(self) -> None:
        parts = [part for part in (self._metrics, _time_left_text(self._time_left)) if part]
        self._print(f"{self._label or 'starting'} … {', '.join(parts)}")

    def _print(self, line: str) -> None:
        self._silence.restart()
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _now_s(self) -> float:
        """The time of the event being handled, else now."""
        return time.time() if self._event_time_s is None else self._event_time_s


class _TimeLeftColumn(ProgressColumn):
    """Time left, counted down at every refresh, whether or not anything was reported since."""

    def __init__(self, time_left: TimeLeft) -> None:
        super().__init__()
        self._time_left = time_left

    def render(self, task: Task) -> Text:
        return Text(_time_left_text(self._time_left), style="cyan")


def _time_left_text(time_left: TimeLeft) -> str:
    left_s = time_left.left_s()
    return "estimating" if left_s is None else f"{_duration_text(left_s)} left"


def _trial_text(trial: TrialRecord, is_study: bool) -> str:
    """A trial of a study goes by its cell's name, one without a study by the workload's."""
    if trial.kind == "learn":
        seed = f" seed {trial.seed}" if is_study or trial.seed != 1 else ""
        return f"{trial.cell if is_study else trial.workload}{seed}"
    again = " again" if trial.again else ""
    cell = f"{trial.cell} " if is_study else ""
    return f"{cell}{trial.mode}{again}: {WATCH_TEXTS[trial.watch or 'steps']}"


def _end_text(trial: TrialRecord) -> str:
    """How a trial ended, where that was not its last epoch; empty otherwise."""
    if trial.state == "failed" and trial.error is not None:
        first_line = next(iter(trial.error.message.splitlines()), "")
        return f"failed: {trial.error.kind}: {first_line}"
    if trial.state != "diverged":
        return ""
    if trial.diverged_at_step is not None:
        return f"diverged at update {trial.diverged_at_step:,}"
    is_last = trial.epochs_done == trial.settings.get("epochs")
    return "" if is_last else f"diverged in the test after epoch {trial.epochs_done}"


def _duration_text(duration_s: float) -> str:
    minutes, seconds = divmod(max(0, round(duration_s)), 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02} min" if minutes else f"{seconds} s"
    return f"{minutes // 60}:{minutes % 60:02} h"


def _metrics_text(metrics: dict[str, float | None]) -> str:
    """`train loss 0.3012, test accuracy 87.10%`."""
    return ", ".join(f"{n.replace('/', ' ')} {metric_value(n, v)}" for n, v in metrics.items())
