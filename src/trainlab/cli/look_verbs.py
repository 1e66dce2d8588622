"""trainlab show, status, studies, workloads, probes: look at runs, and at what can be run."""

import json
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from trainlab.analysis.document import Block, Paragraph, Table
from trainlab.analysis.tables import Field, table_of
from trainlab.cli.options import ForPrograms, Settings, Verb, option, word
from trainlab.cli.output import print_json, say
from trainlab.cli.parsing import question_of
from trainlab.errors import RecordError, SpecError, TrainlabError
from trainlab.lab import open_run, planned, run_progress
from trainlab.plan import Trial
from trainlab.report.terminal import print_blocks
from trainlab.report.wrapping import cells
from trainlab.spec import Question
from trainlab.spec.base import did_you_mean
from trainlab.spec.probe import QUANTITIES, REDUCERS
from trainlab.spec.study import level_text
from trainlab.studies import builtin_study, study_file, study_names
from trainlab.words import Words
from trainlab.workloads.reference import BUILTIN

if TYPE_CHECKING:
    from trainlab.instruments.probe_listing import Probeable

HOME = Path("runs")
"""Where `trainlab run` puts them."""
LOOK_S = 0.5
"""Between two looks at a run in progress."""
LINES_S = 5.0
"""Between two printed states off a terminal, so that a log stays readable."""


class ShowVerb(ForPrograms):
    """What a run has shown, from its records alone."""

    runs: list[Path] = word("RUNS", default=[])
    """A run folder, finished or not; several of one study are pooled. Without one, those in runs/ are
    listed."""
    with_all: bool = option("", "", False, names="--all")
    """Also show every table, all reasons and every finding."""

    def __call__(self) -> None:
        if not self.runs:
            _print_runs(self.words, as_json=self.as_json)
            return
        from trainlab.analysis.comparison import pooled
        from trainlab.cli.run_summary import Summary, evidence_json

        folders = [open_run(path) for path in self.runs]
        evidence = pooled([folder.evidence() for folder in folders], self.runs)
        if self.as_json:
            paths = [str(folder.path) for folder in folders]
            named = {"runs": paths} if len(paths) > 1 else {"run": paths[0]}
            print_json({**named, **evidence_json(evidence)})
            return
        summary = Summary(Console(), evidence, self.words)
        if len(folders) > 1:
            summary.print_results(with_all=self.with_all)
        elif evidence.diagnosis is None:
            summary.print_all(folders[0], with_all=self.with_all)
        else:
            if self.with_all:
                summary.print_details()
                summary.print_remarks()
            summary.print_diagnosis(folders[0], with_all=self.with_all)


class StatusVerb(ForPrograms):
    """How far a run is, from its folder alone, once or until it ends; nothing of it is changed."""

    run: Path | None = word("RUN", default=None)
    """A run folder, finished or not; without one, those in runs/ are listed."""
    watch: bool = option("", "", False)
    """Look again and again, until nobody runs it."""

    def __call__(self) -> None:
        if self.run is None:
            _print_runs(self.words, as_json=self.as_json)
            return
        progress, console = run_progress.RunProgress(open_run(self.run)), Console()
        if self.as_json:
            print_json(run_progress.overview_json(progress.look(), str(self.run)))
            return
        is_live = self.watch and console.is_terminal
        # One picture that changes; lines that are too long are broken, none is cut.
        live = Live(console=console, auto_refresh=False, vertical_overflow="visible")
        with live if is_live else nullcontext():
            while True:
                lines = run_progress.overview_lines(progress.look(), str(self.run), self.words)
                text, goes_on = "\n".join(lines), self.watch and progress.is_driven
                if is_live:
                    live.update(Text(text, overflow="fold"), refresh=True)
                else:
                    console.print(Text(text), soft_wrap=True)
                if not goes_on:
                    return
                time.sleep(LOOK_S if is_live else LINES_S)


def _print_runs(words: Words, *, as_json: bool) -> None:
    """The runs in the current folder's `runs/`, newest first; RecordError where there is none."""
    listed = [_listed(file) for file in HOME.glob("*/study.json")]
    runs = sorted(listed, key=lambda run: str(run["created"]), reverse=True)
    if not runs:
        remedy = "name a run folder, or make one with `trainlab run mnist-lab`"
        raise RecordError(f"{HOME}: has no run; {remedy}")
    if as_json:
        print_json(runs)
        return
    rows = []
    for run in runs:
        trials = words("status_finished", some=run["num_finished"], all=run["num_trials"])
        if run["num_failed"]:
            failed = words("status_count", number=run["num_failed"], state=words("status_failed"))
            trials = words.listed([trials, failed])
        created = run["created"].replace("T", " ")[:16]
        rows.append((run["path"], words.named("listed", run["state"]), created, trials))
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    console = Console()
    # Where it has no room beside the rest, a path stands alone: broken, it could not be copied.
    is_wide = sum(widths) + 2 * len(widths) > console.width
    for row in rows:
        parts = [part + " " * (w - cells(part)) for part, w in zip(row, widths, strict=True)]
        say(console, f"{row[0]}\n  {'  '.join(row[1:])}" if is_wide else "  ".join(parts).rstrip())


def _listed(file: Path) -> dict[str, Any]:
    """A run as it is listed."""
    counts = {"num_finished": 0, "num_trials": 0, "num_failed": 0}
    try:
        run = open_run(file.parent)
        progress, created = run_progress.RunProgress(run), run.study().created
        state = "running" if progress.is_driven else "finished" if progress.is_finished else "left"
        counts["num_finished"] = sum(trial.is_finished for trial in progress.trials.values())
        counts["num_trials"] = len(progress.trials)
        counts["num_failed"] = progress.counts()["failed"]
    except TrainlabError:
        state, created = "damaged", datetime.fromtimestamp(file.stat().st_mtime).isoformat()
    return {"path": str(file.parent), "state": state, "created": created, **counts}


