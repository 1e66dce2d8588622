"""The base of everything a user asks for: frozen values, checked at birth, all problems at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from trainlab.errors import SpecError


@dataclass(frozen=True)
class Setting:
    """What is true of one setting beyond its type; written on its field and nowhere else."""

    unit: str = ""
    """For help texts and tables."""
    is_factor: bool = True
    """Whether it can be varied; what cannot says what is compared rather than how it is trained."""
    holds_commas: bool = False
    """Whether its text may hold commas: several levels of it are then asked for with --vary."""
    changes_learning: bool = True
    """False where it only says where a trial runs and how fast."""
    is_of_optimizer: bool = False
    """Whether a workload's default for it was tuned for the workload's own optimizer."""
    resolves_to: tuple[str, ...] = ()
    """Names in a trial's `resolved` that it changes by itself: no confound where it is varied."""


class Spec(BaseModel):
    """A frozen, validated value. `None` means "not asked"; unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=True,
    )


def setting_of(kind: type[Spec], name: str) -> Setting:
    """What is written on a field; nothing special where nothing is."""
    field = kind.model_fields.get(name)
    metadata = field.metadata if field is not None else ()
    return next((item for item in metadata if isinstance(item, Setting)), Setting())


def choices_of(kind: type[Spec], name: str) -> tuple[str, ...]:
    """The values a field may take, if they are a fixed list."""
    annotation = kind.model_fields[name].annotation
    return get_args(annotation) if get_origin(annotation) is Literal else ()


S = TypeVar("S", bound=Spec)

SCALARS = ("bool", "int", "float", "str")
"""What pydantic calls the branches of a field that takes any scalar."""


def checked(kind: type[S], values: Mapping[str, Any], where: str = "") -> S:
    """`kind(**values)`, or a SpecError that lists every problem as `where: place: got, rule`."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        prefix = f"{where}: " if where else ""
        told = _all_told(kind, error.errors(include_url=False))
        raise SpecError([prefix + line for line in told]) from None


def field_problems(kind: type[Spec], values: Mapping[str, Any]) -> list[str]:
    """What is wrong with each value by itself; rules between several fields are left out."""
    try:
        kind.model_validate(dict(values))
    except ValidationError as error:
        details = error.errors(include_url=False)
        return _all_told(kind, [detail for detail in details if detail["loc"]])
    return []


def _all_told(kind: type[Spec], details: Sequence[ErrorDetails]) -> list[str]:
    known = list(kind.model_fields)
    told = (line for detail in details for line in _told(detail, known).split("\n"))
    return list(dict.fromkeys(told))  # a scalar that is none fails once per type it could be


def _told(detail: ErrorDetails, known: list[str]) -> str:
    place = _place(detail["loc"])
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        near = get_close_matches(str(detail["loc"][-1]), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        return f"{place}: unknown setting; {hint}"
    if kind == "missing":
        return f"{place}: is required"
    if detail["loc"] and detail["loc"][-1] in SCALARS:
        place = _place(detail["loc"][:-1])
        return f"{place}: got {detail['input']!r}, must be a number, a text, true or false"
    got = f"got {detail['input']!r}"
    if kind == "value_error":
        told = str(context["error"])
        return f"{place}: {told}" if place else told
    return f"{place}: {got}, {_rule(kind, context, detail['msg'])}"


def _place(location: tuple[int | str, ...]) -> str:
    place = ""
    for part in location:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    return place


def _rule(kind: str, context: Mapping[str, Any], message: str) -> str:
    rules = {
        "greater_than": "must be greater than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than": "must be less than {lt}",
        "less_than_equal": "must be at most {le}",
        "literal_error": "must be one of {expected}",
        "string_pattern_mismatch": "must match {pattern}",
        "finite_number": "must be a finite number",
    }
    if kind in rules:
        return rules[kind].format(**context).replace(" or '", ", '")
    if kind.startswith("int_"):
        return "must be a whole number"
    if kind.startswith("float_"):
        return "must be a number"
    if kind.startswith("bool_"):
        return "must be true or false"
    if kind in ("tuple_type", "list_type"):
        return "must be a list"
    if kind == "dict_type":
        return "must be a table of names and values"
    return message[:1].lower() + message[1:]
