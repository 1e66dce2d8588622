"""trainlab report: a run's report, written from its records alone."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainlab.cli.options import LangOption


def command(
    run: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
    formats: Annotated[
        str,
        typer.Option(
            "--format", metavar="html,md,pdf", help="One or several, with commas between."
        ),
    ] = "html",
    lang: LangOption = "en",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write it; not given: RUN/report.")
    ] = None,
) -> None:
    """Write the report of a run."""
    from trainlab.lab import open_run
    from trainlab.report.writing import check_formats, write_report
    from trainlab.words import check_language

    check_language(lang)
    names, folder = check_formats(formats), open_run(run)
    for path in write_report(folder.evidence(), out or folder.report_folder, names, lang):
        sys.stdout.write(f"{path}\n")
