"""Writes docs/settings.md, the reference of all settings, from the specs themselves.

python scripts/make_settings_page.py
"""

from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from trainlab.spec import CostSpec, Question, TrainSpec
from trainlab.spec.base import Spec, choices_of, option_of, setting_of
from trainlab.spec.optimizers import OPTIMIZERS, OPTION_RULES
from trainlab.spec.settings import OF_WORKLOADS
from trainlab.workloads.reference import BUILTIN

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
HEAD = """# All settings

Look up a setting: its option, unit, default and values, whether it can be varied, and whether it changes
what is learned. `trainlab run --help-all` shows the same in a terminal, in English or Chinese;
`trainlab studies --schema` gives a study file's JSON schema. The page is made from the code, by
`python scripts/make_settings_page.py`.
"""
RANGES = {
    None: "from 0",
    "true or false": "true, false",
    "from 0 to 1": "0 to 1",
    "at least 0 and less than 1": "0 to below 1",
}
"""The values that an option of an optimizer takes, by the rule in the code."""
TRAINING = """## Training

Options of `trainlab run` and `trainlab profile`, keys under `[settings]` in a study file, keyword
arguments of `trainlab.run`. Those that vary can be factors: a list as an option (`--lr 0.1,0.01`), or a
key under `[vary]`. A setting that does not change learning says where a trial runs, how fast, or what is
recorded. A built-in workload's own default stands after the general one.
"""
MEASURING = """## Measuring

Options of `trainlab profile` and `trainlab run --profile`, keys under `[cost]` in a study file.
"""
ASKING = """## A study

Keys at the top of a study file, keyword arguments of `trainlab.run`.
"""
OPTIMIZING = """## Optimizers

`optimizer_options` takes these, as `rho=0.9,eps=1e-6`; the learning rate holds where none is given.
"""


def page() -> str:
    """The whole page."""
    parts = (
        *(HEAD, TRAINING, _training(), MEASURING, _measuring()),
        *(ASKING, _asking(), OPTIMIZING, _optimizers()),
    )
    return "\n".join(parts)


def _training() -> str:
    headings = ("setting", "option", "unit", "default", "values", "varies", "changes learning")
    rows = [
        (
            f"`{name}`",
            f"`{option_of(TrainSpec, name)}`",
            _unit(TrainSpec, name),
            _default(name),
            _values(TrainSpec, name),
            _yes(setting_of(TrainSpec, name).is_factor),
            _yes(setting_of(TrainSpec, name).changes_learning),
            _meaning(field),
        )
        for name, field in TrainSpec.model_fields.items()
        if name in OF_WORKLOADS
    ]
    return _table((*headings, "what it does"), rows)


def _measuring() -> str:
    rows = [
        (
            f"`{name}`",
            f"`{option_of(CostSpec, name)}`",
            _unit(CostSpec, name),
            _value(field.default),
            _values(CostSpec, name),
            _meaning(field),
        )
        for name, field in CostSpec.model_fields.items()
    ]
    return _table(("setting", "option", "unit", "default", "values", "what it does"), rows)


def _asking() -> str:
    rows = [
        (
            f"`{name}`",
            "required" if field.is_required() else _value(field.default),
            _values(Question, name),
            _meaning(field),
        )
        for name, field in Question.model_fields.items()
    ]
    return _table(("key", "default", "values", "what it does"), rows)


def _optimizers() -> str:
    rows = [
        (
            f"`{name}`",
            f"`torch.optim.{rules.torch_class}`",
            f"{rules.lr:g}",
            _yes(rules.takes_momentum),
            ", ".join(f"`{name}` ({RANGES[OPTION_RULES.get(name)]})" for name in rules.options),
        )
        for name, rules in OPTIMIZERS.items()
    ]
    return _table(("optimizer", "torch's", "learning rate", "takes momentum", "options"), rows)


def _default(name: str) -> str:
    """The setting's own, and of each workload what is its own."""
    own = TrainSpec.model_fields[name].default
    others = [
        f"{workload} {_value(entry.defaults[name])}"
        for workload, entry in BUILTIN.items()
        if entry.defaults.get(name, own) != own
    ]
    return "; ".join([_value(own), *others])


def _value(value: Any) -> str:
    if value is None or value in ({}, (), ""):
        return "not set"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _unit(kind: type[Spec], name: str) -> str:
    """What it is counted in; how a value is written is no unit."""
    unit = setting_of(kind, name).unit
    return "" if unit in ("true|false", "name=value", "which") else unit


def _values(kind: type[Spec], name: str) -> str:
    """The choices there are, or the limits of a number."""
    if choices := choices_of(kind, name):
        return ", ".join(f"`{choice}`" for choice in choices)
    schema = kind.model_json_schema()["properties"][name]
    kinds = [schema, *schema.get("anyOf", ())]
    return " or ".join(dict.fromkeys(text for one in kinds if (text := _limits(one))))


def _limits(schema: dict[str, Any]) -> str:
    names = {"integer": "whole number", "number": "number", "boolean": "`true`, `false`"}
    names |= {"string": "text", "object": "table", "array": "list"}
    text = names.get(schema.get("type", ""), "")
    words = {"exclusiveMinimum": "above", "minimum": "from", "exclusiveMaximum": "below"}
    words["maximum"] = "to"
    limits = [f"{word} {schema[key]:g}" for key, word in words.items() if key in schema]
    return " ".join([text, *limits])


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [headings, tuple("---" for _ in headings), *rows]
    texts = ("| " + " | ".join(part.replace("|", "\\|") for part in row) + " |" for row in lines)
    return "\n".join(texts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
