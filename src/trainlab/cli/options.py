"""The options of a verb: the fields of a spec, each with its help as its docstring. A verb is called once
the words of the command line have been checked against its fields, as a study file is. A field of type
Settings or Cost stands for an option per field of that spec; what a value must be is its type's to say."""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from trainlab.cli.help_pages import GROUPS, Option
from trainlab.language import VARIABLE, environment_language
from trainlab.spec import CostSpec, Spec, TrainSpec
from trainlab.spec.base import checked, choices_of, option_of, seconds_of, setting_of
from trainlab.spec.settings import OF_WORKLOADS
from trainlab.words import LANGUAGES, Words, check_language
from trainlab.workloads.reference import BUILTIN

CHANGED_MOST = ("epochs", "batch_size", "optimizer", "lr", "device", "data")
"""Settings that the short help shows."""
SHARED = (
    *("budget", "trial_timeout", "on", "slurm", "jobs", "yes"),
    *("out", "dry_run", "page", "report", "lang", "quiet", "as_json"),
)
"""Options that several verbs have, in the order in which help lists them."""


@dataclass(frozen=True)
class FieldsOf:
    """An option for every field of a spec; the verb gets the texts of those that were given."""

    kind: type[Spec]
    group: str
    basic: Collection[str]
    """Fields that the short help shows."""

    def options(self, owner: str) -> Iterator[Option]:
        """Those of settings with the basic ones first."""
        names = list(self.kind.model_fields)
        if self.kind is TrainSpec:
            names = list(dict.fromkeys((*self.basic, *OF_WORKLOADS)))
        for name in names:
            field, choices = self.kind.model_fields[name], choices_of(self.kind, name)
            is_flag, unit = field.annotation is bool, setting_of(self.kind, name).unit or "name"
            # A setting's default is that of each workload where they differ.
            own, defaults = field.default, {"": field.default}
            if self.kind is TrainSpec:
                defaults = {w: entry.defaults.get(name, own) for w, entry in BUILTIN.items()}
            texts = {workload: _value_text(value) for workload, value in defaults.items()}
            if len(set(texts.values())) > 1:
                shown = ", ".join(f"{workload} {text}" for workload, text in texts.items())
            else:
                shown = next(iter(texts.values()))
            yield Option(
                name,
                (option_of(self.kind, name),),
                "yes-no" if is_flag else "text",
                "" if is_flag else unit.upper().replace(" ", "-"),
                GROUPS[self.group + ("" if name in self.basic else "+")],
                _meaning(field) + (f" {', '.join(choices)}." if choices else ""),
                shown,
                negative=f"--no-{name.replace('_', '-')}" if is_flag else "",
                owner=owner,
            )


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _value_text(value: Any) -> str:
    if value is None or value == {}:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, BeforeValidator(seconds_of)]
Settings = Annotated[dict[str, str], FieldsOf(TrainSpec, "settings", CHANGED_MOST)]
Cost = Annotated[dict[str, str], FieldsOf(CostSpec, "measuring", ("processes", "budget_s"))]
ProfileCost = Annotated[
    dict[str, str], FieldsOf(CostSpec, "measuring", ("mode", "processes", "budget_s"))
]


def option(
    metavar: str = "",
    group: str = "",
    default: Any = None,
    *,
    names: str = "",
    shown: str = "",
    meaning: str | None = None,
    is_word: bool = False,
) -> Any:
    """A field of a verb that is an option, called as the field or by other names; `shown` is what help says
    of its default, `meaning` of the field where its docstring does not. `is_word`: it stands by itself."""
    name, _, short = names.partition(" ")
    facts: dict[str, Any] = {"metavar": metavar, "group": group, "shown": shown}
    facts |= {"short": short, "is_word": is_word}
    return Field(default, alias=name or None, description=meaning, json_schema_extra=facts)


def word(metavar: str, group: str = "", default: Any = ...) -> Any:
    """A field of a verb that is a word of the command line by itself."""
    return option(metavar, group, default, is_word=True)


class Verb(Spec):
    """A verb; the lines of its docstring that begin with `trainlab` are its examples."""

    model_config = ConfigDict(alias_generator=lambda name: f"--{name.replace('_', '-')}")
    passes_on: ClassVar[bool] = False
    """Whether options that it does not know are a script's own."""

    lang: str | None = option("|".join(LANGUAGES), "output", shown="TRAINLAB_LANG, or the locale's")
    """The language of what is shown."""

    def __call__(self) -> None:
        """Does what the verb is for; SystemExit with its code where that is not 0."""
        raise NotImplementedError

    @cached_property
    def words(self) -> Words:
        """Those of the language asked for, or else of the environment's; SpecError where there are none."""
        if self.lang is None and (own := os.environ.get(VARIABLE)):
            check_language(own, VARIABLE)
        return Words(self.lang or environment_language(os.environ))

    @classmethod
    def options(cls) -> Iterator[Option]:
        """A verb's own options, then those that it shares with others."""
        own = [name for name in cls.model_fields if name not in SHARED]
        for name in (*own, *(name for name in SHARED if name in cls.model_fields)):
            field = cls.model_fields[name]
            if fields := [mark for mark in field.metadata if isinstance(mark, FieldsOf)]:
                yield from fields[0].options(name)
            else:
                yield _option(name, field)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The verb with what was given for its options, by their keys; SpecError with every problem."""
        values: dict[str, Any] = {}
        for one in cls.options():
            if given.get(one.key) is None:
                continue
            if one.owner:
                owner = cls.model_fields[one.owner].alias or one.owner
                values.setdefault(owner, {})[one.field] = given[one.key]
            else:
                values[cls.model_fields[one.field].alias or one.field] = given[one.key]
        return checked(cls, values)


class ForPrograms(Verb):
    """A verb that can print JSON."""

    as_json: bool = option("", "output", False, names="--json")
    """Print one JSON summary on stdout and nothing else."""


def _option(name: str, field: FieldInfo) -> Option:
    facts: Any = field.json_schema_extra
    kinds = {get_origin(part) or part for part in (field.annotation, *get_args(field.annotation))}
    is_flag = bool in kinds
    shows_default = isinstance(field.default, int | float | str | Path) and not is_flag
    return Option(
        name,
        () if facts["is_word"] else tuple(filter(None, (field.alias, facts["short"]))),
        "flag" if is_flag else "texts" if kinds & {list, dict} else "text",
        facts["metavar"],
        GROUPS.get(facts["group"], ""),
        _meaning(field),
        facts["shown"] or (str(field.default) if shows_default else ""),
        field.is_required(),
        negative=f"--no-{name.replace('_', '-')}" if is_flag and field.default is not False else "",
    )
