"""trainlab show: what a run has shown, from its records alone."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainlab.cli.language import words_in
from trainlab.cli.options import JsonOption, LangOption, print_json


def command(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A run folder, finished or not; several of one study are pooled. Without one, those in "
            "runs/ are listed."
        ),
    ] = None,
    with_all: Annotated[
        bool, typer.Option("--all", help="Show every finding before the answer.")
    ] = False,
    lang: LangOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the tables and the answer of a run."""
    from trainlab.analysis.comparison import pooled
    from trainlab.analysis.overview import data_of
    from trainlab.cli.summary import (
        evidence_json,
        print_answer,
        print_data,
        print_study,
        print_summary,
        run_json,
    )
    from trainlab.lab import open_run

    words = words_in(lang)
    if not runs:
        from trainlab.cli.verbs.under_way.listed import print_runs

        print_runs(words, print_json if as_json else None)
        return
    folders = [open_run(path) for path in runs]
    evidence, is_pooled = pooled([folder.evidence() for folder in folders], runs), len(folders) > 1
    if as_json and is_pooled:
        paths = [str(folder.path) for folder in folders]
        print_json({"runs": paths, **evidence_json(evidence)})
    elif as_json:
        print_json(run_json(folders[0], evidence))
    elif is_pooled:
        data = data_of(evidence)
        print_study(Console(), data, words, with_all=with_all)
        print_data(Console(), evidence, words)
        print_answer(Console(), data, words)
    else:
        data = data_of(evidence)
        if evidence.diagnosis is None:
            print_summary(Console(), folders[0], data, words, with_all=with_all)
            return
        from trainlab.cli.verbs.scripts.diagnose import print_diagnosis

        if with_all:
            print_study(Console(), data, words, with_all=True)
        print_diagnosis(Console(), folders[0], evidence.diagnosis, words, with_all=with_all)
