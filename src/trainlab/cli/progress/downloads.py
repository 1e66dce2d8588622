"""What a person sees before the first trial: that the machine is checked, and what is being downloaded."""

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

from trainlab.words import Words


class DownloadProgress:
    """A bar per file that is being downloaded; off a terminal, a line per file."""

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
                self._console.print(activity, soft_wrap=True, markup=False)
        self._bar.update(self._tasks[name], completed=done, total=total)
