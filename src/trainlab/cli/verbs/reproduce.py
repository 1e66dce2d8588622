"""trainlab reproduce: a built-in study run on the full data, held against the published figures."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from trainlab.analysis.document import Entry, Table
from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption
from trainlab.errors import SpecError
from trainlab.report.terminal import print_blocks
from trainlab.spec import Question, TrainSpec
from trainlab.spec.base import did_you_mean
from trainlab.spec.question import cells_of
from trainlab.studies import PUBLISHED, builtin_study
from trainlab.words import Words
from trainlab.words.error_lines import error_line
from trainlab.words.numbers import metric_value
from trainlab.workloads.reference import BUILTIN

if TYPE_CHECKING:
    from trainlab.analysis.evidence import Evidence
    from trainlab.analysis.reproduce import PublishedCurve, PublishedFigure
    from trainlab.lab import Run

NUM_SEEDS = 16
VERDICTS = {True: "reproduce_inside", False: "reproduce_outside", None: "reproduce_unknown"}


def command(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY", help="A study with published figures: fashion-lab, mnist-lab."
        ),
    ],
    run: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="A run folder to hold against them, not a new run; several are pooled.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="COUNT",
            help="How many seeds, for a new run.",
            show_default=str(NUM_SEEDS),
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder of a new run.")
    ] = None,
    lang: LangOption = None,
) -> None:
    """Run a study on the full data, or take a run, and lay the published figures beside it."""
    words = words_in(lang)
    _check_options(study, run, seeds, out)
    from trainlab.analysis.comparison import pooled
    from trainlab.analysis.reproduce import differing_settings, published_curves, reproduce
    from trainlab.cli.summary import say
    from trainlab.lab import open_run

    folders = [open_run(path) for path in run or ()]
    if not folders:
        folders.append(_new_run(study, seeds or NUM_SEEDS, out, words))
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
    console = Console()
    print_blocks(console, [_table(study, figures, words)], words)
    curves = published_curves(figures)
    for text, style in _verdict_texts(figures, curves, words):
        say(console, text, style)
    for cell, differences in differing_settings(evidence, settings).items():
        text = words("list_semicolon").join(error_line(d, words.lang) for d in differences)
        say(console, words("reproduce_skipped", cell=cell, differences=text), "yellow")
    if any(trial.data is not None and trial.data.is_subset for trial in evidence.trials):
        say(console, words("reproduce_subset"), "yellow")
    for folder in folders:
        say(console, words("run_folder", path=folder.path))
    if not curves or not all(curve.agrees for curve in curves):
        raise typer.Exit(1)


def _check_options(study: str, run: list[Path] | None, seeds: int | None, out: Path | None) -> None:
    if study not in PUBLISHED:
        near = did_you_mean(study, PUBLISHED)
        raise SpecError([f"{study}: has no published figures; {', '.join(PUBLISHED)} have{near}"])
    if run and (seeds is not None or out is not None):
        option = "--seeds" if seeds is not None else "--out"
        raise SpecError([f"{option}: is for a new run; leave it out beside --run"])


def _nothing_published(
    study: str, path: Path, evidence: "Evidence", settings: dict[str, TrainSpec]
) -> str:
    """Why a run has nothing that was published."""
    from trainlab.analysis.reproduce import differing_settings

    differing = differing_settings(evidence, settings)
    reasons = [f"{cell} has {'; '.join(found)}" for cell, found in differing.items()]
    others = [cell.id for cell in evidence.cells if cell.id not in settings]
    reasons += [f"{', '.join(others)}: not among {', '.join(settings)}"] if others else []
    why = " · ".join(reasons) or "no learn trial of it is done"
    remedy = f"make a new run with `trainlab reproduce {study}`"
    return f"{path}: nothing in it was published for {study}: {why}; {remedy}"


def _verdict_texts(
    figures: "list[PublishedFigure]", curves: "list[PublishedCurve]", words: Words
) -> Iterator[tuple[str, str]]:
    """How many figures lie inside and how many should, then which curves no run of ours could have."""
    from trainlab.analysis.reproduce import CHANCE_OUTSIDE, CURVES_LEVEL, FIGURES_LEVEL

    num_inside = sum(figure.inside is True for figure in figures)
    chance = CHANCE_OUTSIDE * sum(figure.inside is not None for figure in figures)
    counts = {"inside": num_inside, "all": len(figures), "chance": f"{chance:.1f}"}
    yield words("reproduce_count", **counts), ""
    if not curves:
        yield words("reproduce_undecided"), "yellow"
        return
    for curve in curves:
        if not curve.agrees:
            key = "reproduce_above" if curve.deviation > 0 else "reproduce_below"
            off, p = f"{abs(curve.deviation):.1f}", f"{min(curve.p_curve, curve.p_figure):.2g}"
            yield words(key, cell=curve.cell, metric=curve.metric, off=off, p=p), "red"
    num_agree = sum(curve.agrees for curve in curves)
    level = f"{CURVES_LEVEL + FIGURES_LEVEL:.0%}"
    yield words("reproduce_agree", agree=num_agree, all=len(curves), level=level), ""


def _table(study: str, figures: "list[PublishedFigure]", words: Words) -> Table:
    from trainlab.analysis.tables import name, table_of, value

    def ours(row: "PublishedFigure") -> Entry:
        return Entry(metric_value(row.metric, None if row.ours is None else row.ours.value))

    def interval(row: "PublishedFigure") -> Entry:
        if row.interval is None:
            return Entry("")
        low, high = (metric_value(row.metric, end) for end in (row.interval.low, row.interval.high))
        return Entry(words("range", low=low, high=high))

    return table_of(
        words("reproduce_table", study=study),
        [
            name(words("cell"), lambda row: row.cell),
            name(words("figure"), lambda row: row.metric),
            value(words("epoch"), lambda row: Entry(str(row.epoch))),
            value(
                words("reproduce_published"),
                lambda row: Entry(metric_value(row.metric, row.published)),
            ),
            value(words("reproduce_ours"), ours),
            value(words("reproduce_interval"), interval),
            name(words("reproduce_verdict"), lambda row: words(VERDICTS[row.inside])),
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


def _new_run(study: str, seeds: int, out: Path | None, words: Words) -> "Run":
    from trainlab.cli.watcher import ConsoleWatcher
    from trainlab.lab import drive

    question = _published_question(study)
    settings = {"data": "full", **question.settings}
    changes = {"settings": settings, "cost": None, "tensorboard": False, "seeds": seeds}
    question = question.model_copy(update=changes)
    watcher = ConsoleWatcher(Console(stderr=True), words)
    return drive(question, study, out=out, watcher=watcher).complete_run()
