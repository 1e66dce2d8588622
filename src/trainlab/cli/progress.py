"""What a person sees while trials run: a bar on a terminal, a line per epoch elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from trainlab.record.folder import RunFolder
from trainlab.train.bench import Bench
from trainlab.train.moments import Instrument, Point
from trainlab.train.moments import Progress as TrialProgress

REFRESH_S = 0.1


class TrainingProgress(Instrument):
    """A bar with epoch, loss, accuracy and time left; off a terminal, a line per epoch."""

    def __init__(self, console: Console, num_trials: int) -> None:
        self._console = console
        self._num_trials = num_trials
        self._trial = 0
        self._shown_at = 0.0
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TaskProgressColumn(),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "TrainingProgress":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def trial_begins(self, bench: Bench) -> None:
        self._trial += 1
        self._epochs = bench.settings.epochs
        self._label = bench.workload.name
        if self._num_trials > 1:
            self._label += f" trial {self._trial}/{self._num_trials}"
        total = self._epochs * len(bench.train_batches)
        self._task: TaskID = self._bar.add_task(self._label, total=total, told="")

    def epoch_begins(self, epoch: int) -> None:
        self._bar.update(self._task, description=f"{self._label} epoch {epoch}/{self._epochs}")

    def step_ends(self, step: int) -> None:
        now = time.monotonic()
        if now - self._shown_at >= REFRESH_S:
            self._shown_at = now
            self._bar.update(self._task, completed=step)

    def point_logged(self, point: Point) -> None:
        train = {n[6:]: v for n, v in point.metrics.items() if n.startswith("train/")}
        told = metrics_told({n: train[n] for n in list(train)[:2]})
        self._bar.update(self._task, completed=point.step, told=told)

    def epoch_ends(self, point: Point) -> None:
        if not self._console.is_terminal:
            shown = {name: value for name, value in point.metrics.items() if "/" in name}
            self._console.print(
                f"{self._label} epoch {point.epoch}/{self._epochs}: {metrics_told(shown)}, "
                f"{point.times_s['time_s']:.1f} s",
                soft_wrap=True,
            )

    def trial_ends(self, progress: TrialProgress) -> None:
        self._bar.remove_task(self._task)


LOOKS = {
    "steps": "timing steps",
    "operators": "profiling operators",
    "layers": "watching layers and memory",
}


class FreshProgress:
    """A bar over the trials that run in processes of their own; off a terminal, a line for each."""

    def __init__(self, console: Console, folder: RunFolder) -> None:
        self._console = console
        self._looks = {
            trial.id: LOOKS[trial.watch or "steps"]
            for trial in folder.trials()
            if trial.kind == "cost"
        }
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
            transient=True,
            # Seldom: drawing takes time from the process that is being measured.
            refresh_per_second=2,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "FreshProgress":
        self._task: TaskID = self._bar.add_task("", total=len(self._looks), visible=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    @contextmanager
    def __call__(self, trial_id: str) -> Iterator[None]:
        """Around one trial."""
        number = list(self._looks).index(trial_id) + 1
        told = f"fresh process {number}/{len(self._looks)}: {self._looks[trial_id]}"
        self._bar.start()
        self._bar.update(self._task, description=told, visible=True)
        if not self._console.is_terminal:
            self._console.print(told, soft_wrap=True)
        yield
        self._bar.update(self._task, completed=number)


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
    return ", ".join(f"{n.replace('/', ' ')} {value_told(n, v)}" for n, v in metrics.items())


def value_told(name: str, value: float | None) -> str:
    """A metric as people write it: accuracies in per cent, the rest to four places or three digits."""
    if value is None:
        return "not finite"
    if name.endswith("accuracy"):
        return f"{100 * value:.2f} %"
    return f"{value:.4f}" if abs(value) >= 0.01 else f"{value:.3g}"
