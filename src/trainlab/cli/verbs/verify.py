"""trainlab verify: whether the records of a run are as they were written."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption


def command(
    run: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
    lang: LangOption = None,
) -> None:
    """Exits with 1 where a record is damaged."""
    from trainlab.record.run_folder import RunFolder, check_run, verify
    from trainlab.words.error_lines import error_line

    words = words_in(lang)
    check_run(run)
    found = verify(RunFolder(run))
    for reason in found.damaged:
        sys.stdout.write(f"{error_line(reason, words.lang)}\n")
    counts = {"files": found.num_files, "damaged": len(found.damaged)}
    text = words("verified", path=run, **counts)
    if found.num_unproven:
        text = words.sentences(text, words("unproven", number=found.num_unproven))
    sys.stdout.write(f"{text}\n")
    raise typer.Exit(1 if found.damaged else 0)
