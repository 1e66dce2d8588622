"""Command-line options, made from fields and parameters that say what they are where they stand.

A verb is a function: words of the command line are its positional parameters, options its keyword-only
ones, and its docstring has a line for each, as `name --other-name METAVAR @group (default): help`; what
many verbs share is in SHARED. A parameter of type Settings or Cost stands for an option per field of that
spec. typer only splits the command line into words: what a value must be is its type's to say, as in a
study file.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic import BaseModel, Field, create_model

from trainlab.cli.help_pages import GROUPS, YES_NO
from trainlab.execute.jobs import EXECUTORS
from trainlab.spec import CostSpec, Spec, TrainSpec
from trainlab.spec.base import checked, choices_of, option_of, setting_of
from trainlab.spec.settings import OF_WORKLOADS
from trainlab.words import LANGUAGES
from trainlab.workloads.reference import BUILTIN

CHANGED_MOST = ("epochs", "batch_size", "optimizer", "lr", "device", "data")
"""Settings that the short help shows."""

SHARED = f"""
workload WORKLOAD @what: A built-in workload (see `trainlab workloads`) or FILE.py:NAME.
script SCRIPT.py @what: A training script, or -m and a module.
arguments ARGUMENTS @what: Its own arguments, as you would give them; after -- also those called like ours.
run RUN: A run folder.
out DIR @output (runs/NAME-TIME): The run folder.
lang {"|".join(LANGUAGES)} @output (TRAINLAB_LANG, or the locale's): The language of what is shown.
on WHERE @what+: Where trials run: {", ".join(EXECUTORS)}.
slurm NAME=VALUE @what+: With --on slurm: options of sbatch, as partition=gpu,time=30,gpus=1.
trial_timeout TIME @what+: A trial that takes longer, as 10m or 2h, fails; the others go on.
budget TIME @what+: Stop after this long, as 10m or 2h; what runs then is interrupted.
design DESIGN @what+: grid, or one-at-a-time around the base.
yes --yes @what+: Allow a study of more than 500 trials.
dry_run --dry-run @output: Show the plan and run nothing.
report @output (written): At the end of a study, write report/report.html.
quiet --quiet -q @output: No progress; print only the run folder.
jobs COUNT @what+: Learn trials side by side, each in a process of its own; auto: one per vCPU, of one
  thread each, on the CPU and one on a GPU.
as_json --json @output: Print one JSON summary on stdout and nothing else.
"""
LINE = re.compile(
    r"(?P<name>\w+)(?P<names>(?: --?[\w-]+)*)(?: (?P<metavar>[^@(\s]\S*))?"
    r"(?: @(?P<group>\S+))?(?: \((?P<default>.*?)\))?: (?P<help>.*)"
)


@dataclass(frozen=True)
class FieldsOf:
    """An option for every field of a spec; the parameter gets those that were given."""

    kind: type[Spec]
    group: str
    basic: Collection[str]
    """Fields that the short help shows."""

    def parameter_names(self) -> dict[str, str]:
        """Field to parameter, as typer makes it of the option; of settings, the basic ones first."""
        names = list(self.kind.model_fields)
        if self.kind is TrainSpec:
            names = [*self.basic, *(name for name in OF_WORKLOADS if name not in self.basic)]
        return {n: option_of(self.kind, n).removeprefix("--").replace("-", "_") for n in names}

    def parameters(self) -> Iterator[inspect.Parameter]:
        """A text each; None means "not asked"."""
        for name, parameter in self.parameter_names().items():
            field, choices = self.kind.model_fields[name], choices_of(self.kind, name)
            unit = setting_of(self.kind, name).unit or "name"
            option = typer.Option(
                option_of(self.kind, name),
                help=f"{field.description} {', '.join(choices)}." if choices else field.description,
                metavar=YES_NO if field.annotation is bool else unit.upper().replace(" ", "-"),
                rich_help_panel=GROUPS[self.group + ("" if name in self.basic else "+")],
                show_default=self._default(name) or False,
            )
            yield _parameter(parameter, str | None, option)

    def _default(self, name: str) -> str:
        """A field's default, or that of each workload where they differ."""
        own = self.kind.model_fields[name].default
        texts = {w: _value_text(entry.defaults.get(name, own)) for w, entry in BUILTIN.items()}
        if self.kind is not TrainSpec or len(set(texts.values())) == 1:
            return _value_text(own) if self.kind is not TrainSpec else next(iter(texts.values()))
        return ", ".join(f"{workload} {text}" for workload, text in texts.items())


Count = Annotated[int, Field(ge=1)]
Settings = Annotated[dict[str, str], FieldsOf(TrainSpec, "settings", CHANGED_MOST)]
Cost = Annotated[dict[str, str], FieldsOf(CostSpec, "measuring", ("processes",))]
ProfileCost = Annotated[dict[str, str], FieldsOf(CostSpec, "measuring", ("mode", "processes"))]


def _value_text(value: Any) -> str:
    if value is None or value == {}:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parameter(name: str, kind: Any, option: Any, default: Any = None) -> inspect.Parameter:
    kinds = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kinds, default=default, annotation=Annotated[kind, option])


