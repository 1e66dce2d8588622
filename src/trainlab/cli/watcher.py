"""Shows a person what happens while a question is answered."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from trainlab.cli.plan import print_plan
from trainlab.cli.progress.downloads import DownloadProgress
from trainlab.cli.progress.heartbeat import showing_status
from trainlab.lab import Watcher
from trainlab.record.folder import RunFolder
from trainlab.spec import Study

if TYPE_CHECKING:
    from trainlab.cli.progress.study import StudyProgress


class ConsoleWatcher(Watcher):
    """Spinners and bars on a terminal, lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._download: DownloadProgress | None = None
        self._progress: StudyProgress | None = None

    def status(self, activity: str) -> AbstractContextManager[object]:
        return showing_status(self._console, activity)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        with DownloadProgress(self._console) as self._download:
            yield

    def downloads(self, name: str, done: int, total: int | None) -> None:
        if self._download is not None:
            self._download(name, done, total)

    def planned(self, study: Study) -> None:
        if study.cells:
            print_plan(self._console, study)

    def added(self, num_open: int, num_seeds: int) -> None:
        comparisons = "1 comparison is" if num_open == 1 else f"{num_open} comparisons are"
        self._console.print(f"{comparisons} open; going on to {num_seeds} seeds.", highlight=False)

    def gave_up(self, num_hopeless: int) -> None:
        stay = "1 comparison stays" if num_hopeless == 1 else f"{num_hopeless} comparisons stay"
        self._console.print(
            f"{stay} open, and more seeds would not decide it: a setting never trains to its end, or "
            "diverges more often than the other. No seeds are added.",
            highlight=False,
        )

    def running(self, run: RunFolder) -> AbstractContextManager[object]:
        """The same progress each time: what was shown before is not shown again."""
        from trainlab.cli.progress.study import StudyProgress

        if self._progress is None:
            self._progress = StudyProgress(self._console, run)
        return self._progress
