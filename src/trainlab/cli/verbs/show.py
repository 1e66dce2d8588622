"""trainlab show: what a run has shown, from its records alone."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


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
    from trainlab.analyse.runs import pooled
    from trainlab.cli.summary import evidence_told, print_study, print_summary, summary
    from trainlab.lab import open_run
    from trainlab.words import check_language

    check_language(lang)
    folders = [open_run(run) for run in runs]
    if len(folders) > 1:
        evidence = pooled([folder.evidence() for folder in folders])
        if as_json:
            told = {"runs": [str(folder.path) for folder in folders], **evidence_told(evidence)}
            sys.stdout.write(json.dumps(told, allow_nan=False) + "\n")
        else:
            print_study(Console(), evidence, lang)
    elif as_json:
        sys.stdout.write(
            json.dumps(summary(folders[0], folders[0].evidence()), allow_nan=False) + "\n"
        )
    else:
        print_summary(Console(), folders[0], folders[0].evidence(), lang)