def help_lines(text: str) -> dict[str, re.Match[str]]:
    """The lines about parameters, by name; what is indented further belongs to the line above."""
    joined = re.sub(r"\n +(?=\S)", " ", inspect.cleandoc(text))
    matches = (LINE.fullmatch(line) for line in joined.splitlines())
    return {match["name"]: match for match in matches if match}


@cache
def _shared() -> dict[str, re.Match[str]]:
    return help_lines(SHARED)


def _marked(function: Callable[..., None]) -> Iterator[tuple[inspect.Parameter, Any]]:
    """A verb's parameters, each with its FieldsOf or its help line."""
    own = help_lines(function.__doc__ or "")
    for name, parameter in inspect.signature(function).parameters.items():
        marks = getattr(parameter.annotation, "__metadata__", ())
        fields = [mark for mark in marks if isinstance(mark, FieldsOf)]
        yield parameter, fields[0] if fields else own.get(name) or _shared()[name]


def _names(parameter: inspect.Parameter, line: re.Match[str]) -> list[str]:
    return line["names"].split() or [f"--{parameter.name.replace('_', '-')}"]


def parameters_of(function: Callable[..., None]) -> Iterator[inspect.Parameter]:
    """The parameters of a verb as typer sees them: texts, lists of texts and flags."""
    for parameter, line in _marked(function):
        if isinstance(line, FieldsOf):
            yield from line.parameters()
            continue
        kind = parameter.annotation
        parts = get_args(kind) if get_origin(kind) not in (None, list) else (kind,)
        kinds = {get_origin(part) or part for part in parts}
        is_flag, is_needed = bool in kinds, parameter.default is parameter.empty
        shown = isinstance(parameter.default, int | float | str | Path) and not is_flag
        facts = {
            "help": line["help"],
            "metavar": "" if is_flag else line["metavar"],
            "rich_help_panel": GROUPS.get(line["group"] or ""),
            "show_default": line["default"] or (shown and str(parameter.default)) or False,
        }
        word: Any = bool if is_flag else list[str] if list in kinds else str
        if parameter.kind is not parameter.KEYWORD_ONLY:
            option, default = typer.Argument(**facts), ... if is_needed else None
        else:
            names = _names(parameter, line)
            if is_flag and not line["names"]:
                names = [f"{names[0]}/--no-{names[0][2:]}"]
            option, default = typer.Option(*names, **facts), ... if is_needed else None
        yield _parameter(parameter.name, word if is_needed else word | None, option, default)


def values_of(function: Callable[..., None], words: Mapping[str, Any]) -> dict[str, Any]:
    """What a verb is called with, made of the words of the command line; SpecError with every problem."""
    values: dict[str, Any] = {}
    kinds: dict[str, Any] = {}
    typed: dict[str, Any] = {}
    for parameter, line in _marked(function):
        name = parameter.name
        if isinstance(line, FieldsOf):
            given = {field: words[word] for field, word in line.parameter_names().items()}
            values[name] = {field: value for field, value in given.items() if value is not None}
        elif words[name] is not None:
            place = _names(parameter, line)[0]
            kinds[name] = (parameter.annotation, Field(alias=place))
            typed[place] = words[name]
    kind: type[BaseModel] = create_model("Options", **kinds)
    options = checked(kind, typed)
    return values | {name: getattr(options, name) for name in kinds}
