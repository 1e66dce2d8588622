"""What a person sees while trials run: a bar on a terminal, a line every few seconds elsewhere."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

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

from trainlab.cli.progress.heartbeat import Heartbeat
from trainlab.cli.progress.time_left import Pace
from trainlab.execute.executors.processes import Ids
from trainlab.record.schema import TrialRecord
from trainlab.train.moments import Instrument, Point
from trainlab.train.moments import Progress as TrialProgress
from trainlab.train.setup import Bench
from trainlab.words.numbers import metric_value

REFRESH_S = 0.1

LOOKS = {
    "steps": "timing steps",
    "operators": "profiling operators",
    "layers": "watching layers and memory",
}


class StudyProgress(Instrument):
    """One bar for a whole study, with the time left, and a line per result. Off a terminal, lines only."""

    def __init__(self, console: Console, trials: Sequence[TrialRecord]) -> None:
        self._console = console
        self._pace = Pace(trials)
        self._is_study = len({trial.cell for trial in trials}) > 1
        self._names = {trial.id: _name(trial, self._is_study) for trial in trials}
        self._looks = {trial.id: LOOKS[trial.watch or "steps"] for trial in trials}
        self._shown_at = 0.0
        self._label = self._told = ""
        self._beat = Heartbeat(self._tell_place)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[told]}"),
            _LeftColumn(self._pace),
            console=console,
            transient=True,
            # Seldom: drawing takes time from what is being measured.
            refresh_per_second=2,
            disable=not console.is_terminal,
        )
        self._task: TaskID = self._bar.add_task("", total=1.0, told="", visible=False)

    def __enter__(self) -> "StudyProgress":
        if not self._console.is_terminal:
            self._beat.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._beat.stop()
        self._bar.stop()

    @contextmanager
    def starting(self, processes: Sequence[Ids]) -> Iterator[None]:
        """While fresh processes start."""
        self._pace.starting(processes)
        count = "a fresh process" if len(processes) == 1 else f"{len(processes)} fresh processes"
        self._show(f"starting {count}")
        yield
        self._pace.started()

    @contextmanager
    def running(self, trial_ids: Ids) -> Iterator[None]:
        """While trials run in a process of their own."""
        self._begins(*trial_ids)
        if not self._console.is_terminal:
            self._say(self._label)
        yield
        self._pace.ends()

    def trial_begins(self, bench: Bench) -> None:
        self._epochs = bench.settings.epochs
        self._steps = self._epochs * len(bench.train_batches)
        self._begins(bench.trial.id)

    def epoch_begins(self, epoch: int) -> None:
        if self._epochs > 1:
            self._bar.update(self._task, description=f"{self._label} epoch {epoch}/{self._epochs}")

    def step_ends(self, step: int) -> None:
        now = time.monotonic()
        if now - self._shown_at >= REFRESH_S:
            self._shown_at = now
            self._pace.is_at(step / self._steps)
            self._bar.update(self._task, completed=self._pace.share_done())

    def point_logged(self, point: Point) -> None:
        train = {n[6:]: v for n, v in point.metrics.items() if n.startswith("train/")}
        self._told = metrics_told({n: train[n] for n in list(train)[:2]})
        self._bar.update(self._task, told=self._told)

    def epoch_ends(self, point: Point) -> None:
        last = point.epoch == self._epochs
        if (self._is_study and last) or (not self._is_study and not self._console.is_terminal):
            shown = {name: value for name, value in point.metrics.items() if "/" in name}
            epoch = "" if self._is_study else f" epoch {point.epoch}/{self._epochs}"
            time_s = point.times_s["time_s"]
            self._say(f"{self._label}{epoch}: {metrics_told(shown)}, {time_s:.1f} s")

    def trial_ends(self, progress: TrialProgress) -> None:
        self._pace.ends()

    def _begins(self, *trial_ids: str) -> None:
        self._pace.begins(*trial_ids)
        place = f"{self._place()} " if self._pace.num_trials > 1 else ""
        first, *others = trial_ids
        also = "".join(f", {self._looks[other]}" for other in others)
        self._show(f"{place}{self._names[first]}{also}")

    def _show(self, label: str) -> None:
        """On the bar, from now on."""
        self._label, self._told = label, ""
        self._bar.start()
        self._bar.update(
            self._task,
            description=label,
            told="",
            visible=True,
            completed=self._pace.share_done(),
        )

    def _place(self) -> str:
        return f"{self._pace.number}/{self._pace.num_trials}"

    def _tell_place(self) -> None:
        told = [part for part in (self._told, _left_told(self._pace)) if part]
        self._say(f"{self._label or 'starting'} … {', '.join(told)}")

    def _say(self, line: str) -> None:
        self._beat.was_told()
        self._console.print(line, soft_wrap=True, highlight=False)


class _LeftColumn(ProgressColumn):
    """Time left, counted down at every refresh, whether or not anything was reported since."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> Text:
        return Text(_left_told(self._pace), style="cyan")


def _left_told(pace: Pace) -> str:
    left = pace.left_s()
    return "estimating" if left is None else f"{_time_told(left)} left"


def _name(trial: TrialRecord, is_study: bool) -> str:
    """A cell of a study goes by its own name, a lone one by the workload's."""
    if trial.kind == "learn":
        seed = f" seed {trial.seed}" if is_study or trial.seed != 1 else ""
        return f"{trial.cell if is_study else trial.workload}{seed}"
    mode = (trial.cost or {}).get("mode", "train")
    again = " again" if trial.again else ""
    cell = f"{trial.cell} " if is_study else ""
    return f"{cell}{mode}{again}: {LOOKS[trial.watch or 'steps']}"


def _time_told(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02} h"


class DownloadProgress:
    """A bar per file that is being downloaded; off a terminal, a line per file."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("fetching {task.description}"),
            BarColumn(),
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what not in self._tasks:
            self._bar.start()
            self._tasks[what] = self._bar.add_task(what, total=total)
            if not self._console.is_terminal:
                self._console.print(f"fetching {what}", soft_wrap=True)
        self._bar.update(self._tasks[what], completed=done, total=total)


def metrics_told(metrics: dict[str, float]) -> str:
    """`train loss 0.3012, test accuracy 87.10 %`."""
    return ", ".join(f"{n.replace('/', ' ')} {metric_value(n, v)}" for n, v in metrics.items())
