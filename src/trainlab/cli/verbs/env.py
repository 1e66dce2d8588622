"""trainlab env: this machine, as it would be recorded."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption
from trainlab.machine.host import capture
from trainlab.report.tables.environment import environment_table
from trainlab.report.terminal import print_blocks


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the record itself.")] = False,
    lang: LangOption = None,
) -> None:
    """Print what would be recorded."""
    words, environment = words_in(lang), capture(Path.cwd())
    if as_json:
        sys.stdout.write(environment.model_dump_json(indent=2) + "\n")
    else:
        print_blocks(Console(), [environment_table(environment, words)], words)
