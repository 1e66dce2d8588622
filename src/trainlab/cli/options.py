"""Specs as command-line options, made from their fields so that they cannot drift."""

import inspect
import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from trainlab.spec.base import Spec, choices_of, setting_of
from trainlab.spec.settings import TrainSpec
from trainlab.workloads.catalogue import BUILTIN

PANEL = "Settings (defaults are the workload's)"


def setting_parameters() -> list[inspect.Parameter]:
    """A keyword parameter per training setting; None means "not asked"."""
    return [
        _parameter(TrainSpec, name, PANEL, _default_text(name)) for name in TrainSpec.model_fields
    ]


def spec_parameters(kind: type[Spec], panel: str) -> list[inspect.Parameter]:
    """A keyword parameter per field of a spec, with its own defaults."""
    return [
        _parameter(kind, name, panel, f"[dim]\\[{_value(field.default)}][/dim]")
        for name, field in kind.model_fields.items()
    ]


def asked_of(kind: type[Spec], options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec that were given on the command line."""
    return {
        name: value
        for name, value in options.items()
        if name in kind.model_fields and value is not None
    }


def with_options(function: Any, parameters: list[inspect.Parameter], epilog: str) -> Any:
    """The function as typer sees it: its `**options` spelled out, one each."""
    signature = inspect.signature(function)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=[*named, *parameters])
    function.epilog = epilog
    return function


def _parameter(kind: type[Spec], name: str, panel: str, default: str) -> inspect.Parameter:
    if kind.model_fields[name].default is False:
        flag = typer.Option(
            f"--{name.replace('_', '-')}",
            help=kind.model_fields[name].description,
            rich_help_panel=panel,
            show_default=False,
        )
        given: Any = Annotated[bool | None, flag]
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=given
        )
    choices = choices_of(kind, name)
    listed = f" {', '.join(choices)}." if choices else ""
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=f"{kind.model_fields[name].description}{listed} {default}",
        metavar=(setting_of(kind, name).unit or "name").upper().replace(" ", "-"),
        rich_help_panel=panel,
        show_default=False,
    )
    # Everything arrives as text: the spec converts it and tells what is wrong.
    annotation: Any = Annotated[str | None, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _default_text(name: str) -> str:
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


def print_json(values: Mapping[str, Any]) -> None:
    """One JSON object on stdout, and nothing else."""
    sys.stdout.write(json.dumps(values, allow_nan=False) + "\n")
