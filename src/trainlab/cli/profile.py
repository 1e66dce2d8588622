"""trainlab profile: what a step costs, measured in fresh processes."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainlab.analyse.cost import CostSummary, Estimate, summarise
from trainlab.analyse.operators import Sort, classic_table, outside_us, ranked
from trainlab.cli.settings import asked_of, setting_parameters, spec_parameters, with_options
from trainlab.errors import TrainlabError
from trainlab.record.folder import RunFolder
from trainlab.record.schema import OperatorsRecord
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
    with console.status("starting torch"):
        from trainlab.execute.fresh import run_fresh
        from trainlab.execute.run import make_study, start_run
        from trainlab.execute.worker import Loader

        study = make_study(
            Loader(), workload, asked_of(TrainSpec, options), (1,), "settings", cost=cost
        )
    folder = start_run(study, out)
    trials = folder.study().trials
    for number, trial_id in enumerate(trials, start=1):
        with console.status(f"measuring in fresh process {number} of {len(trials)}"):
            run_fresh(folder, trial_id)
    for trial in folder.trials():
        if trial.error is not None:
            raise TrainlabError(f"{trial.id}: {trial.error.kind}: {trial.error.message}")
    found = summarise(
        [folder.trial(trial.id).cost() for trial in folder.trials() if not trial.profiled]
    )
    operators = next(
        folder.trial(trial.id) for trial in folder.trials() if trial.profiled
    ).operators()
    if as_json:
        told = {"run": str(folder.path), **dataclasses.asdict(found)}
        told["operators"] = [dataclasses.asdict(row) for row in ranked(operators, sort)[:top]]
        told["outside_operators_us"] = outside_us(operators)
        sys.stdout.write(json.dumps(told, allow_nan=False) + "\n")
        return
    console = Console()
    console.width = max(console.width, 80)
    print_cost(console, folder, found)
    if classic:
        sys.stdout.write(classic_table(operators, top) + "\n")
    else:
        console.print(operator_table(operators, sort, top))
    console.print(f"Run folder: [bold]{escape(str(folder.path))}[/bold]", highlight=False)


def operator_table(record: OperatorsRecord, sort: Sort, top: int) -> Table:
    """The operators that cost most, and what lies outside all of them."""
    table = Table(
        title=f"top {top} operators by {sort}, from a profiled process (shares, not speeds)",
        caption=None if record.calls_are_equal else "calls differ between steps: averages shown",
        title_justify="left",
    )
    table.add_column("operator", overflow="fold")
    for heading in (
        "share",
        "self\nµs/step",
        "total\nµs/step",
        "average\nµs/call",
        "calls",
        "memory\nKiB/step",
    ):
        table.add_column(heading, justify="right")
    for row in ranked(record, sort)[:top]:
        table.add_row(
            escape(row.name.removeprefix("aten::")),
            f"{100 * row.share:.1f} %",
            f"{row.self_us:,.1f}",
            f"{row.total_us:,.1f}",
            f"{row.average_us:,.1f}",
            f"{row.calls:,}",
            f"{row.memory_bytes / 1024:,.0f}",
        )
    outside = outside_us(record)
    share = f"{100 * outside / record.profiled_step_us:.1f} %"
    table.add_row("outside operators", share, f"{outside:,.1f}", "", "", "", "", style="dim")
    return table


def print_cost(console: Console, folder: RunFolder, found: CostSummary) -> None:
    """The step per batch, per sample and per epoch, its phases, and what to beware of."""
    trial = folder.trials()[0]
    steps = "training step" if found.mode == "train" else "inference step"
    where = f"{trial.resolved['device_name']}, {trial.resolved['threads']} threads"
    title = f"{escape(folder.study().name)}: {steps} at batch {found.batch_size} on {where}"
    table = Table(title=title, title_justify="left")
    for heading in ("cost", "", "95 % of repeats"):
        table.add_column(heading, justify="right")
    whole = "epoch" if found.mode == "train" else "pass over the test set"
    for name, value in (
        ("ms per batch", found.step_ms),
        ("µs per sample", found.sample_us),
        (f"s per {whole}", found.epoch_s),
        ("samples per s", found.samples_per_s),
    ):
        table.add_row(name, _figure(value.value), _range(value))
    console.print(table)
    phases = Table(title="phases of a step", title_justify="left")
    for heading in ("phase", "ms per batch", "share"):
        phases.add_column(heading, justify="right")
    total = sum(found.phases_ms.values())
    for name, ms in sorted(found.phases_ms.items(), key=lambda item: -item[1]):
        phases.add_row(name, f"{ms:.4f}", f"{ms / total:.1%}".replace("%", " %"))
    console.print(phases)
    console.print(
        f"{found.num_processes} fresh processes, {found.num_warmup_steps} warm-up steps each (kept "
        f"apart; the first took {_figure(found.first_step_ms)} ms), {found.num_steps:,} bare steps; "
        f"95 % of steps within {_figure(found.p95_step_ms)} ms. Marking phases cost "
        f"{found.marking_cost:+.1%} and is not in the times above.",
        highlight=False,
    )
    for warning in found.warnings:
        console.print(f"[yellow]unstable: {warning}[/yellow]", soft_wrap=True)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _range(value: Estimate) -> str:
    return f"{_figure(value.low)} to {_figure(value.high)}"


command = with_options(
    _profile,
    [*spec_parameters(CostSpec, "Measurement"), *setting_parameters()],
    "Examples: [bold]trainlab profile mnist-cnn --batch-size 64[/bold] · "
    "[bold]trainlab profile mnist-cnn --mode inference --batch-size 16[/bold]",
)
