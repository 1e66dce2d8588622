"""trainlab cancel: stop a run, wherever it runs, as Ctrl-C would."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption
from trainlab.execute.lease import ask_to_stop, holder_of, leased
from trainlab.execute.planned_run import mark_interrupted
from trainlab.lab import open_run
from trainlab.record.run_folder import RunFolder

PATIENCE_S = 30.0
"""How long a driver may take to close its records."""
POLL_S = 0.1


def _is_driven(run: RunFolder) -> bool:
    """Whether somebody runs it, as far as can be told."""
    driver = holder_of(run)
    return driver is not None and not driver.is_dead


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    lang: LangOption = None,
) -> None:
    """Stop a run; trials that run are recorded as interrupted."""
    words, folder, console = words_in(lang), open_run(run), Console()
    if _is_driven(folder):
        ask_to_stop(folder)
    deadline_s = time.monotonic() + PATIENCE_S
    while _is_driven(folder) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    with leased(folder):  # refused where its driver is alive and does not stop
        mark_interrupted(folder)
    console.print(words("cancelled", path=run), soft_wrap=True, highlight=False, markup=False)
