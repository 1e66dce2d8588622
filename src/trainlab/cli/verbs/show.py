"""trainlab show: what a run has shown, from its records alone."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainlab.cli.options import print_json


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(help="A run folder, finished or not; several of one study are pooled."),
    ],
    lang: Annotated[
        str, typer.Option(metavar="en|zh", help="The language of the findings.")
    ] = "en",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON summary on stdout and nothing else.")
    ] = False,
) -> None:
    """Show the tables and findings of a run."""
    from trainlab.analyse.side_by_side import pooled
    from trainlab.cli.summary import evidence_json, print_study, print_summary, run_json
    from trainlab.lab import open_run
    from trainlab.words import Words

    words = Words(lang)
    folders = [open_run(run) for run in runs]
    evidence = pooled([folder.evidence() for folder in folders])
    if len(folders) > 1:
        if as_json:
            paths = [str(folder.path) for folder in folders]
            print_json({"runs": paths, **evidence_json(evidence)})
        else:
            print_study(Console(), evidence, words)
    elif as_json:
        print_json(run_json(folders[0], evidence))
    else:
        print_summary(Console(), folders[0], evidence, words)
