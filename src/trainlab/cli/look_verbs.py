"""trainlab show, status, studies, workloads, probes: look at runs, and at what can be run."""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from trainlab.analysis.document import Block, Paragraph, Table
from trainlab.analysis.tables import name, table_of
from trainlab.cli.options import Settings
from trainlab.cli.output import print_json, words_in
from trainlab.errors import RecordError, SpecError, TrainlabError
from trainlab.report.terminal import print_blocks
from trainlab.spec import Question, Study
from trainlab.spec.base import did_you_mean
from trainlab.spec.study import level_text
from trainlab.studies import builtin_study, study_file, study_names
from trainlab.words import Words
from trainlab.workloads.reference import BUILTIN

if TYPE_CHECKING:
    from trainlab.instruments.probe_targets import Probeable
    from trainlab.lab.run_progress import Onlooker

HOME = Path("runs")
"""Where `trainlab run` puts them."""
LOOK_S = 0.5
"""Between two looks on a terminal."""
LINES_S = 5.0
"""Between two looks elsewhere, so that a log stays readable."""


def show(
    runs: list[Path] | None = None,
    *,
    with_all: bool = False,
    lang: str | None = None,
    as_json: bool = False,
) -> None:
    """What a run has shown, from its records alone.

    runs: A run folder, finished or not; several of one study are pooled. Without one, those in runs/ are
      listed.
    with_all --all: Show every finding before the answer.
    """
    words = words_in(lang)
    if not runs:
        _print_runs(words, as_json=as_json)
        return
    from trainlab.analysis.comparison import pooled
    from trainlab.analysis.overview import data_of
    from trainlab.cli import run_summary as summary
    from trainlab.lab import open_run

    folders, console = [open_run(path) for path in runs], Console()
    evidence, is_pooled = pooled([folder.evidence() for folder in folders], runs), len(folders) > 1
    if as_json and is_pooled:
        paths = [str(folder.path) for folder in folders]
        print_json({"runs": paths, **summary.evidence_json(evidence)})
        return
    if as_json:
        print_json(summary.run_json(folders[0], evidence))
        return
    data = data_of(evidence)
    if is_pooled:
        summary.print_study(console, data, words, with_all=with_all)
        summary.print_data(console, evidence, words)
        summary.print_answer(console, data, words)
    elif evidence.diagnosis is None:
        summary.print_summary(console, folders[0], data, words, with_all=with_all)
    else:
        from trainlab.cli.script_verbs import print_diagnosis

        if with_all:
            summary.print_study(console, data, words, with_all=True)
        print_diagnosis(console, folders[0], evidence.diagnosis, words, with_all=with_all)


def status(
    run: Path | None = None,
    *,
    watch: bool = False,
    lang: str | None = None,
    as_json: bool = False,
) -> None:
    """How far a run is, from its folder alone, once or until it ends; nothing of it is changed.

    run RUN: A run folder, finished or not; without one, those in runs/ are listed.
    watch --watch: Look again and again, until nobody runs it.
    as_json --json: Print one JSON summary on stdout and nothing else.
    """
    from trainlab.lab import open_run
    from trainlab.lab.run_progress import Onlooker, overview_json

    words = words_in(lang)
    if run is None:
        _print_runs(words, as_json=as_json)
        return
    onlooker, console = Onlooker(open_run(run)), Console()
    if as_json:
        print_json(overview_json(onlooker.look(), str(run)))
        return
    text, is_driven = _status_text(onlooker, run, words)
    if watch and console.is_terminal:
        # One picture that changes; lines that are too long are broken, none is cut.
        with Live(text, console=console, auto_refresh=False, vertical_overflow="visible") as live:
            while is_driven:
                time.sleep(LOOK_S)
                text, is_driven = _status_text(onlooker, run, words)
                live.update(text, refresh=True)
        return
    console.print(text, soft_wrap=True)
    while watch and is_driven:
        until_s = time.monotonic() + LINES_S
        # Its end is seen at once: what was last shown would be old by then.
        while is_driven and time.monotonic() < until_s:
            time.sleep(LOOK_S)
            text, is_driven = _status_text(onlooker, run, words)
        console.print(text, soft_wrap=True)


