"""trainlab reproduce: a built-in study run on the full data, held against the published figures."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from trainlab.errors import SpecError
from trainlab.report.document import Entry, Table
from trainlab.report.render.terminal import print_blocks
from trainlab.spec import Question, TrainSpec
from trainlab.spec.question import cells_of
from trainlab.spec.suggestion import did_you_mean
from trainlab.studies import builtin_study
from trainlab.studies.published import PUBLISHED
from trainlab.words import Words
from trainlab.words.numbers import metric_value
from trainlab.workloads.catalogue import BUILTIN

if TYPE_CHECKING:
    from trainlab.analyse.evidence import Evidence
    from trainlab.analyse.reproduce import PublishedCurve, PublishedFigure
    from trainlab.lab import Run

NUM_SEEDS = 16
VERDICTS = {True: "inside", False: "outside", None: "too few seeds"}


def command(
    study: Annotated[
        str, typer.Argument(help="A study with published figures: fashion-lab, mnist-lab.")
    ],
    run: Annotated[
        list[Path] | None,
        typer.Option(help="A run folder to hold against them, not a new run; several are pooled."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=2, help=f"How many seeds, for a new run. [dim]\\[{NUM_SEEDS}][/dim]"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder of a new run.")] = None,
) -> None:
    """Run a study on the full data, or take a run, and lay the published figures beside it."""
    if study not in PUBLISHED:
        near = did_you_mean(study, PUBLISHED)
        raise SpecError([f"{study}: has no published figures; {', '.join(PUBLISHED)} have{near}"])
    if run and (seeds is not None or out is not None):
        option = "--seeds" if seeds is not None else "--out"
        raise SpecError([f"{option}: is for a new run; leave it out beside --run"])
    from trainlab.analyse.reproduce import differing_settings, published_curves, reproduce
    from trainlab.analyse.side_by_side import pooled
    from trainlab.cli.summary import say
    from trainlab.lab import open_run

    words = Words("en")
    folders = (
        [open_run(path) for path in run] if run else [_new_run(study, seeds or NUM_SEEDS, out)]
    )
    paths = [folder.path for folder in folders]
    evidence = pooled([folder.evidence() for folder in folders], paths)
    question = _published_question(study)
    if evidence.study.workload != question.workload:
        about = f"{evidence.study.workload}, {study} about {question.workload}"
        raise SpecError([f"{paths[0]}: is about {about}; name a run of {study}"])
    settings = _published_settings(question)
    figures = reproduce(evidence, PUBLISHED[study], settings)
    if not figures:
        raise SpecError([_nothing_published(study, paths[0], evidence, settings)])
    console = Console(width=max(Console().width, 110) if os.isatty(1) else 110)
    print_blocks(console, [_table(study, figures)], words)
    curves = published_curves(figures)
    for text, style in _verdict_texts(figures, curves):
        say(console, text, style)
    for cell, differences in differing_settings(evidence, settings).items():
        say(console, f"{cell}: not compared: {'; '.join(differences)}", "yellow")
    if any(trial.data is not None and trial.data.is_subset for trial in evidence.trials):
        subset = "This run used a subset: the figures were published for all data."
        say(console, subset, "yellow")
    for folder in folders:
        say(console, words("run_folder", path=folder.path))
    if not curves or not all(curve.agrees for curve in curves):
        raise typer.Exit(1)


def _nothing_published(
    study: str, path: Path, evidence: "Evidence", settings: dict[str, TrainSpec]
) -> str:
    """Why a run has nothing that was published."""
    from trainlab.analyse.reproduce import differing_settings

    differing = differing_settings(evidence, settings)
    reasons = [f"{cell} has {'; '.join(found)}" for cell, found in differing.items()]
    others = [cell.id for cell in evidence.cells if cell.id not in settings]
    reasons += [f"{', '.join(others)}: not among {', '.join(settings)}"] if others else []
    why = " · ".join(reasons) or "no learn trial of it is done"
    remedy = f"make a new run with `trainlab reproduce {study}`"
    return f"{path}: nothing in it was published for {study}: {why}; {remedy}"


def _verdict_texts(
    figures: "list[PublishedFigure]", curves: "list[PublishedCurve]"
) -> Iterator[tuple[str, str]]:
    """How many figures lie inside and how many should, then which curves no run of ours could have."""
    from trainlab.analyse.reproduce import CHANCE_OUTSIDE, CURVES_LEVEL, FIGURES_LEVEL

    num_inside = sum(figure.inside is True for figure in figures)
    text = f"{num_inside} of {len(figures)} published figures are inside"
    chance = CHANCE_OUTSIDE * sum(figure.inside is not None for figure in figures)
    yield f"{text}; by chance {chance:.1f} would be outside, and those of a run move together.", ""
    if not curves:
        yield "Nothing can be decided: it takes two seeds.", "yellow"
        return
    for curve in curves:
        if not curve.agrees:
            off = f"{abs(curve.deviation):.1f} standard deviations"
            side = "above" if curve.deviation > 0 else "below"
            p = min(curve.p_curve, curve.p_figure)
            yield (
                f"{curve.cell}, {curve.metric}: not reproduced: the published curve lies {off} "
                f"{side} ours on average over its epochs (p = {p:.2g}).",
                "red",
            )
    num_agree = sum(curve.agrees for curve in curves)
    level = CURVES_LEVEL + FIGURES_LEVEL
    yield (
        f"{num_agree} of {len(curves)} published curves agree with ours; with all true, one or more "
        f"would be called different in at most {level:.0%} of cases.",
        "",
    )


def _table(study: str, figures: "list[PublishedFigure]") -> Table:
    from trainlab.report.tables.columns import name, table_of, value

    def ours(row: "PublishedFigure") -> Entry:
        return Entry(metric_value(row.metric, None if row.ours is None else row.ours.value))

    def interval(row: "PublishedFigure") -> Entry:
        ends = () if row.interval is None else (row.interval.low, row.interval.high)
        return Entry(" to ".join(metric_value(row.metric, end) for end in ends))

    return table_of(
        f"{study}: published single runs, and where one more run of ours falls (95%)",
        [
            name("cell", lambda row: row.cell),
            name("metric", lambda row: row.metric),
            value("epoch", lambda row: Entry(str(row.epoch))),
            value("published", lambda row: Entry(metric_value(row.metric, row.published))),
            value("ours", ours),
            value("interval", interval),
            name("", lambda row: VERDICTS[row.inside]),
        ],
        figures,
    )


def _published_question(study: str) -> Question:
    """Without devices: the published cells differ by what was trained, not by where."""
    question = builtin_study(study)
    vary = {name: levels for name, levels in question.vary.items() if name != "device"}
    return question.model_copy(update={"vary": vary})


def _published_settings(question: Question) -> dict[str, TrainSpec]:
    """What each published cell was trained with."""
    cells = cells_of(question, BUILTIN[question.workload].defaults, None)
    return {cell.id: cell.settings for cell in cells}


def _new_run(study: str, seeds: int, out: Path | None) -> "Run":
    from trainlab.cli.watcher import ConsoleWatcher
    from trainlab.lab import run_question

    question = _published_question(study)
    settings = {"data": "full", **question.settings}
    changes = {"settings": settings, "cost": None, "tensorboard": False, "seeds": seeds}
    question = question.model_copy(update=changes)
    watcher = ConsoleWatcher(Console(stderr=True))
    return run_question(question, study, out=out, watcher=watcher).complete_run()
