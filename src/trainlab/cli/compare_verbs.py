"""trainlab compare, gate, reproduce: one run held against another, or against published figures."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field
from rich.console import Console

from trainlab.analysis.document import Block, Entry, Paragraph, Table
from trainlab.cli.output import print_json, say, words_in
from trainlab.errors import RecordError, SpecError, TrainlabError
from trainlab.report.terminal import print_blocks
from trainlab.words.error_lines import error_line

if TYPE_CHECKING:
    from trainlab.analysis.evidence import Evidence
    from trainlab.analysis.gate import Gate
    from trainlab.analysis.reproduce import PublishedCurve, PublishedFigure
    from trainlab.lab import Run
    from trainlab.spec import Question, TrainSpec
    from trainlab.words import Words

STYLES = {"pass": "bold green", "fail": "bold red", "cannot tell": "bold yellow"}
STDOUT = "-"
NUM_SEEDS = 16
VERDICTS = {True: "reproduce_inside", False: "reproduce_outside", None: "reproduce_unknown"}


def compare(
    first: Path,
    second: Path,
    *,
    report: Path | None = None,
    lang: str | None = None,
) -> None:
    """Two runs of one workload side by side, say a laptop's and a server's; what else differs is listed.

    first: A run folder.
    second: Another, of the same workload.
    report FILE: Also write it as one HTML file.
    """
    from trainlab.analysis.comparison import beside_table, difference_table, labels_of, side_by_side
    from trainlab.cli.run_summary import print_damaged
    from trainlab.lab import open_run

    words = words_in(lang)
    if first.resolve() == second.resolve():
        raise RecordError(f"{first}: is compared with itself; name two run folders")
    a, b = (open_run(path).evidence() for path in (first, second))
    comparison, console = side_by_side(a, b), Console()
    named = (("A", first), ("B", second))
    labels = [Paragraph(f"{run}{words('colon')}{path}") for run, path in named]
    print_blocks(console, labels, words)
    for evidence in (a, b):
        print_damaged(console, evidence, words)
    blocks: list[Block] = []
    if comparison.costs:
        blocks.append(beside_table(words("compare_costs_table"), comparison.costs, words))
    if comparison.learned:
        blocks.append(beside_table(words("compare_learned_table"), comparison.learned, words))
    for run, cells in (("A", comparison.only_a), ("B", comparison.only_b)):
        if cells:
            blocks.append(Paragraph(words("compare_only", run=run, cells=words.listed(cells))))
    if comparison.confounds:
        blocks.append(difference_table(comparison.confounds, words))
    else:
        blocks.append(Paragraph(words("compare_nothing")))
    print_blocks(console, blocks, words)
    if report is not None:
        from trainlab.report.writing import write_comparison

        write_comparison(a, b, report, words.lang, labels_of((a, b), (first, second)))
        print_blocks(console, [Paragraph(words("report_at", path=report))], words)


def gate(
    run: Path,
    *,
    against: Path,
    slower: str | None = None,
    worse: list[str] | None = None,
    mode: str | None = None,
    any_host: bool = False,
    markdown: str | None = None,
    quiet: bool = False,
    lang: str | None = None,
    as_json: bool = False,
) -> None:
    """Exits with 0 if it is not, 1 if it is, 3 if that cannot be told; 2 where runs cannot be compared.

    run RUN: A run folder, finished.
    against BASELINE: An earlier run folder of the same thing on the same machine.
    slower SHARE (5%, without --worse): How much longer a step may take, as 5% or 0.05.
    worse METRIC=AMOUNT: How much worse a final metric may be, as test/accuracy=0.01; again for more.
    mode train|inference (train where it was measured): Which step is compared.
    any_host --any-host: The host's name may differ, as that of a container does.
    markdown FILE: Also write a paragraph of Markdown; - prints it and nothing else.
    quiet --quiet -q: Print nothing; the exit code says it: 0 not slower, 1 slower, 3 cannot tell.
    """
    from trainlab.lab.opened import gate as gate_of

    words = words_in(lang)
    if markdown == STDOUT and as_json:
        raise SpecError(["--markdown: got '-', but --json is printed there; name a file"])
    longer = None if slower is None else _number("--slower", slower, slower)
    amounts = dict(_amount(text) for text in worse or ())
    try:
        found = gate_of(
            run, against=against, slower=longer, worse=amounts, mode=mode, any_host=any_host
        )
    except SpecError as error:
        raise SpecError(f"--{problem}" for problem in error.problems) from None
    if markdown is not None:
        _write_markdown(f"{found.markdown(words.lang)}\n", markdown)
    if as_json:
        print_json(gate_json(found))
    elif not quiet and markdown != STDOUT:
        _print_gate(found, words)
    raise typer.Exit(found.exit_code)


def gate_json(found: "Gate") -> dict[str, Any]:
    """The whole of it as plain values."""
    return {
        "verdict": found.verdict,
        "exit_code": found.exit_code,
        "ratio": found.ratio,
        "interval": None if found.interval is None else asdict(found.interval),
        "processes_needed": found.processes_needed,
        "seeds_needed": found.seeds_needed,
        **asdict(found),
        "sentences": found.sentences(),
    }


def _print_gate(found: "Gate", words: "Words") -> None:
    console = Console()
    lead, *rest = found.sentences(words.lang)
    say(console, lead, STYLES[found.verdict])
    for text in (*rest, *(words("gate_again", command=again) for again in found.commands())):
        say(console, text)
    is_alone = len(found.checks) == 1
    say(console, words("gate_bounds" if is_alone else "gate_bounds_several"), "dim")
    for text in _gate_warnings(found, words):
        say(console, text, "yellow")
    if text := found.differences(words.lang):
        say(console, text, "dim")


def _gate_warnings(found: "Gate", words: "Words") -> Iterator[str]:
    for name, cells in ((found.run, found.only_run), (found.baseline, found.only_baseline)):
        if cells:
            yield words("compare_only", run=name, cells=words.listed(cells))
    if found.num_failed:
        yield words("gate_failed", run=found.run, number=found.num_failed)
    for one in found.disturbed:
        yield words("remark", trial=one.run, text=words.warning(one.reason, one.cores))
    for reason in found.left_out:
        yield words("damage_left_out", reason=error_line(reason, words.lang))


def _write_markdown(text: str, place: str) -> None:
    if place == STDOUT:
        sys.stdout.write(text)
        return
    try:
        Path(place).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise TrainlabError(f"--markdown {place}: cannot be written: {reason}") from None


def _amount(text: str) -> tuple[str, float]:
    """A metric and how much worse it may be."""
    metric, equals, amount = text.rpartition("=")
    if not equals or not metric:
        raise SpecError([f"--worse: got {text!r}, must be METRIC=AMOUNT, as test/accuracy=0.01"])
    return metric, _number("--worse", text, amount)


def _number(option: str, given: str, text: str) -> float:
    """`5%` or `0.05`."""
    number = text.strip().removesuffix("%")
    try:
        return float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        rule = "must be a share, as 5% or 0.05"
        if option == "--worse":
            rule = "must be METRIC=AMOUNT, as test/accuracy=0.01"
        raise SpecError([f"{option}: got {given!r}, {rule}"]) from None


def reproduce(
    study: str,
    *,
    run: list[Path] | None = None,
    seeds: Annotated[int | None, Field(ge=2)] = None,
    out: Path | None = None,
    lang: str | None = None,
) -> None:
    """Run a study on the full data, or take a run, and lay the published figures beside it.

    study STUDY: A study with published figures: fashion-lab, mnist-lab.
    run RUN: A run folder to hold against them, not a new run; several are pooled.
    seeds COUNT (16): How many seeds, for a new run.
    out DIR: The run folder of a new run.
    """
    from trainlab.analysis.comparison import pooled
    from trainlab.analysis.reproduce import differing_settings, published_curves
    from trainlab.analysis.reproduce import reproduce as figures_of
    from trainlab.lab import open_run
    from trainlab.spec.question import cells_of
    from trainlab.studies import PUBLISHED
    from trainlab.workloads.reference import BUILTIN

    words, console = words_in(lang), Console()
    if run and (seeds is not None or out is not None):
        option = "--seeds" if seeds is not None else "--out"
        raise SpecError([f"{option}: is for a new run; leave it out beside --run"])
    question = _published_question(study)
    folders = [open_run(path) for path in run or ()]
    if not folders:
        folders.append(_new_run(study, question, seeds or NUM_SEEDS, out, words))
    paths = [folder.path for folder in folders]
    evidence = pooled([folder.evidence() for folder in folders], paths)
    if evidence.study.workload != question.workload:
        about = f"{evidence.study.workload}, {study} about {question.workload}"
        raise SpecError([f"{paths[0]}: is about {about}; name a run of {study}"])
    cells = cells_of(question, BUILTIN[question.workload].defaults, None)
    settings = {cell.id: cell.settings for cell in cells}
    figures = figures_of(evidence, PUBLISHED[study], settings)
    if not figures:
        raise SpecError([_nothing_published(study, paths[0], evidence, settings)])
    print_blocks(console, [_figures_table(study, figures, words)], words)
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


def _published_question(study: str) -> "Question":
    """Without devices: the published cells differ by what was trained, not by where."""
    from trainlab.spec.base import did_you_mean
    from trainlab.studies import PUBLISHED, builtin_study

    if study not in PUBLISHED:
        near = did_you_mean(study, PUBLISHED)
        raise SpecError([f"{study}: has no published figures; {', '.join(PUBLISHED)} have{near}"])
    question = builtin_study(study)
    vary = {name: levels for name, levels in question.vary.items() if name != "device"}
    return question.model_copy(update={"vary": vary})


def _new_run(
    study: str, question: "Question", seeds: int, out: Path | None, words: "Words"
) -> "Run":
    from trainlab.cli.live_progress import ConsoleWatcher
    from trainlab.lab import drive

    settings = {"data": "full", **question.settings}
    changes = {"settings": settings, "cost": None, "tensorboard": False, "seeds": seeds}
    watcher = ConsoleWatcher(Console(stderr=True), words)
    asked = question.model_copy(update=changes)
    return drive(asked, study, out=out, watcher=watcher).complete_run()


def _nothing_published(
    study: str, path: Path, evidence: "Evidence", settings: "dict[str, TrainSpec]"
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
    figures: "list[PublishedFigure]", curves: "list[PublishedCurve]", words: "Words"
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


def _figures_table(study: str, figures: "list[PublishedFigure]", words: "Words") -> Table:
    from trainlab.analysis.tables import name, table_of, value
    from trainlab.words.numbers import metric_value

    def interval(row: "PublishedFigure") -> Entry:
        if row.interval is None:
            return Entry("")
        low, high = (metric_value(row.metric, end) for end in (row.interval.low, row.interval.high))
        return Entry(words("range", low=low, high=high))

    def figure(row: "PublishedFigure", of: float | None) -> Entry:
        return Entry(metric_value(row.metric, of))

    return table_of(
        words("reproduce_table", study=study),
        [
            name(words("cell"), lambda row: row.cell),
            name(words("figure"), lambda row: row.metric),
            value(words("epoch"), lambda row: Entry(str(row.epoch))),
            value(words("reproduce_published"), lambda row: figure(row, row.published)),
            value(
                words("reproduce_ours"),
                lambda row: figure(row, None if row.ours is None else row.ours.value),
            ),
            value(words("reproduce_interval"), interval),
            name(words("reproduce_verdict"), lambda row: words(VERDICTS[row.inside])),
        ],
        figures,
    )
