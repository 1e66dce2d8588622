"""trainlab compare, gate, reproduce: one run held against another, or against published figures."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import click
from pydantic import BeforeValidator, Field
from rich.console import Console

from trainlab.analysis import comparison, reproduce
from trainlab.analysis.document import Paragraph
from trainlab.analysis.gate import Gate
from trainlab.cli.live_progress import ConsoleWatcher
from trainlab.cli.look_verbs import plain_table
from trainlab.cli.options import ForPrograms, Verb, option, word
from trainlab.cli.output import print_json, say
from trainlab.cli.run_summary import Summary
from trainlab.errors import RecordError, SpecError, TrainlabError
from trainlab.lab import Run, drive, gate, open_run
from trainlab.report.terminal import print_blocks
from trainlab.spec import Question
from trainlab.spec.base import did_you_mean
from trainlab.spec.question import layout_of
from trainlab.studies import PUBLISHED, builtin_study
from trainlab.words import Words
from trainlab.words.error_lines import error_line
from trainlab.words.numbers import metric_value
from trainlab.workloads.reference import BUILTIN

STYLES = {"pass": "bold green", "fail": "bold red", "cannot tell": "bold yellow"}
STDOUT = "-"
GATE_ANSWER = (
    *("verdict", "exit_code", "ratio", "interval"),
    *("processes_needed", "seeds_needed"),
)
"""What of a gate follows from its checks."""
NUM_SEEDS = 16
COLUMNS = (
    *("cell", "figure", "epoch", "reproduce_published", "reproduce_ours"),
    *("reproduce_interval", "reproduce_verdict"),
)
VERDICTS = {True: "reproduce_inside", False: "reproduce_outside", None: "reproduce_unknown"}


class CompareVerb(Verb):
    """Two runs of one workload side by side, say a laptop's and a server's; what else differs is listed."""

    first: Path = word("FIRST")
    """A run folder."""
    second: Path = word("SECOND")
    """Another, of the same workload."""
    report: Path | None = option("FILE")
    """Also write it as one HTML file."""

    def __call__(self) -> None:
        words, console, paths = self.words, Console(), (self.first, self.second)
        if self.first.resolve() == self.second.resolve():
            raise RecordError(f"{self.first}: is compared with itself; name two run folders")
        a, b = (open_run(path).evidence() for path in paths)
        found = comparison.side_by_side(a, b)
        both, lang = [Summary(console, one, words) for one in (a, b)], words.lang
        for name, path in zip("AB", paths, strict=True):
            print_blocks(console, [Paragraph(f"{name}{words('colon')}{path}")], words)
        for summary in both:
            summary.print_damaged()
        # What else differs first: it may be the reason for all that follows.
        document = comparison.comparison_of(both[0].data, both[1].data, found, lang)
        without = () if found.learned else ("learning",)  # why it is not compared
        for section in document.sections:
            if section.id in ("differs", "answer", *without):
                console.print()
                print_blocks(console, section.blocks, words)
        if pairs := (*found.costs, *found.learned):
            caption = words("compare_table")
            print_blocks(console, [comparison.beside_table(caption, pairs, words)], words)
        if self.report is not None:
            from trainlab.report.writing import write_comparison

            write_comparison(a, b, self.report, lang, comparison.labels_of((a, b), paths))
            print_blocks(console, [Paragraph(words("report_at", path=self.report))], words)


def _share(text: str) -> float:
    """`5%` or `0.05`."""
    try:
        return float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        raise ValueError(f"got {text!r}, must be a share, as 5% or 0.05") from None


def _amounts(texts: list[str]) -> dict[str, float]:
    """Metrics, and how much worse each may be."""
    found = {}
    for text in texts:
        metric, _, amount = text.rpartition("=")
        try:
            found[metric] = _share(amount)
        except ValueError:
            metric = ""
        if not metric:
            raise ValueError(f"got {text!r}, must be METRIC=AMOUNT, as test/accuracy=0.01")
    return found


class GateVerb(ForPrograms):
    """Exits with 0 if it is not, 1 if it is, 3 if that cannot be told; 2 where runs cannot be compared."""

    run: Path = word("RUN")
    """A run folder, finished."""
    against: Path = option("BASELINE", "", ...)
    """An earlier run folder of the same thing on the same machine."""
    slower: Annotated[float, BeforeValidator(_share)] | None = option(
        "SHARE", shown="5%, without --worse"
    )
    """How much longer a step may take, as 5% or 0.05."""
    worse: Annotated[dict[str, float], BeforeValidator(_amounts)] = option("METRIC=AMOUNT", "", [])
    """How much worse a final metric may be, as test/accuracy=0.01; again for more."""
    mode: str | None = option("train|inference", shown="train where it was measured")
    """Which step is compared."""
    any_host: bool = option("", "", False)
    """The host's name may differ, as that of a container does."""
    markdown: str | None = option("FILE")
    """Also write a paragraph of Markdown; - prints it and nothing else."""
    quiet: bool = option("", "", False, names="--quiet -q")
    """Print nothing; the exit code says it: 0 not slower, 1 slower, 3 cannot tell."""

    def __call__(self) -> None:
        if self.markdown == STDOUT and self.as_json:
            raise SpecError(["--markdown: got '-', but --json is printed there; name a file"])
        asked = {"run", "against", "slower", "worse", "mode", "any_host"}
        try:
            found = gate(**self.model_dump(include=asked))
        except SpecError as error:
            raise SpecError(f"--{problem}" for problem in error.problems) from None
        if self.markdown is not None:
            _write_markdown(self.markdown, f"{found.markdown(self.words.lang)}\n")
        if self.as_json:
            values = {name: getattr(found, name) for name in GATE_ANSWER}
            print_json({**values, **asdict(found), "sentences": found.sentences()})
        elif not self.quiet and self.markdown != STDOUT:
            for text, style in _gate_texts(found, self.words):
                say(Console(), text, style)
        raise SystemExit(found.exit_code)


