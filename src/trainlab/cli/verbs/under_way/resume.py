"""trainlab resume: go on with a run that was cut short, as it would have gone on undisturbed."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainlab.cli.errors import exit_for_failures
from trainlab.cli.language import words_in
from trainlab.cli.options import (
    BUDGET_HELP,
    JsonOption,
    LangOption,
    QuietOption,
    ReportOption,
)
from trainlab.cli.outcome import show_outcome
from trainlab.cli.output import output_for_programs
from trainlab.cli.question import seconds_of
from trainlab.cli.watcher import ConsoleWatcher
from trainlab.lab import resume_run

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def command(
    run: RunArgument,
    allow_changed: Annotated[
        bool,
        typer.Option(
            "--allow-changed", help="Go on though the workload's file is not what it was."
        ),
    ] = False,
    budget: Annotated[str | None, typer.Option(metavar="TIME", help=BUDGET_HELP)] = None,
    report: ReportOption = True,
    lang: LangOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Go on with a run; finished trials are not run again."""
    words = words_in(lang)
    budget_s = None if budget is None else seconds_of(budget)
    # What the user's own code prints must not mix with what is printed for programs.
    with output_for_programs() if as_json or quiet else nullcontext():
        outcome = resume_run(
            run,
            allow_changed=allow_changed,
            budget_s=budget_s,
            watcher=ConsoleWatcher(Console(stderr=True, quiet=quiet), words),
        )
    if outcome.is_diagnosis:
        from trainlab.cli.verbs.scripts.diagnose import show_diagnosis

        is_cut_short = outcome.was_interrupted or not outcome.run.diagnosis.exists()
        show_diagnosis(outcome.run, words, as_json=as_json, quiet=quiet, is_cut_short=is_cut_short)
        return
    show_outcome(outcome.run, words, as_json=as_json, quiet=quiet, report=report)
    exit_for_failures(outcome.complete_run().evidence(), lang)