def _status_text(onlooker: "Onlooker", run: Path, words: Words) -> tuple[Text, bool]:
    """What is to be seen, and whether somebody runs it."""
    from trainlab.lab.run_progress import overview_lines

    overview = onlooker.look()
    lines = overview_lines(overview, str(run), words)
    return Text("\n".join(lines), overflow="fold"), overview.is_driven


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
    rows = [_run_cells(run, words) for run in runs]
    console, table = Console(), RichTable(box=None, pad_edge=False, show_header=False)
    for row in rows:
        table.add_row(*map(Text, row))
    unlimited = console.options.update(width=10_000)
    if Measurement.get(console, unlimited, table).maximum <= console.width:
        console.print(table)
        return
    for path, *rest in rows:  # on a line of its own: broken, it could not be copied
        console.print(Text(path), soft_wrap=True)
        console.print(Padding(Text("  ".join(rest)), (0, 0, 0, 2)))


def _listed(file: Path) -> dict[str, Any]:
    """A run as it is listed."""
    from trainlab.lab import open_run
    from trainlab.lab.run_progress import Onlooker

    counts = {"num_finished": 0, "num_trials": 0, "num_failed": 0}
    try:
        run = open_run(file.parent)
        overview, created = Onlooker(run).look(), run.study().created
        state = "running" if overview.is_driven else "finished" if overview.is_finished else "left"
        counts["num_finished"] = sum(trial.is_finished for trial in overview.trials)
        counts["num_trials"] = len(overview.trials)
        counts["num_failed"] = sum(trial.state == "failed" for trial in overview.trials)
    except TrainlabError:
        state, created = "damaged", datetime.fromtimestamp(file.stat().st_mtime).isoformat()
    return {"path": str(file.parent), "state": state, "created": created, **counts}


def _run_cells(run: dict[str, Any], words: Words) -> tuple[str, ...]:
    trials = words("status_finished", some=run["num_finished"], all=run["num_trials"])
    if run["num_failed"]:
        failed = words("status_count", number=run["num_failed"], state=words("status_failed"))
        trials = words.listed([trials, failed])
    created = run["created"].replace("T", " ")[:16]
    return (run["path"], words.named("listed", run["state"]), created, trials)


def studies(
    study: str | None = None,
    *,
    as_schema: bool = False,
    lang: str | None = None,
) -> None:
    """The built-in studies, and how to write one.

    study [NAME]: Print this study's file, to start your own from.
    as_schema --schema: Print the JSON schema of study files, for editors.
    """
    words = words_in(lang)
    if as_schema:
        sys.stdout.write(json.dumps(Question.model_json_schema(), indent=2) + "\n")
    elif study is not None:
        if study not in study_names():
            near = did_you_mean(study, study_names())
            raise SpecError([f"{study}: no such study; there are {', '.join(study_names())}{near}"])
        sys.stdout.write(study_file(study).read_text(encoding="utf-8"))
    else:
        headings = [words(key) for key in ("study", "workload", "question", "varies")]
        found = [(one, builtin_study(one)) for one in study_names()]
        rows = [(n, q.workload, words.builtin(q.title), _varied_text(q)) for n, q in found]
        table = plain_table(words("studies_table"), headings, rows)
        print_blocks(Console(), (table, Paragraph(words("studies_own"))), words)


def _varied_text(study: Question) -> str:
    varied = [f"{n} {', '.join(map(level_text, levels))}" for n, levels in study.vary.items()]
    for cell in study.cells:
        varied.append(" ".join(f"{n}={level_text(level)}" for n, level in cell.items()))
    return "; ".join(varied)


