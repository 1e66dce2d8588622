"""trainlab diagnose: what limits a training script, and the proof."""

import sys
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.console import Console

from trainlab.cli.language import words_in
from trainlab.cli.options import (
    JsonOption,
    LangOption,
    OutOption,
    QuietOption,
    ScriptArgument,
    ScriptArguments,
    print_json,
    with_options,
)
from trainlab.cli.output import output_for_programs
from trainlab.cli.question import seconds_of
from trainlab.cli.verb_help import MEASURING, OUTPUT
from trainlab.cli.watcher import ConsoleWatcher
from trainlab.lab.diagnosing import MOST_TRIED, PROCESSES, STEPS, diagnose
from trainlab.record.folder import RunFolder
from trainlab.words import Words


def _diagnose(
    script: ScriptArgument,
    arguments: ScriptArguments = None,
    *,
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="NAME",
            help="Try only this: a limit, as data, or a change, as threads=1, same_batch or without=42; "
            "again for more.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    most: Annotated[
        int,
        typer.Option(
            min=1, metavar="COUNT", help="Possible limits to try.", rich_help_panel=MEASURING
        ),
    ] = MOST_TRIED,
    steps: Annotated[
        int,
        typer.Option(
            min=30,
            metavar="COUNT",
            help="Updates to watch, or 20 s if that is sooner.",
            rich_help_panel=MEASURING,
        ),
    ] = STEPS,
    processes: Annotated[
        int,
        typer.Option(
            min=2,
            metavar="COUNT",
            help="Fresh processes of the script, changed and unchanged, at least.",
            rich_help_panel=MEASURING,
        ),
    ] = PROCESSES,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Stop measuring after this long, as 5m; what was measured by then counts.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    out: OutOption = None,
    markdown: Annotated[
        bool,
        typer.Option("--markdown", help="Print the answer as Markdown.", rich_help_panel=OUTPUT),
    ] = False,
    lang: LangOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    words = words_in(lang)
    for_programs = as_json or quiet or markdown
    with output_for_programs() if for_programs else nullcontext():
        found = diagnose(
            script,
            arguments or (),
            steps=steps,
            tries=tries or (),
            most=most,
            processes=processes,
            budget_s=None if budget is None else seconds_of(budget),
            out=out,
            watcher=ConsoleWatcher(Console(stderr=True, quiet=quiet), words),
        )
    if found.record is None:
        raise KeyboardInterrupt
    if as_json:
        print_json({"run": str(found.run.path), **found.record.model_dump(mode="json")})
    elif markdown:
        from trainlab.report.diagnosis import diagnosis_document
        from trainlab.report.render.markdown import markdown_of

        sys.stdout.write(markdown_of(diagnosis_document(found.record, words)))
    elif quiet:
        sys.stdout.write(f"{found.run.path}\n")
    else:
        print_diagnosis(Console(), found.run, words)


def print_diagnosis(console: Console, run: RunFolder, words: Words) -> None:
    """What limits the script of a run, from its record."""
    from trainlab.cli.summary import say
    from trainlab.report.diagnosis import diagnosis_blocks, diagnosis_document
    from trainlab.report.render.terminal import print_blocks

    record = run.diagnosis.read()
    document = diagnosis_document(record, words)
    say(console, document.title, "bold underline")
    say(console, document.subtitle, "dim")
    console.print()
    print_blocks(console, diagnosis_blocks(record, words), words)
    say(console, words("diagnosis_at", path=run.diagnosis.path))


command = with_options(
    _diagnose,
    (),
    (
        "trainlab diagnose train.py --epochs 3",
        "trainlab diagnose train.py --try data --try threads=1",
    ),
)
command.context_settings = {"ignore_unknown_options": True}
