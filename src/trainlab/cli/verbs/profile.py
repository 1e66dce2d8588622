"""trainlab profile: what a step costs, measured in fresh processes."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from trainlab.cli.options import asked_of, setting_parameters, spec_parameters, with_options
from trainlab.cli.progress.heartbeat import waiting_for
from trainlab.errors import TrainlabError
from trainlab.record.folder import RunFolder
from trainlab.spec import CostSpec, TrainSpec, checked


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
    console = Console(stderr=True)
    with waiting_for(console, "starting torch"):
        from trainlab.analyse.cost.measurement import measurements
        from trainlab.analyse.cost.operators import classic_table
        from trainlab.cli.cost_tables import measurement_told, print_measurement
        from trainlab.cli.perform import perform
        from trainlab.execute.resolve import make_study
        from trainlab.execute.worker import Loader

        load, asked = Loader(), asked_of(TrainSpec, options)
        study = make_study(load, workload, asked, (1,), "settings", cost=cost, learn=False)
    folder, was_interrupted = perform(console, load, study, out)
    if was_interrupted:
        raise KeyboardInterrupt
    raise_failures(folder)
    each = measurements(folder)
    if as_json:
        modes = [measurement_told(found, sort, top) for found in each]
        told = modes[0] if len(modes) == 1 else {"measurements": modes}
        sys.stdout.write(json.dumps({"run": str(folder.path), **told}, allow_nan=False) + "\n")
        return
    console = Console()
    console.width = max(console.width, 80)
    for found in each:
        print_measurement(console, study.name, found, sort=sort, top=0 if classic else top)
        if classic and found.operators is not None:
            sys.stdout.write(classic_table(found.operators, top) + "\n")
    console.print(f"Run folder: [bold]{escape(str(folder.path))}[/bold]", highlight=False)


def raise_failures(folder: RunFolder) -> None:
    """The first cost trial that failed, as one line; its traceback is in its record."""
    for trial in folder.trials():
        if trial.kind == "cost" and trial.error is not None:
            told = f"{trial.error.kind}: {trial.error.message}"
            raise TrainlabError(f"{folder.trial(trial.id).trial_file}: {told}")


command = with_options(
    _profile,
    [*spec_parameters(CostSpec, "Measurement"), *setting_parameters()],
    "Examples: [bold]trainlab profile mnist-cnn --batch-size 64[/bold] · "
    "[bold]trainlab profile mnist-cnn --mode inference --batch-size 16[/bold]",
)
