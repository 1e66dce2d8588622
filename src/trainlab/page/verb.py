"""trainlab page: a folder of runs in a browser."""

import signal
from pathlib import Path
from typing import Annotated

from pydantic import Field
from rich.console import Console

from trainlab.cli.options import Verb, option, word
from trainlab.cli.output import say
from trainlab.errors import RecordError
from trainlab.extras import check_extra
from trainlab.machine.processes import end_with_parent
from trainlab.record.files import make_folder
from trainlab.record.run_folder import RUNS


class PageVerb(Verb):
    """Runs in a browser: each as its report, while it runs and afterwards; compared, started and stopped.

    trainlab page
    trainlab page runs/mnist-lab-2026-01-31T10-15-00
    """

    folder: Path = word("FOLDER", default=RUNS)
    """A run folder, or a folder of run folders."""
    runs: Path | None = option("RUNS")
    """Where the runs of hand-ins are, for the page of a class; not given: FOLDER."""
    port: Annotated[int, Field(ge=0, le=65535)] | None = option(
        "PORT", shown="8420, or the next free"
    )
    """Port; 0 takes a free one."""
    host: str = option("HOST", "", "127.0.0.1")
    """Address to listen on; loopback: this machine only."""
    read_only: bool = option("", "", False)
    """For showing: nothing can be started or stopped from it."""
    newest: bool = option("", "", False)
    """Open the next run that begins, once it is there."""
    open: bool = option("", "", True, shown="opened where there is one")
    """Open a browser."""

    def __call__(self) -> None:
        for package in ("starlette", "uvicorn", "jinja2", "vl_convert"):
            check_extra(package, "the page", "page")
        from trainlab.page.folder import ServedFolder
        from trainlab.page.server import serve

        if self.folder == RUNS:
            make_folder(RUNS)
        if not self.folder.is_dir():
            found = "is a file" if self.folder.exists() else "no such folder"
            raise RecordError(f"{self.folder}: {found}; name a folder of runs, as runs")
        if self.newest:
            end_with_parent(signal.SIGTERM)  # opened beside a run, it ends with it
        console = Console(stderr=True)
        served = ServedFolder(
            self.folder, lang=self.words.lang, runs=self.runs, is_read_only=self.read_only
        )
        place = "newest" if self.newest else ""
        warn = lambda key: say(console, self.words(key))  # noqa: E731
        serve(served, self.host, self.port, place, warn, is_opened=self.open)