def _write_markdown(place: str, text: str) -> None:
    try:
        with click.open_file(place, "w", encoding="utf-8") as stream:  # `-` is standard output
            stream.write(text)
    except OSError as error:
        rule = f"cannot be written: {error.strerror or error}"
        raise TrainlabError(f"--markdown {place}: {rule}") from None


def _gate_texts(found: Gate, words: Words) -> Iterator[tuple[str, str]]:
    """What a gate says, with styles: the verdict, what it rests on, what would tell, and warnings."""
    lead, *rest = found.sentences(words.lang)
    yield lead, STYLES[found.verdict]
    for text in (*rest, *(words("gate_again", command=again) for again in found.commands())):
        yield text, ""
    yield words("gate_bounds" if len(found.checks) == 1 else "gate_bounds_several"), "dim"
    for name, cells in ((found.run, found.only_run), (found.baseline, found.only_baseline)):
        if cells:
            yield words("compare_only", run=name, cells=words.listed(cells)), "yellow"
    if found.num_failed:
        yield words("gate_failed", run=found.run, number=found.num_failed), "yellow"
    for one in found.disturbed:
        text = words.warning(one.reason, one.cores)
        yield words("remark", trial=one.run, text=text), "yellow"
    for reason in found.left_out:
        yield words("damage_left_out", reason=error_line(reason, words.lang)), "yellow"
    if text := found.differences(words.lang):
        yield text, "dim"