def workloads(
    *,
    lang: str | None = None,
) -> None:
    """What can be run by name."""
    words = words_in(lang)
    headings = [words(key) for key in ("workload", "what_it_is", "defaults")]
    rows = [
        (
            one.name,
            words.builtin(one.summary),
            ", ".join(f"{n} {v}" for n, v in one.defaults.items()),
        )
        for one in BUILTIN.values()
    ]
    table = plain_table(words("workloads_table"), headings, rows)
    print_blocks(Console(), (table, Paragraph(words("workloads_own"))), words)


def plain_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of texts."""
    columns = [name(heading, itemgetter(index)) for index, heading in enumerate(headings)]
    return table_of(title, columns, rows)


def probes(
    workload: str,
    *,
    settings: Settings,
    lang: str | None = None,
    as_json: bool = False,
) -> None:
    """What can be probed in a workload, and how to ask for it.

    as_json --json @output: Print one JSON list on stdout and nothing else.

    trainlab probes mnist-cnn
    trainlab probes my_model.py:workload --batch-size 8
    """
    from trainlab.cli.parsing import question_of
    from trainlab.lab import planned

    words = words_in(lang)
    if workload in BUILTIN:
        settings.setdefault("data", "bundled")  # shapes are the same, and nothing is fetched
    asked = question_of(workload, settings)
    if asked.question.vary:
        varied = ", ".join(asked.question.vary)
        raise SpecError([f"{varied}: got several levels, but layers are listed for one; give one"])
    with Console(stderr=True).status(words("activity_starting_torch")), asked.naming_options():
        found = _probeables(planned(asked.question, asked.where))
    if as_json:
        print_json(
            [
                {
                    "name": one.name,
                    "kind": one.kind,
                    "type": one.types[0],
                    "shape": list(one.shape),
                    "quantities": one.quantities,
                    "selectors": list(one.selectors),
                }
                for one in found
            ]
        )
    else:
        print_blocks(Console(), _probe_blocks(workload, found, words), words)


def _probeables(study: Study) -> "list[Probeable]":
    from trainlab.instruments.probe_targets import probeable
    from trainlab.plan import Trial
    from trainlab.train.loader import Loader
    from trainlab.train.setup import set_up

    load = Loader()
    workload = load.workload(study.workload)
    trial = Trial(id="probes", workload=workload.name, seed=1, settings=study.settings)
    return probeable(set_up(trial, workload, load.data(study.workload, study.settings)))


def _probe_blocks(workload: str, found: "list[Probeable]", words: Words) -> Iterator[Block]:
    """Layers and parameters with what can be watched there; what a selector, a quantity and a reducer can
    be; and an example that works here."""
    from trainlab.spec.probe import QUANTITIES, REDUCERS

    def shape(one: "Probeable") -> str:
        return "x".join(map(str, one.shape)) or words("probes_number")

    layers = [one for one in found if one.kind != "parameter"]
    parameters = [one for one in found if one.kind == "parameter"]
    yield plain_table(
        words("probes_layers"),
        [words(key) for key in ("layer", "type", "probes_gives", "probes_quantities")],
        [(p.name, f"type={p.types[0]}", shape(p), ", ".join(p.quantities)) for p in layers],
    )
    yield plain_table(
        words("probes_parameters"),
        [words(key) for key in ("probes_parameter", "probes_shape", "probes_quantities")],
        [(p.name, shape(p), ", ".join(p.quantities)) for p in parameters],
    )
    yield Paragraph(words("probes_selector"))
    yield plain_table(
        words("probes_quantities"),
        (words("probes_quantity"), words("what_it_is")),
        [(quantity, words(f"quantity_{quantity}")) for quantity in QUANTITIES],
    )
    yield Paragraph(words("probes_reducers", reducers=", ".join(REDUCERS)))
    differentiable = [one for one in found if "grad_input" in one.quantities]
    examples = [one for one in differentiable if "local_grad" in one.quantities] or differentiable
    if examples:
        probe = f"{examples[0].name}:grad_input:sq_sum@epoch"
        command = f"trainlab run {workload} --probe '{probe}'"
        yield Paragraph(words("probes_example", command=command))
