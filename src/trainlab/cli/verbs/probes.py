"""trainlab probes: what can be probed in a workload, and how to ask for it."""

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from trainlab.analysis.document import Block, Paragraph, Table
from trainlab.analysis.tables import name, table_of
from trainlab.cli.language import words_in
from trainlab.cli.options import (
    LangOption,
    WorkloadArgument,
    given_fields,
    print_json,
    setting_parameters,
    with_options,
)
from trainlab.cli.question import question_of
from trainlab.cli.verb_help import OUTPUT
from trainlab.errors import SpecError
from trainlab.lab import planned
from trainlab.report.terminal import print_blocks
from trainlab.spec import Study, TrainSpec
from trainlab.spec.probe import QUANTITIES, REDUCERS
from trainlab.words import Words
from trainlab.workloads.reference import BUILTIN

if TYPE_CHECKING:
    from trainlab.instruments.probe_targets import Probeable


def _probes(
    workload: WorkloadArgument,
    *,
    lang: LangOption = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON list on stdout and nothing else.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    **options: Any,
) -> None:
    words, settings = words_in(lang), given_fields(TrainSpec, options)
    if workload in BUILTIN:
        settings.setdefault("data", "bundled")  # shapes are the same, and nothing is fetched
    asked = question_of(workload, settings)
    if asked.question.vary:
        varied = ", ".join(asked.question.vary)
        raise SpecError([f"{varied}: got several levels, but layers are listed for one; give one"])
    activity = words("activity_starting_torch")
    with Console(stderr=True).status(activity), asked.naming_options():
        probeables = _probeables(planned(asked.question, asked.where))
    if as_json:
        print_json([_json(probeable) for probeable in probeables])
    else:
        print_blocks(Console(), _blocks(workload, probeables, words), words)


def _probeables(study: Study) -> "list[Probeable]":
    from trainlab.instruments.probe_targets import probeable
    from trainlab.plan import Trial
    from trainlab.train.loader import Loader
    from trainlab.train.setup import set_up

    load, settings = Loader(), study.settings
    workload = load.workload(study.workload)
    trial = Trial(id="probes", workload=workload.name, seed=1, settings=settings)
    return probeable(set_up(trial, workload, load.data(study.workload, settings)))


def _json(probeable: "Probeable") -> dict[str, Any]:
    return {
        "name": probeable.name,
        "kind": probeable.kind,
        "type": probeable.types[0],
        "shape": list(probeable.shape),
        "quantities": probeable.quantities,
        "selectors": list(probeable.selectors),
    }


def _blocks(workload: str, probeables: "list[Probeable]", words: Words) -> Iterator[Block]:
    """Layers and parameters with what can be watched there; what a selector, a quantity and a reducer can
    be; and an example that works here."""
    layers = [p for p in probeables if p.kind != "parameter"]
    parameters = [p for p in probeables if p.kind == "parameter"]
    yield _table(
        words("probes_layers"),
        (words("layer"), words("type"), words("probes_gives"), words("probes_quantities")),
        [(p.name, f"type={p.types[0]}", _shape(p, words), ", ".join(p.quantities)) for p in layers],
    )
    yield _table(
        words("probes_parameters"),
        (words("probes_parameter"), words("probes_shape"), words("probes_quantities")),
        [(p.name, _shape(p, words), ", ".join(p.quantities)) for p in parameters],
    )
    yield Paragraph(words("probes_selector"))
    yield _table(
        words("probes_quantities"),
        (words("probes_quantity"), words("what_it_is")),
        [(quantity, words(f"quantity_{quantity}")) for quantity in QUANTITIES],
    )
    yield Paragraph(words("probes_reducers", reducers=", ".join(REDUCERS)))
    differentiable = [p for p in probeables if "grad_input" in p.quantities]
    examples = [p for p in differentiable if "local_grad" in p.quantities] or differentiable
    if examples:
        probe = f"{examples[0].name}:grad_input:sq_sum@epoch"
        command_text = f"trainlab run {workload} --probe '{probe}'"
        yield Paragraph(words("probes_example", command=command_text))


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    columns = [name(heading, itemgetter(index)) for index, heading in enumerate(headings)]
    return table_of(title, columns, rows)


def _shape(probeable: "Probeable", words: Words) -> str:
    return "x".join(map(str, probeable.shape)) or words("probes_number")


command = with_options(
    _probes,
    setting_parameters(),
    (
        "trainlab probes mnist-cnn",
        "trainlab probes my_model.py:workload --batch-size 8",
    ),
)
