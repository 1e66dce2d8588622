"""Command-line options: those that several verbs share, and those made from the fields of a spec so that
they cannot drift."""

import inspect
import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trainlab.cli.usage import YES_NO
from trainlab.cli.verb_help import (
    MEASURING,
    MORE_MEASURING,
    MORE_SETTINGS,
    MORE_WHAT,
    OUTPUT,
    SETTINGS,
    WHAT,
)
from trainlab.errors import SpecError
from trainlab.execute.jobs import EXECUTORS
from trainlab.spec.base import Spec, choices_of, option_of, setting_of
from trainlab.spec.settings import OF_WORKLOADS, TrainSpec
from trainlab.spec.study import CostSpec
from trainlab.words import LANGUAGES
from trainlab.workloads.reference import BUILTIN

CHANGED_MOST = ("epochs", "batch_size", "optimizer", "lr", "device", "data")
"""Settings that the short help shows."""

WorkloadArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="A built-in workload (see `trainlab workloads`) or FILE.py:NAME.",
        rich_help_panel=WHAT,
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The run folder.",
        show_default="runs/NAME-TIME",
        rich_help_panel=OUTPUT,
    ),
]
LangOption = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(LANGUAGES),
        help="The language of what is shown.",
        show_default="TRAINLAB_LANG, or the locale's",
        rich_help_panel=OUTPUT,
    ),
]
OnOption = Annotated[
    str,
    typer.Option(
        metavar="WHERE",
        help=f"Where trials run: {', '.join(EXECUTORS)}.",
        rich_help_panel=MORE_WHAT,
    ),
]
SlurmOption = Annotated[
    str,
    typer.Option(
        metavar="NAME=VALUE",
        help="With --on slurm: options of sbatch, as partition=gpu,time=30,gpus=1.",
        rich_help_panel=MORE_WHAT,
        show_default=False,
    ),
]
TrialTimeoutOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="A trial that takes longer, as 10m or 2h, fails; the others go on.",
        rich_help_panel=MORE_WHAT,
    ),
]
BUDGET_HELP = "Stop after this long, as 10m or 2h; what runs then is interrupted."
BudgetOption = Annotated[
    str | None, typer.Option(metavar="TIME", help=BUDGET_HELP, rich_help_panel=MORE_WHAT)
]
DesignOption = Annotated[
    str | None,
    typer.Option(
        metavar="DESIGN",
        help="grid, or one-at-a-time around the base.",
        rich_help_panel=MORE_WHAT,
    ),
]
YesOption = Annotated[
    bool,
    typer.Option("--yes", help="Allow a study of more than 500 trials.", rich_help_panel=MORE_WHAT),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Show the plan and run nothing.", rich_help_panel=OUTPUT),
]
ScriptArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SCRIPT.py", help="A training script, or -m and a module.", rich_help_panel=WHAT
    ),
]
ScriptArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGUMENTS",
        help="Its own arguments, as you would give them; after -- also those called like ours.",
        rich_help_panel=WHAT,
    ),
]
ReportOption = Annotated[
    bool,
    typer.Option(
        help="At the end of a study, write report/report.html.",
        show_default="written",
        rich_help_panel=OUTPUT,
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="No progress; print only the run folder.", rich_help_panel=OUTPUT
    ),
]
JobsOption = Annotated[
    str,
    typer.Option(
        metavar="COUNT",
        help="Learn trials side by side, each in a process of its own; auto: one per vCPU, of one "
        "thread each, on the CPU and one on a GPU.",
        rich_help_panel=MORE_WHAT,
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON summary on stdout and nothing else.",
        rich_help_panel=OUTPUT,
    ),
]


def setting_parameters() -> list[inspect.Parameter]:
    """A keyword parameter per training setting; None means "not asked"."""
    names = [*CHANGED_MOST, *(n for n in OF_WORKLOADS if n not in CHANGED_MOST)]
    groups = {name: SETTINGS if name in CHANGED_MOST else MORE_SETTINGS for name in names}
    return [
        _parameter(TrainSpec, name, group, _workload_defaults(name))
        for name, group in groups.items()
    ]


def cost_parameters(basic: Collection[str]) -> list[inspect.Parameter]:
    """A keyword parameter per field of a measurement, with its own default; the short help shows those
    that are `basic`."""
    return [
        _parameter(
            CostSpec,
            name,
            MEASURING if name in basic else MORE_MEASURING,
            _value_text(field.default),
        )
        for name, field in CostSpec.model_fields.items()
    ]


def given_fields(kind: type[Spec], options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec that were given on the command line."""
    given = {name: options.get(_parameter_name(kind, name)) for name in kind.model_fields}
    return {name: value for name, value in given.items() if value is not None}


def with_options(
    function: Any,
    first: Sequence[inspect.Parameter],
    examples: Sequence[str],
    *,
    last: Sequence[inspect.Parameter] = (),
) -> Any:
    """The function as typer sees it: its `**options` spelled out, one each, before and after its own."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    words = [p for p in own if p.kind is not p.KEYWORD_ONLY]
    options = [p for p in own if p.kind is p.KEYWORD_ONLY]
    function.__signature__ = signature.replace(parameters=[*words, *first, *options, *last])
    function.epilog = "\n".join(examples)
    return function


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON value on stdout, and nothing else; null for numbers that JSON cannot hold."""
    sys.stdout.write(json.dumps(_finite(value), allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    """The value with None for what is not finite: a difference of the largest numbers there are, say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def _parameter(kind: type[Spec], name: str, group: str, default: str) -> inspect.Parameter:
    """Every value arrives as text, which the spec converts or rejects; one that is true or false needs
    none."""
    field, choices = kind.model_fields[name], choices_of(kind, name)
    is_yes_no = field.annotation is bool
    unit = setting_of(kind, name).unit or "name"
    choices_text = f" {', '.join(choices)}." if choices else ""
    option = typer.Option(
        option_of(kind, name),
        help=f"{field.description}{choices_text}",
        metavar=YES_NO if is_yes_no else unit.upper().replace(" ", "-"),
        rich_help_panel=group,
        show_default=default or False,
    )
    annotation = Annotated[str | None, option]
    return inspect.Parameter(
        _parameter_name(kind, name),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=annotation,
    )


def _parameter_name(kind: type[Spec], name: str) -> str:
    """As typer makes it of the option."""
    return option_of(kind, name).removeprefix("--").replace("-", "_")


def placed(on: str, slurm: str) -> str:
    """Where trials run, with what sbatch is told."""
    if slurm and on != "slurm":
        raise SpecError([f"--slurm: is for --on slurm, but --on is {on}; leave it out"])
    return f"slurm:{slurm}" if slurm else on


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
