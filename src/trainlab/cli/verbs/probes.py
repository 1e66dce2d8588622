"""trainlab probes: what can be probed in a workload, and how to ask for it."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainlab.cli.options import asked_of, setting_parameters, with_options
from trainlab.spec import TrainSpec, settings_for
from trainlab.spec.probe import QUANTITIES, REDUCERS
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
        told = [
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
        sys.stdout.write(json.dumps(told) + "\n")
        return
    console = Console()
    console.width = max(console.width, 80)
    console.print(layer_table([one for one in found if one.kind != "parameter"]))
    console.print(parameter_table([one for one in found if one.kind == "parameter"]))
    _print_words(console, workload, found)


def layer_table(layers: "list[Probeable]") -> Table:
    """Calls in order: how to name them and what can be watched there."""
    table = _table("layers, in the order of a step", "layer", "type", "gives", "quantities")
    for one in layers:
        cells = (one.name, f"type={one.types[0]}", _shape(one.shape), ", ".join(one.quantities))
        table.add_row(*map(escape, cells))
    return table


def parameter_table(parameters: "list[Probeable]") -> Table:
    """Parameters with what can be watched."""
    table = _table("parameters", "parameter", "shape", "quantities")
    for one in parameters:
        table.add_row(*map(escape, (one.name, _shape(one.shape), ", ".join(one.quantities))))
    return table


def _found(workload: str, asked: dict[str, Any]) -> "list[Probeable]":
    from pathlib import Path

    from trainlab.instruments.probes.available import probeable
    from trainlab.plan import Trial
    from trainlab.record.folder import TrialFolder
    from trainlab.train.setup import set_up
    from trainlab.workloads.find import find_workload

    found = find_workload(workload)
    settings = settings_for(found.defaults, asked, "settings")
    trial = Trial(id="probes", workload=found.name, seed=1, settings=settings)
    return probeable(set_up(trial, found, TrialFolder(Path())))


def _print_words(console: Console, workload: str, found: "list[Probeable]") -> None:
    """What a selector, a quantity and a reducer can be, and an example that works here."""
    layers = [one for one in found if "grad_input" in one.quantities]
    layers = [one for one in layers if "local_grad" in one.quantities] or layers
    console.print(
        "A selector is a name, a glob (* crosses dots), type=NAME, or several with commas; a name "
        "alone reaches every call of it, NAME/2 the second; a layer stands for its parameters."
    )
    words = _table("quantities", "quantity", "what it is")
    for name, meaning in QUANTITIES.items():
        words.add_row(name, meaning)
    console.print(words)
    console.print(
        f"Reducers: {', '.join(REDUCERS)}, or FILE.py:FUNCTION. How often: @step, @100, @epoch.",
        highlight=False,
    )
    if layers:
        example = f"trainlab run {workload} --probe '{layers[0].name}:grad_input:sq_sum@epoch'"
        console.print(f"For example: [bold]{escape(example)}[/bold]", highlight=False)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "one number"


command = with_options(
    _probes,
    setting_parameters(),
    "Examples: [bold]trainlab probes mnist-cnn[/bold] · "
    "[bold]trainlab probes my_model.py:workload --batch-size 8[/bold]",
)
