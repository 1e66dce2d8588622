"""trainlab diagnose: what limits a training script, and the proof."""

import shlex
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
from trainlab.cli.verbs.scripts.shared_options import tell_shared_options
from trainlab.cli.watcher import ConsoleWatcher
from trainlab.lab.script_study import MOST_TRIED, PROCESSES, STEPS, diagnose
from trainlab.record.run_folder import RunFolder
from trainlab.record.script_record import DiagnosisRecord
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
    tell_shared_options(Console(stderr=True, quiet=quiet), script, arguments or (), words)
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
    if markdown and found.record is not None:
        from trainlab.report.diagnosis import diagnosis_document
        from trainlab.report.markdown import markdown_of

        sys.stdout.write(markdown_of(diagnosis_document(found.record, words)))
    else:
        is_cut_short = found.record is None
        show_diagnosis(found.run, words, as_json=as_json, quiet=quiet, is_cut_short=is_cut_short)


def show_diagnosis(
    run: RunFolder, words: Words, *, as_json: bool, quiet: bool, is_cut_short: bool
) -> None:
    """The answer of a diagnosis that has run; KeyboardInterrupt where it was cut short, after how to go on
    with it."""
    from trainlab.cli.summary import say

    if is_cut_short:
        command = shlex.join(["trainlab", "resume", str(run.path)])
        say(Console(stderr=True), words("resume_it", command=command))
        raise KeyboardInterrupt
    if as_json:
        print_json({"run": str(run.path), **run.diagnosis.read().model_dump(mode="json")})
    elif quiet:
        sys.stdout.write(f"{run.path}\n")
    else:
        print_diagnosis(Console(), run, run.diagnosis.read(), words)


def print_diagnosis(
    console: Console,
    run: RunFolder,
    record: DiagnosisRecord,
    words: Words,
    *,
    with_all: bool = False,
) -> None:
    """What limits the script of a run, and where more is to be had."""
    from trainlab.cli.summary import say
    from trainlab.report.diagnosis import diagnosis_blocks, diagnosis_document
    from trainlab.report.terminal import print_blocks

    document = diagnosis_document(record, words)
    say(console, document.title, "bold underline")
    say(console, document.subtitle, "dim")
    console.print()
    print_blocks(console, diagnosis_blocks(record, words), words)
    say(console, words("diagnosis_at", path=run.diagnosis.path))
    if not with_all:
        command = shlex.join(["trainlab", "show", str(run.path), "--all"])
        say(console, words("all_findings", command=command), "dim")
    command = shlex.join(["trainlab", "report", str(run.path)])
    say(console, words("report_with", command=command))


command = with_options(
    _diagnose,
    (),
    (
        "trainlab diagnose train.py --epochs 3",
        "trainlab diagnose train.py --try data --try threads=1",
    ),
)
command.context_settings = {"ignore_unknown_options": True}
