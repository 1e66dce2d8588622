"""Shows a person what happens while a question is answered."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from trainlab.cli.lines import print_line
from trainlab.cli.plan import print_plan
from trainlab.cli.progress.downloads import DownloadProgress
from trainlab.cli.progress.heartbeat import showing_status
from trainlab.lab import Activity, Watcher
from trainlab.record.run_folder import RunFolder
from trainlab.spec import Study
from trainlab.words import Words

if TYPE_CHECKING:
    from trainlab.cli.progress.study import StudyProgress


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
        self._say(self._words("watching_driver", driver=driver))

    def resumed(self, num_left: int, num_trials: int) -> None:
        key = "resumed" if num_left else "nothing_left"
        self._say(self._words(key, left=num_left, all=num_trials))

    def added(self, num_open: int, num_seeds: int) -> None:
        key = "one_comparison_open" if num_open == 1 else "comparisons_open"
        self._say(self._words(key, number=num_open, seeds=num_seeds))

    def gave_up(self, num_hopeless: int) -> None:
        key = "one_comparison_hopeless" if num_hopeless == 1 else "comparisons_hopeless"
        self._say(self._words(key, number=num_hopeless))

    def running(self, run: RunFolder) -> AbstractContextManager[object]:
        """The same progress each time: what was shown before is not shown again."""
        from trainlab.cli.progress.study import StudyProgress

        if self._progress is None:
            self._progress = StudyProgress(self._console, run, self._words)
        return self._progress

    def _say(self, line: str) -> None:
        print_line(self._console, line)
