"""trainlab status: how far a run is, from its folder alone, once or until it ends."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption, print_json
from trainlab.cli.verbs.under_way.listed import print_runs
from trainlab.lab import open_run
from trainlab.lab.run_progress import Onlooker, overview_json, overview_lines
from trainlab.words import Words

LOOK_S = 0.5
"""Between two looks on a terminal."""
LINES_S = 5.0
"""Between two looks elsewhere, so that a log stays readable."""


def command(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="A run folder, finished or not; without one, those in runs/ are listed.",
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again and again, until nobody runs it.")
    ] = False,
    lang: LangOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON summary on stdout and nothing else.")
    ] = False,
) -> None:
    """Say how far a run is; nothing of it is changed."""
    words = words_in(lang)
    if run is None:
        print_runs(words, print_json if as_json else None)
        return
    onlooker = Onlooker(open_run(run))
    if as_json:
        print_json(overview_json(onlooker.look(), str(run)))
        return
    console = Console()
    if watch and console.is_terminal:
        _watch(console, onlooker, run, words)
        return
    text, is_driven = _text(onlooker, run, words)
    console.print(text, soft_wrap=True)
    while watch and is_driven:
        until_s = time.monotonic() + LINES_S
        # Its end is seen at once: what was last told would be old by then.
        while is_driven and time.monotonic() < until_s:
            time.sleep(LOOK_S)
            text, is_driven = _text(onlooker, run, words)
        console.print(text, soft_wrap=True)


def _watch(console: Console, onlooker: Onlooker, run: Path, words: Words) -> None:
    """One picture that changes; lines that are too long are broken, none is cut."""
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        is_driven = True
        while is_driven:
            text, is_driven = _text(onlooker, run, words)
            live.update(text, refresh=True)
            if is_driven:
                time.sleep(LOOK_S)


def _text(onlooker: Onlooker, run: Path, words: Words) -> tuple[Text, bool]:
    """What is to be seen, and whether somebody runs it."""
    overview = onlooker.look()
    lines = overview_lines(overview, str(run), words)
    return Text("\n".join(lines), overflow="fold"), overview.is_driven