class ReproduceVerb(Verb):
    """Run a study on the full data, or take a run, and lay the published figures beside it."""

    study: str = word("STUDY")
    """A study with published figures: fashion-lab, mnist-lab."""
    run: list[Path] = option("RUN", "", [])
    """A run folder to hold against them, not a new run; several are pooled."""
    seeds: Annotated[int | None, Field(ge=2)] = option("COUNT", shown="16")
    """How many seeds, for a new run."""
    out: Path | None = option("DIR")
    """The run folder of a new run."""

    def __call__(self) -> None:
        words, console = self.words, Console()
        if self.run and (self.seeds is not None or self.out is not None):
            name = "--seeds" if self.seeds is not None else "--out"
            raise SpecError([f"{name}: is for a new run; leave it out beside --run"])
        question = self._question()
        folders = [open_run(path) for path in self.run] or [self._new_run(question)]
        paths = [folder.path for folder in folders]
        evidence = comparison.pooled([folder.evidence() for folder in folders], paths)
        if evidence.study.workload != question.workload:
            about = f"{evidence.study.workload}, {self.study} about {question.workload}"
            raise SpecError([f"{paths[0]}: is about {about}; name a run of {self.study}"])
        cells, _ = layout_of(question, BUILTIN[question.workload].defaults, None)
        settings = {cell.id: cell.settings for cell in cells}
        figures = reproduce.reproduce(evidence, PUBLISHED[self.study], settings)
        differing = reproduce.differing_settings(evidence, settings)
        if not figures:
            why = " · ".join(f"{cell} has {'; '.join(one)}" for cell, one in differing.items())
            if others := [cell.id for cell in evidence.cells if cell.id not in settings]:
                why = why or f"{', '.join(others)}: not among {', '.join(settings)}"
            why = why or "no learn trial of it is done"
            remedy = f"make a new run with `trainlab reproduce {self.study}`"
            none = f"nothing in it was published for {self.study}"
            raise SpecError([f"{paths[0]}: {none}: {why}; {remedy}"])
        self._print_figures(figures)
        for cell, differences in differing.items():
            text = words("list_semicolon").join(error_line(d, words.lang) for d in differences)
            say(console, words("reproduce_skipped", cell=cell, differences=text), "yellow")
        if any(trial.data is not None and trial.data.is_subset for trial in evidence.trials):
            say(console, words("reproduce_subset"), "yellow")
        for path in paths:
            say(console, words("run_folder", path=path))
        curves = reproduce.published_curves(figures)
        if not curves or not all(curve.agrees for curve in curves):
            raise SystemExit(1)

    def _question(self) -> Question:
        """Without devices: the published cells differ by what was trained, not by where."""
        if self.study not in PUBLISHED:
            known = f"{', '.join(PUBLISHED)} have{did_you_mean(self.study, PUBLISHED)}"
            raise SpecError([f"{self.study}: has no published figures; {known}"])
        question = builtin_study(self.study)
        vary = {name: levels for name, levels in question.vary.items() if name != "device"}
        return question.model_copy(update={"vary": vary})

    def _new_run(self, question: Question) -> Run:
        settings, seeds = {"data": "full", **question.settings}, self.seeds or NUM_SEEDS
        changes = {"settings": settings, "cost": None, "tensorboard": False, "seeds": seeds}
        asked = question.model_copy(update=changes)
        watcher = ConsoleWatcher(Console(stderr=True), self.words)
        return drive(asked, self.study, out=self.out, watcher=watcher).complete_run()

    def _print_figures(self, figures: list[reproduce.PublishedFigure]) -> None:
        """All figures; how many lie inside and how many should; which curves no run of ours could have."""
        words, console, rows = self.words, Console(), []
        for one in figures:
            ends = (one.interval.low, one.interval.high) if one.interval else ()
            ours = one.ours.value if one.ours else None
            published, mean, *sides = (
                metric_value(one.metric, value) for value in (one.published, ours, *ends)
            )
            interval = words("range", low=sides[0], high=sides[1]) if sides else ""
            verdict = words(VERDICTS[one.inside])
            rows.append((one.cell, one.metric, str(one.epoch), published, mean, interval, verdict))
        caption = words("reproduce_table", study=self.study)
        table = plain_table(caption, COLUMNS, rows, words, numbers=COLUMNS[2:-1])
        print_blocks(console, [table], words)
        num_inside = sum(figure.inside is True for figure in figures)
        chance = reproduce.CHANCE_OUTSIDE * sum(figure.inside is not None for figure in figures)
        chance_text = f"{chance:.1f}"
        key = "reproduce_count"
        say(console, words(key, inside=num_inside, all=len(figures), chance=chance_text))
        curves = reproduce.published_curves(figures)
        if not curves:
            say(console, words("reproduce_undecided"), "yellow")
            return
        for curve in curves:
            if not curve.agrees:
                key = "reproduce_above" if curve.deviation > 0 else "reproduce_below"
                off, p = f"{abs(curve.deviation):.1f}", f"{min(curve.p_curve, curve.p_figure):.2g}"
                text = words(key, cell=curve.cell, metric=curve.metric, off=off, p=p)
                say(console, text, "red")
        num_agree = sum(curve.agrees for curve in curves)
        level = f"{reproduce.CURVES_LEVEL + reproduce.FIGURES_LEVEL:.0%}"
        say(console, words("reproduce_agree", agree=num_agree, all=len(curves), level=level))
