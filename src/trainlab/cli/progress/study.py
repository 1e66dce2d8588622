"""What a person sees while trials run: a bar on a terminal, a line every few seconds elsewhere.

All of it is learnt from the events in the run folder, in a thread of its own: whatever happens to the
terminal, the trials do not notice.
"""

import threading
import time
from datetime import datetime
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.text import Text

from trainlab.cli.progress.heartbeat import Silence
from trainlab.cli.progress.time_left import TimeLeft
from trainlab.record.event import Event, EventReader
from trainlab.record.folder import RunFolder
from trainlab.record.trial import TrialRecord
from trainlab.words.numbers import metric_value

LOOK_S = 0.2
"""Between two looks at the events."""

LOOKS = {
    "steps": "timing steps",
    "operators": "profiling operators",
    "layers": "watching layers and memory",
}


class StudyProgress:
    """One bar for a whole study, with the time left, and a line per result. Off a terminal, lines only."""

    def __init__(self, console: Console, run: RunFolder) -> None:
        trials = run.trials()
        self._console, self._events = console, EventReader(run.events_folder)
        self._at: float | None = None
        self._time_left = TimeLeft(trials, self._clock)
        self._is_study = len({trial.cell for trial in trials}) > 1
        self._trials = {trial.id: trial for trial in trials}
        self._label = self._metrics = ""
        self._silence = Silence()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[metrics]}"),
            _TimeLeftColumn(self._time_left),
            console=console,
            transient=True,
            # Seldom: drawing takes time from what is being measured.
            refresh_per_second=2,
            disable=not console.is_terminal,
        )
        self._task: TaskID = self._bar.add_task("", total=1.0, metrics="", visible=False)

    def __enter__(self) -> "StudyProgress":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._bar.stop()

    def _watch(self) -> None:
        try:
            while not self._is_over.wait(LOOK_S):
                self._look()
                if not self._console.is_terminal and self._silence.lasts_too_long():
                    self._say_place()
            self._look()
        except OSError:
            return  # the terminal is gone; the trials go on

    def _look(self) -> None:
        for event in self._events.new():
            self._at = datetime.fromisoformat(event.at).timestamp()
            self._handle(event)
        self._at = None
        self._bar.update(self._task, completed=self._time_left.share_done())

    def _handle(self, event: Event) -> None:
        match event.kind:
            case "starting":
                self._time_left.starting(event.groups)
                number = len(event.groups)
                self._show(
                    f"starting {'a' if number == 1 else number} fresh process" + "es" * (number > 1)
                )
            case "ready":
                self._time_left.started()
            case "group_begins":
                self._begin(event.trials)
            case "group_ends":
                self._time_left.ends()
            case "progress":
                self._progress(event)
            case "epoch":
                self._progress(event)
                self._say_epoch(event)

    def _begin(self, trial_ids: tuple[str, ...]) -> None:
        self._time_left.begins(*trial_ids)
        place = f"{self._place()} " if self._time_left.num_trials > 1 else ""
        first, *others = (self._trials[trial_id] for trial_id in trial_ids)
        also = "".join(f", {LOOKS[other.watch or 'steps']}" for other in others)
        self._show(f"{place}{_name(first, self._is_study)}{also}")
        if first.kind == "cost" and not self._console.is_terminal:
            self._say(self._label)

    def _progress(self, event: Event) -> None:
        self._time_left.is_at(event.share or 0.0)
        train = {n[6:]: v for n, v in event.metrics.items() if n.startswith("train/")}
        self._metrics = metrics_text({n: train[n] for n in list(train)[:2]})
        self._bar.update(self._task, description=self._with_epoch(event), metrics=self._metrics)

    def _say_epoch(self, event: Event) -> None:
        is_last = event.epoch == event.num_epochs
        if (self._is_study and is_last) or (not self._is_study and not self._console.is_terminal):
            shown = {name: value for name, value in event.metrics.items() if "/" in name}
            label = self._label if self._is_study else self._with_epoch(event, always=True)
            self._say(f"{label}: {metrics_text(shown)}, {event.time_s:.1f} s")

    def _with_epoch(self, event: Event, *, always: bool = False) -> str:
        several = always or (event.num_epochs or 1) > 1
        return f"{self._label} epoch {event.epoch}/{event.num_epochs}" if several else self._label

    def _show(self, label: str) -> None:
        """On the bar, from now on."""
        self._label, self._metrics = label, ""
        self._bar.start()
        self._bar.update(self._task, description=label, metrics="", visible=True)

    def _place(self) -> str:
        return f"{self._time_left.number}/{self._time_left.num_trials}"

    def _say_place(self) -> None:
        parts = [part for part in (self._metrics, _left_text(self._time_left)) if part]
        self._say(f"{self._label or 'starting'} … {', '.join(parts)}")

    def _say(self, line: str) -> None:
        self._silence.is_broken()
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _clock(self) -> float:
        """The time of the event that is being looked at, else now."""
        return time.time() if self._at is None else self._at


class _TimeLeftColumn(ProgressColumn):
    """Time left, counted down at every refresh, whether or not anything was reported since."""

    def __init__(self, time_left: TimeLeft) -> None:
        super().__init__()
        self._time_left = time_left

    def render(self, task: Task) -> Text:
        return Text(_left_text(self._time_left), style="cyan")


def _left_text(time_left: TimeLeft) -> str:
    left = time_left.left_s()
    return "estimating" if left is None else f"{_duration(left)} left"


def _name(trial: TrialRecord, is_study: bool) -> str:
    """A cell of a study goes by its own name, a lone one by the workload's."""
    if trial.kind == "learn":
        seed = f" seed {trial.seed}" if is_study or trial.seed != 1 else ""
        return f"{trial.cell if is_study else trial.workload}{seed}"
    again = " again" if trial.again else ""
    cell = f"{trial.cell} " if is_study else ""
    return f"{cell}{trial.mode}{again}: {LOOKS[trial.watch or 'steps']}"


def _duration(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02} h"


def metrics_text(metrics: dict[str, float | None]) -> str:
    """`train loss 0.3012, test accuracy 87.10 %`."""
    return ", ".join(f"{n.replace('/', ' ')} {metric_value(n, v)}" for n, v in metrics.items())
