"""trainlab probes: what can be probed in a workload, and how to ask for it."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from trainlab.cli.options import asked_of, setting_parameters, with_options
from trainlab.report.document import Block, Paragraph, Table
from trainlab.report.render.terminal import print_blocks
from trainlab.report.tables.columns import name, table_of
from trainlab.spec import TrainSpec, settings_for
from trainlab.spec.probe import QUANTITIES, REDUCERS
from trainlab.words import Words
from trainlab.workloads.catalogue import BUILTIN

if TYPE_CHECKING:
    from trainlab.instruments.probes.available import Probeable


def _probes(
    workload: Annotated[
        str, typer.Argument(help="A built-in workload (see `trainlab workloads`) or FILE.py:NAME.")
    ],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON list on stdout and nothing else.")
    ] = False,
    **options: Any,
) -> None:
    asked = asked_of(TrainSpec, options)
    if workload in BUILTIN:
        asked.setdefault("data", "bundled")  # shapes are the same, and nothing is fetched
    with Console(stderr=True).status("starting torch"):
        found = _found(workload, asked)
    if as_json:
        values = [
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
        sys.stdout.write(json.dumps(values) + "\n")
        return
    print_blocks(Console(), _blocks(workload, found), Words("en"))


def _blocks(workload: str, found: "list[Probeable]") -> list[Block]:
    layers = [one for one in found if one.kind != "parameter"]
    parameters = [one for one in found if one.kind == "parameter"]
    return [layer_table(layers), parameter_table(parameters), *_explained(workload, found)]


def layer_table(layers: "list[Probeable]") -> Table:
    """Calls in order: how to name them and what can be watched there."""
    rows = [(x.name, f"type={x.types[0]}", _shape(x), ", ".join(x.quantities)) for x in layers]
    headings = ("layer", "type", "gives", "quantities")
    return _table("layers, in the order of a step", headings, rows)


def parameter_table(parameters: "list[Probeable]") -> Table:
    """Parameters with what can be watched."""
    rows = [(one.name, _shape(one), ", ".join(one.quantities)) for one in parameters]
    return _table("parameters", ("parameter", "shape", "quantities"), rows)


def _found(workload: str, asked: dict[str, Any]) -> "list[Probeable]":
    from trainlab.instruments.probes.available import probeable
    from trainlab.plan import Trial
    from trainlab.train.loader import Loader
    from trainlab.train.setup import set_up

    load = Loader()
    found = load.workload(workload)
    settings = settings_for(found.defaults, asked, "settings")
    trial = Trial(id="probes", workload=found.name, seed=1, settings=settings)
    return probeable(set_up(trial, found, load.data(workload, settings.data)))


def _explained(workload: str, found: "list[Probeable]") -> Iterator[Block]:
    """What a selector, a quantity and a reducer can be, and an example that works here."""
    words = Words("en")
    yield Paragraph(
        "A selector is a name, a glob (* crosses dots), type=NAME, or several with commas; a name "
        "alone reaches every call of it, NAME/2 the second; a layer stands for its parameters."
    )
    meanings = [(name, words(f"quantity_{name}")) for name in QUANTITIES]
    yield _table("quantities", ("quantity", "what it is"), meanings)
    yield Paragraph(
        f"Reducers: {', '.join(REDUCERS)}, or FILE.py:FUNCTION. How often: @step, @100, @epoch."
    )
    layers = [one for one in found if "grad_input" in one.quantities]
    layers = [one for one in layers if "local_grad" in one.quantities] or layers
    if layers:
        probe = f"{layers[0].name}:grad_input:sq_sum@epoch"
        yield Paragraph(f"For example: trainlab run {workload} --probe '{probe}'")


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    fields = [name(heading, itemgetter(place)) for place, heading in enumerate(headings)]
    return table_of(title, fields, rows)


def _shape(one: "Probeable") -> str:
    return "x".join(map(str, one.shape)) or "one number"


command = with_options(
    _probes,
    setting_parameters(),
    "Examples: [bold]trainlab probes mnist-cnn[/bold] · "
    "[bold]trainlab probes my_model.py:workload --batch-size 8[/bold]",
)
