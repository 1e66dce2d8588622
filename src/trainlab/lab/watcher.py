"""The watcher of a run: told what happens, it steers nothing."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

from trainlab.record.run_folder import RunFolder
from trainlab.spec import Study

Activity = Literal["starting_torch", "reading_records", "counting_decided"]
"""What takes long beside the trials."""


class Watcher:
    """Is told what happens while a question is answered; this one ignores it all."""

    def status(self, activity: Activity) -> AbstractContextManager[object]:
        """Entered during an activity that takes long."""
        return nullcontext()

    def preparing(self) -> AbstractContextManager[object]:
        """Entered while the machine is checked and data is fetched; `downloads` is called meanwhile."""
        return nullcontext()

    def downloads(self, name: str, done: int, total: int | None) -> None:
        """`done` bytes of a file have been downloaded, of `total` where that is known."""

    def planned(self, study: Study) -> None:
        """All checks have passed; this is what will be run."""

    def added(self, num_open: int, num_seeds: int) -> None:
        """So many comparisons are open; seeds are added up to `num_seeds`."""

    def gave_up(self, num_hopeless: int) -> None:
        """So many comparisons are open that seeds cannot decide; none is added for them."""

    def watching(self, driver: str) -> None:
        """The run has a driver on another machine; whether it is alive will be seen in some seconds."""

    def resumed(self, num_left: int, num_trials: int) -> None:
        """A run goes on: so many of its trials are left to run."""

    def running(self, run: RunFolder) -> AbstractContextManager[object]:
        """Entered while trials run; the events in the run folder say how far they are."""
        return nullcontext()
