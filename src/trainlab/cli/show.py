"""trainlab show: what a run has shown, from its records alone."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def command(
    run: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
    lang: Annotated[
        str, typer.Option(metavar="en|zh", help="The language of the findings.")
    ] = "en",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON summary on stdout and nothing else.")
    ] = False,
) -> None:
    """Show the tables and findings of a run."""
    from trainlab.cli.summary import print_summary, summary
    from trainlab.lab import open_run
    from trainlab.report.language import check_language

    check_language(lang)
    folder = open_run(run)
    if as_json:
        sys.stdout.write(json.dumps(summary(folder), allow_nan=False) + "\n")
    else:
        print_summary(Console(), folder, lang)
