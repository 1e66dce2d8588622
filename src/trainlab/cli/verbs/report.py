"""trainlab report: a run's report, written from its records alone."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption
from trainlab.record.files import make_folder
from trainlab.record.run_folder import RunFolder


def command(
    run: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
    formats: Annotated[
        str,
        typer.Option(
            "--format", metavar="html,md,pdf,csv", help="One or several, with commas between."
        ),
    ] = "html",
    lang: LangOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write it; not given: RUN/report.")
    ] = None,
    author: Annotated[str, typer.Option(help="Who hands it in: makes it a lab report.")] = "",
    student_id: Annotated[str, typer.Option("--id", help="The author's student ID.")] = "",
    course: Annotated[str, typer.Option(help="The course it is handed in for.")] = "",
    notes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md",
            help="The author's own text; headings such as Method or 讨论 say where it goes.",
        ),
    ] = None,
    draft: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md", help="Write notes to fill in, with a drafted conclusion, and stop."
        ),
    ] = None,
) -> None:
    """Write the report of a run."""
    from trainlab.lab import open_run
    from trainlab.report.lab_report import HandIn, read_notes
    from trainlab.report.writing import (
        TABLES,
        check_formats,
        draft_notes,
        write_new,
        write_report,
    )

    spoken = words_in(lang).lang
    names = check_formats(formats)
    text = "" if notes is None else read_notes(notes)
    asked = HandIn(author.strip(), student_id.strip(), course.strip(), text)
    hand_in = None if asked == HandIn() and notes is None else asked
    folder = open_run(run)
    if draft is not None:
        write_new(draft, draft_notes(folder.evidence(), spoken), "--draft")
        sys.stdout.write(f"{draft}\n")
        return
    documents = [name for name in names if name != TABLES]
    paths = []
    if documents:
        if out is None:
            make_folder(folder.report_folder)  # not a link: somebody else may have made the run
        report_folder = out or folder.report_folder
        paths += write_report(folder.evidence(), report_folder, documents, spoken, hand_in)
    if TABLES in names:
        from trainlab.analysis.results import write_results

        paths += write_results(folder if out is None else RunFolder(out), folder.evidence())
    for path in paths:
        sys.stdout.write(f"{path}\n")
