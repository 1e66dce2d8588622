"""A study performed before a person's eyes: data fetched, trials run, what happens shown."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from trainlab.cli.progress.study import DownloadProgress, StudyProgress
from trainlab.data.fetch import reporting_to
from trainlab.execute.resolve import resolve
from trainlab.execute.run import run_study, start_run
from trainlab.execute.worker import Loader
from trainlab.record.folder import RunFolder
from trainlab.spec import Question, Study


def resolved(
    console: Console, load: Loader, question: Question, where: str, *, many: bool = False
) -> Study:
    """The study a question asks for, once its data is here."""
    with _terminable(), DownloadProgress(console) as progress, reporting_to(progress):
        return resolve(load, question, where, many=many)


def perform(
    console: Console, load: Loader, study: Study, out: Path | None, budget_s: float | None = None
) -> tuple[RunFolder, bool]:
    """Runs a study and shows how far it is; says where it is recorded and whether it was interrupted."""
    folder = start_run(study, out)
    try:
        with _terminable(), StudyProgress(console, folder.trials()) as progress:
            run_study(folder, [progress], load, progress, budget_s)
    except KeyboardInterrupt:
        return folder, True
    return folder, False


@contextmanager
def _terminable() -> Iterator[None]:
    """A polite kill, or a closed terminal, ends a run as Ctrl-C does: recorded as interrupted."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    known = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    # One that is ignored stays so: under nohup a run is meant to outlive its terminal.
    numbers = [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
