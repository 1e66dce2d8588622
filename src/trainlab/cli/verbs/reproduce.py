"""trainlab reproduce: a built-in study run on the full data, held against the published figures."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from trainlab.errors import SpecError
from trainlab.studies import builtin_study
from trainlab.studies.published import PUBLISHED

if TYPE_CHECKING:
    from rich.table import Table

    from trainlab.analyse.evidence import Evidence
    from trainlab.analyse.reproduce import Reproduced
    from trainlab.lab import Run
    from trainlab.spec import Question, TrainSpec

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
    from trainlab.analyse.reproduce import reproduce, trained_otherwise
    from trainlab.analyse.runs import pooled
    from trainlab.lab import open_run

    folders = [open_run(path) for path in run] if run else [_ran(study, seeds, out)]
    evidence = pooled([folder.evidence() for folder in folders])
    question = _published(study)
    if evidence.study.workload != question.workload:
        about = f"{evidence.study.workload}, {study} about {question.workload}"
        raise SpecError([f"{folders[0].path}: is about {about}"])
    settings = _settings(question)
    found = reproduce(evidence, PUBLISHED[study], settings)
    console = Console(width=max(Console().width, 110) if os.isatty(1) else 110)
    if found:
        console.print(_table(study, found))
    inside, told = sum(one.inside is True for one in found), len(found)
    console.print(f"{inside} of {told} published figures are inside.", highlight=False)
    for cell, differences in trained_otherwise(evidence, settings).items():
        line = f"{escape(cell)}: not compared: {escape('; '.join(differences))}"
        console.print(f"[yellow]{line}[/yellow]", highlight=False, soft_wrap=True)
    if _used_a_subset(evidence):
        console.print(
            "[yellow]This run used a subset: the figures were published for all data.[/yellow]"
        )
    for folder in folders:
        console.print(f"Run folder: {escape(str(folder.path))}", highlight=False)
    if not found or inside < ENOUGH * told:
        raise typer.Exit(1)


def _table(study: str, found: "list[Reproduced]") -> "Table":
    from trainlab.cli.tables import plain_table

    title = f"{study}: published single runs, and where one more run of ours falls (95 %)"
    headings = ("cell", "metric", "epoch", "published", "ours", "interval", "")
    table = plain_table(title, *headings, num_names=2)
    for one in found:
        table.add_row(*_row(one))
    return table


def _row(one: "Reproduced") -> list[str]:
    from trainlab.words.numbers import metric_value

    told = {True: "inside", False: "[red]outside[/red]", None: "too few seeds"}[one.inside]
    ends = () if one.interval is None else (one.interval.low, one.interval.high)
    reach = " to ".join(metric_value(one.metric, end) for end in ends)
    ours = metric_value(one.metric, None if one.ours is None else one.ours.value)
    published = metric_value(one.metric, one.published)
    return [escape(one.cell), one.metric, str(one.epoch), published, ours, reach, told]


def _used_a_subset(evidence: "Evidence") -> bool:
    return any(trial.data is not None and trial.data.is_subset for trial in evidence.trials)


def _published(study: str) -> "Question":
    """The published cells differ by what was trained, not by where."""
    question = builtin_study(study)
    vary = {name: levels for name, levels in question.vary.items() if name != "device"}
    return question.model_copy(update={"vary": vary})


def _settings(question: "Question") -> "dict[str, TrainSpec]":
    """What each published cell was trained with."""
    from trainlab.spec.question import cells_of
    from trainlab.workloads.catalogue import BUILTIN

    cells = cells_of(question, BUILTIN[question.workload].defaults, None)
    return {cell.id: cell.settings for cell in cells}


def _ran(study: str, seeds: int, out: Path | None) -> "Run":
    from trainlab.cli.perform import perform, resolved
    from trainlab.execute.worker import Loader
    from trainlab.lab import Run, finish

    question = _published(study)
    settings = {"data": "full", **question.settings}
    changes = {"settings": settings, "cost": None, "tensorboard": False, "seeds": seeds}
    question = question.model_copy(update=changes)
    console, load = Console(stderr=True), Loader()
    folder, was_interrupted = perform(console, load, resolved(console, load, question, study), out)
    finish(folder)
    if was_interrupted:
        raise KeyboardInterrupt
    return Run(folder.path)
