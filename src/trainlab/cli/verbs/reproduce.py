"""trainlab reproduce: a built-in study run on the full data, held against the published figures."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from trainlab.errors import SpecError
from trainlab.studies import builtin_study
from trainlab.studies.published import PUBLISHED

if TYPE_CHECKING:
    from trainlab.analyse.evidence import Evidence
    from trainlab.analyse.reproduce import PublishedFigure
    from trainlab.lab import Run
    from trainlab.report.document import Table
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
    from trainlab.analyse.reproduce import differing_settings, reproduce
    from trainlab.analyse.side_by_side import pooled
    from trainlab.cli.summary import say
    from trainlab.lab import open_run
    from trainlab.report.render.terminal import print_blocks
    from trainlab.words import Words

    words = Words("en")
    folders = [open_run(path) for path in run] if run else [_ran(study, seeds, out)]
    evidence = pooled([folder.evidence() for folder in folders])
    question = _published(study)
    if evidence.study.workload != question.workload:
        about = f"{evidence.study.workload}, {study} about {question.workload}"
        raise SpecError([f"{folders[0].path}: is about {about}"])
    settings = _settings(question)
    compared = reproduce(evidence, PUBLISHED[study], settings)
    console = Console(width=max(Console().width, 110) if os.isatty(1) else 110)
    if compared:
        print_blocks(console, [_table(study, compared)], words)
    inside, number = sum(one.inside is True for one in compared), len(compared)
    say(console, f"{inside} of {number} published figures are inside.")
    for cell, differences in differing_settings(evidence, settings).items():
        say(console, f"{cell}: not compared: {'; '.join(differences)}", "yellow")
    if _used_a_subset(evidence):
        subset = "This run used a subset: the figures were published for all data."
        say(console, subset, "yellow")
    for folder in folders:
        say(console, words("run_folder", path=folder.path))
    if not compared or inside < ENOUGH * number:
        raise typer.Exit(1)


def _table(study: str, compared: "list[PublishedFigure]") -> "Table":
    from trainlab.report.document import Entry
    from trainlab.report.tables.columns import name, table_of, value
    from trainlab.words.numbers import metric_value

    def interval(one: "PublishedFigure") -> Entry:
        ends = () if one.interval is None else (one.interval.low, one.interval.high)
        return Entry(" to ".join(metric_value(one.metric, end) for end in ends))

    def ours(one: "PublishedFigure") -> Entry:
        return Entry(metric_value(one.metric, None if one.ours is None else one.ours.value))

    verdicts = {True: "inside", False: "outside", None: "too few seeds"}
    return table_of(
        f"{study}: published single runs, and where one more run of ours falls (95 %)",
        [
            name("cell", lambda one: one.cell),
            name("metric", lambda one: one.metric),
            value("epoch", lambda one: Entry(str(one.epoch))),
            value("published", lambda one: Entry(metric_value(one.metric, one.published))),
            value("ours", ours),
            value("interval", interval),
            name("", lambda one: verdicts[one.inside]),
        ],
        compared,
    )


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
    from trainlab.cli.watcher import ConsoleWatcher
    from trainlab.lab import run_question

    question = _published(study)
    settings = {"data": "full", **question.settings}
    changes = {"settings": settings, "cost": None, "tensorboard": False, "seeds": seeds}
    watcher = ConsoleWatcher(Console(stderr=True))
    done = run_question(question.model_copy(update=changes), study, out=out, watcher=watcher)
    if done.was_interrupted:
        raise KeyboardInterrupt
    return done.run
