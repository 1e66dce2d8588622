"""trainlab reproduce: a built-in study run on the full data, held against the published figures."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainlab.errors import SpecError
from trainlab.studies import builtin_study
from trainlab.studies.published import PUBLISHED

if TYPE_CHECKING:
    from trainlab.lab import Run

ENOUGH = 0.95


def command(
    study: Annotated[
        str, typer.Argument(help="A study with published figures: fashion-lab, mnist-lab.")
    ],
    run: Annotated[
        list[Path] | None,
        typer.Option(help="A run folder to hold against them, not a new run; several are pooled."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=2, help="How many seeds, for a new run.")] = 16,
    out: Annotated[Path | None, typer.Option(help="The run folder of a new run.")] = None,
) -> None:
    """Run a study on the full data, or take a run, and lay the published figures beside it."""
    if study not in PUBLISHED:
        raise SpecError([f"{study}: has no published figures; {', '.join(PUBLISHED)} have"])
    from trainlab.analyse.reproduce import Reproduced, reproduce
    from trainlab.analyse.runs import pooled
    from trainlab.lab import open_run
    from trainlab.report.numbers import metric_value

    folders = [open_run(path) for path in run] if run else [_ran(study, seeds, out)]
    evidence = pooled([folder.evidence() for folder in folders])
    expected = builtin_study(study).workload
    if evidence.study.workload != expected:
        where = folders[0].path
        raise SpecError([f"{where}: is about {evidence.study.workload}, {study} about {expected}"])
    found = reproduce(evidence, PUBLISHED[study])
    table = Table(
        title=f"{study}: published single runs, and where one more run of ours falls (95 %)",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    for heading in ("cell", "metric", "epoch", "published", "ours", "interval", ""):
        table.add_column(heading, justify="left" if heading in ("cell", "metric") else "right")

    def row(one: Reproduced) -> list[str]:
        told = {True: "inside", False: "[red]outside[/red]", None: "too few seeds"}[one.inside]
        reach = (
            ""
            if one.interval is None
            else " to ".join(
                metric_value(one.metric, v) for v in (one.interval.low, one.interval.high)
            )
        )
        ours = metric_value(one.metric, None if one.ours is None else one.ours.value)
        published = metric_value(one.metric, one.published)
        return [escape(one.cell), one.metric, str(one.epoch), published, ours, reach, told]

    for one in found:
        table.add_row(*row(one))
    console = Console(width=max(Console().width, 110) if os.isatty(1) else 110)
    console.print(table)
    inside, told = sum(one.inside is True for one in found), len(found)
    console.print(f"{inside} of {told} published figures are inside.", highlight=False)
    data = {t.data.name: t.data.is_subset for t in evidence.trials if t.data is not None}
    if any(data.values()):
        console.print(
            "[yellow]This run used a subset: the figures were published for all data.[/yellow]"
        )
    for folder in folders:
        console.print(f"Run folder: {escape(str(folder.path))}", highlight=False)
    if not found or inside < ENOUGH * told:
        raise typer.Exit(1)


def _ran(study: str, seeds: int, out: Path | None) -> "Run":
    from trainlab.cli.perform import perform, resolved
    from trainlab.execute.worker import Loader
    from trainlab.lab import Run, finish

    question = builtin_study(study)
    settings = {"data": "full", **question.settings}
    # The published cells differ by what was trained, not by where.
    vary = {name: levels for name, levels in question.vary.items() if name != "device"}
    changes = {"settings": settings, "vary": vary, "cost": None, "tensorboard": False}
    question = question.model_copy(update=changes | {"seeds": seeds})
    console, load = Console(stderr=True), Loader()
    folder, was_interrupted = perform(console, load, resolved(console, load, question, study), out)
    finish(folder)
    if was_interrupted:
        raise KeyboardInterrupt
    return Run(folder.path)
