"""The settings of a trial as command-line options, made from TrainSpec so that they cannot drift."""

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from trainlab.spec.train import TrainSpec, choices_of, unit_of
from trainlab.workloads.catalogue import BUILTIN

PANEL = "Settings (defaults are the workload's)"


def setting_parameters() -> list[inspect.Parameter]:
    """A keyword parameter per setting; None means "not asked"."""
    return [_parameter(name) for name in TrainSpec.model_fields]


def asked_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were given on the command line."""
    return {
        name: value
        for name, value in options.items()
        if name in TrainSpec.model_fields and value is not None
    }


def _parameter(name: str) -> inspect.Parameter:
    field = TrainSpec.model_fields[name]
    choices = choices_of(name)
    listed = f" {', '.join(choices)}." if choices else ""
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=f"{field.description}{listed} {_default_told(name)}",
        metavar=(unit_of(name) or "name").upper().replace(" ", "-"),
        rich_help_panel=PANEL,
        show_default=False,
    )
    # Everything arrives as text: TrainSpec converts it and tells what is wrong.
    annotation: Any = Annotated[str | None, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _default_told(name: str) -> str:
    field = TrainSpec.model_fields[name]
    values = {w: entry.defaults.get(name, field.default) for w, entry in BUILTIN.items()}
    if len(set(map(repr, values.values()))) == 1:
        told = _value(next(iter(values.values())))
        return f"[dim]\\[{told}][/dim]" if told else ""
    each = ", ".join(f"{workload} {_value(value)}" for workload, value in values.items())
    return f"[dim]\\[{each}][/dim]"


def _value(value: Any) -> str:
    if value is None or value == {}:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
