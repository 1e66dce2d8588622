"""trainlab profile: what a step costs, measured in fresh processes."""

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from trainlab.analyse.cost.operators import Sort, classic_table
from trainlab.cli.errors import exit_for_failures
from trainlab.cli.options import (
    asked_of,
    print_json,
    setting_parameters,
    spec_parameters,
    with_options,
)
from trainlab.cli.watcher import ConsoleWatcher
from trainlab.lab import Run, run_question
from trainlab.spec import CostSpec, TrainSpec, checked
from trainlab.spec.question import checked_question
from trainlab.words import Words


def _profile(
    workload: Annotated[
        str, typer.Argument(help="A built-in workload (see `trainlab workloads`) or FILE.py:NAME.")
    ],
    *,
    out: Annotated[
        Path | None, typer.Option(help="The run folder. [dim]\\[runs/<name>-<time>][/dim]")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many operators to show.")] = 10,
    sort: Annotated[
        Literal["self", "total", "calls", "memory"], typer.Option(help="What ranks operators.")
    ] = "self",
    classic: Annotated[
        bool, typer.Option("--classic", help="Operators as PyTorch's own seven-column table.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON summary on stdout and nothing else.")
    ] = False,
    **options: Any,
) -> None:
    cost = checked(CostSpec, asked_of(CostSpec, options), "settings")
    settings = asked_of(TrainSpec, options)
    values = {"workload": workload, "settings": settings, "cost": cost, "learn": False}
    question = checked_question(values, "settings")
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        watcher = ConsoleWatcher(Console(stderr=True))
        done = run_question(question, "settings", out=out, watcher=watcher)
    if done.was_interrupted:
        raise KeyboardInterrupt
    _show(done.run, top=top, sort=sort, classic=classic, as_json=as_json)
    exit_for_failures(done.run.evidence())


def _show(run: Run, *, top: int, sort: Sort, classic: bool, as_json: bool) -> None:
    from trainlab.cli.summary import measurement_json, print_measurement, print_remarks, say

    evidence, words = run.evidence(), Words("en")
    if as_json:
        modes = [measurement_json(one, sort, top) for one in evidence.measured]
        values = modes[0] if len(modes) == 1 else {"measurements": modes}
        print_json({"run": str(run.path), **values})
        print_remarks(Console(stderr=True), evidence, words)
        return
    console = Console()
    for one in evidence.measured:
        shown = 0 if classic else top
        print_measurement(console, evidence.name, one, words, sort=sort, top=shown)
        if classic and one.operators is not None:
            sys.stdout.write(classic_table(one.operators, top) + "\n")
    print_remarks(console, evidence, words)
    say(console, words("run_folder", path=run.path))


command = with_options(
    _profile,
    [*spec_parameters(CostSpec, "Measurement"), *setting_parameters()],
    "Examples: [bold]trainlab profile mnist-cnn --batch-size 64[/bold] · "
    "[bold]trainlab profile mnist-cnn --mode inference --batch-size 16[/bold]",
)
