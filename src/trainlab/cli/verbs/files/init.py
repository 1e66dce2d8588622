"""trainlab init: a model and a study to start one's own from."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A folder that is not there yet, or is empty of these files."
        ),
    ],
    starter: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="blank|mnist",
            help="What to start from: blank (points in a plane), mnist (images).",
        ),
    ] = "blank",
    lang: LangOption = None,
) -> None:
    """Write model.py and study.toml, which run at once."""
    from trainlab.lab.starter import write_starter

    words = words_in(lang)
    paths = write_starter(folder, starter, words.lang)
    for path in paths:
        sys.stdout.write(f"{path}\n")
    line = shlex.join(["trainlab", "run", str(paths[-1])])
    sys.stdout.write(words("init_next", command=line) + "\n")
