"""Command-line options: those that several verbs share, and those made from the fields of a spec so that
they cannot drift."""

import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trainlab.cli.usage import YES_NO
from trainlab.execute.executors import EXECUTORS
from trainlab.spec.base import Spec, choices_of, setting_of
from trainlab.spec.settings import TrainSpec
from trainlab.words import LANGUAGES
from trainlab.workloads.catalogue import BUILTIN

PANEL = "Settings (defaults are the workload's)"

WorkloadArgument = Annotated[
    str, typer.Argument(help="A built-in workload (see `trainlab workloads`) or FILE.py:NAME.")
]
OutOption = Annotated[
    Path | None, typer.Option(help="The run folder. [dim]\\[runs/<name>-<time>][/dim]")
]
LangOption = Annotated[str, typer.Option(metavar="|".join(LANGUAGES), help="The language.")]
OnOption = Annotated[
    str, typer.Option(metavar="WHERE", help=f"Where trials run: {', '.join(EXECUTORS)}.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON summary on stdout and nothing else.")
]


def setting_parameters() -> list[inspect.Parameter]:
    """A keyword parameter per training setting; None means "not asked"."""
    return [
        _parameter(TrainSpec, name, PANEL, _workload_defaults(name))
        for name in TrainSpec.model_fields
    ]


def spec_parameters(kind: type[Spec], panel: str) -> list[inspect.Parameter]:
    """A keyword parameter per field of a spec, with its own defaults."""
    return [
        _parameter(kind, name, panel, _value_text(field.default))
        for name, field in kind.model_fields.items()
    ]


def given_fields(kind: type[Spec], options: Mapping[str, Any]) -> dict[str, Any]:
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


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON value on stdout, and nothing else."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def _parameter(kind: type[Spec], name: str, panel: str, default: str) -> inspect.Parameter:
    """Every value arrives as text, which the spec converts or rejects; one that is true or false needs
    none."""
    field, choices = kind.model_fields[name], choices_of(kind, name)
    is_yes_no = field.annotation is bool
    unit = setting_of(kind, name).unit or "name"
    choices_text = f" {', '.join(choices)}." if choices else ""
    default_text = f"[dim]\\[{default}][/dim]" if default else ""
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=f"{field.description}{choices_text} {default_text}",
        metavar=YES_NO if is_yes_no else unit.upper().replace(" ", "-"),
        rich_help_panel=panel,
        show_default=False,
    )
    annotation = Annotated[str | None, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _workload_defaults(name: str) -> str:
    """A setting's default, or that of each workload where they differ."""
    own = TrainSpec.model_fields[name].default
    texts = {w: _value_text(entry.defaults.get(name, own)) for w, entry in BUILTIN.items()}
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return ", ".join(f"{workload} {text}" for workload, text in texts.items())


def _value_text(value: Any) -> str:
    if value is None or value == {}:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