class StudiesVerb(Verb):
    """The built-in studies, and how to write one."""

    study: str | None = word("[NAME]", default=None)
    """Print this study's file, to start your own from."""
    as_schema: bool = option("", "", False, names="--schema")
    """Print the JSON schema of study files, for editors."""

    def __call__(self) -> None:
        words = self.words
        if self.as_schema:
            sys.stdout.write(json.dumps(Question.model_json_schema(), indent=2) + "\n")
        elif self.study is not None:
            if self.study not in (known := study_names()):
                hint = f"there are {', '.join(known)}{did_you_mean(self.study, known)}"
                raise SpecError([f"{self.study}: no such study; {hint}"])
            sys.stdout.write(study_file(self.study).read_text(encoding="utf-8"))
        else:
            rows = []
            for name in study_names():
                one = builtin_study(name)
                varied = [f"{n} {', '.join(map(level_text, v))}" for n, v in one.vary.items()]
                for cell in one.cells:
                    varied.append(" ".join(f"{n}={level_text(v)}" for n, v in cell.items()))
                rows.append((name, one.workload, words.builtin(one.title), "; ".join(varied)))
            headings = ("study", "workload", "question", "varies")
            table = plain_table(words("studies_table"), headings, rows, words)
            print_blocks(Console(), (table, Paragraph(words("studies_own"))), words)


class WorkloadsVerb(Verb):
    """What can be run by name."""

    def __call__(self) -> None:
        words, rows = self.words, []
        for one in BUILTIN.values():
            defaults = ", ".join(f"{name} {value}" for name, value in one.defaults.items())
            rows.append((one.name, words.builtin(one.summary), defaults))
        headings = ("workload", "what_it_is", "defaults")
        table = plain_table(words("workloads_table"), headings, rows, words)
        print_blocks(Console(), (table, Paragraph(words("workloads_own"))), words)


def plain_table(
    caption: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    words: Words,
    numbers: Collection[str] = (),
) -> Table:
    """A table of texts; its headings are keys of the words, `numbers` those of columns of numbers."""
    columns = [
        Field(words(key), itemgetter(index), is_number=key in numbers)
        for index, key in enumerate(headings)
    ]
    return table_of(caption, columns, rows)


class ProbesVerb(Verb):
    """What can be probed in a workload, and how to ask for it.

    trainlab probes mnist-cnn
    trainlab probes my_model.py:workload --batch-size 8
    """

    workload: str = word("WORKLOAD", "what")
    """A built-in workload (see `trainlab workloads`) or FILE.py:NAME."""
    settings: Settings = {}
    as_json: bool = option("", "output", False, names="--json")
    """Print one JSON list on stdout and nothing else."""

    def __call__(self) -> None:
        words = self.words
        # Shapes are the same in bundled data, and nothing is fetched.
        usual = {"data": "bundled"} if self.workload in BUILTIN else {}
        asked = question_of(self.workload, usual | self.settings)
        if asked.question.vary:
            rule = "got several levels, but layers are listed for one; give one"
            raise SpecError([f"{', '.join(asked.question.vary)}: {rule}"])
        with Console(stderr=True).status(words("activity_starting_torch")), asked.naming_options():
            study = planned(asked.question, asked.where)
            from trainlab.instruments.probe_listing import probeable
            from trainlab.train.loader import Loader
            from trainlab.train.setup import set_up

            load = Loader()
            workload = load.workload(study.workload)
            data = load.data(study.workload, study.settings)
            trial = Trial(id="probes", workload=workload.name, seed=1, settings=study.settings)
            found = probeable(set_up(trial, workload, data))
        if self.as_json:
            plain = ("name", "kind", "shape", "quantities", "selectors")
            print_json([{"type": p.types[0]} | {n: getattr(p, n) for n in plain} for p in found])
        else:
            print_blocks(Console(), _probe_blocks(self.workload, found, words), words)


def _probe_blocks(workload: str, found: "list[Probeable]", words: Words) -> Iterator[Block]:
    """Layers and parameters with what can be watched there; what a selector, a quantity and a reducer can
    be; and an example that works here."""

    def shape(one: "Probeable") -> str:
        return "x".join(map(str, one.shape)) or words("probes_number")

    layers = [one for one in found if one.kind != "parameter"]
    parameters = [one for one in found if one.kind == "parameter"]
    yield plain_table(
        words("probes_layers"),
        ("layer", "type", "probes_gives", "probes_quantities"),
        [(p.name, f"type={p.types[0]}", shape(p), ", ".join(p.quantities)) for p in layers],
        words,
    )
    yield plain_table(
        words("probes_parameters"),
        ("probes_parameter", "probes_shape", "probes_quantities"),
        [(p.name, shape(p), ", ".join(p.quantities)) for p in parameters],
        words,
    )
    yield Paragraph(words("probes_selector"))
    rows = [(quantity, words(f"quantity_{quantity}")) for quantity in QUANTITIES]
    headings = ("probes_quantity", "what_it_is")
    yield plain_table(words("probes_quantities"), headings, rows, words)
    yield Paragraph(words("probes_reducers", reducers=", ".join(REDUCERS)))
    differentiable = [one for one in found if "grad_input" in one.quantities]
    examples = [one for one in differentiable if "local_grad" in one.quantities] or differentiable
    if examples:
        probe = f"{examples[0].name}:grad_input:sq_sum@epoch"
        command = f"trainlab run {workload} --probe '{probe}'"
        yield Paragraph(words("probes_example", command=command))
