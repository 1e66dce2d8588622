"""The base of everything a user asks for: frozen values, checked at birth, all problems at once."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails

from trainlab.errors import SpecError

# Plain text: without characters that steer a terminal, hide what is written or cannot be drawn.

STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
"""Control characters but for tab and line end, marks of the direction of writing, halves of characters."""
COLOURS = re.compile("\x1b\\[[0-9;]*m")
IN_THEIR_PLACE = "\N{REPLACEMENT CHARACTER}"


def plain(text: str) -> str:
    """The text with every such character replaced, and without colours."""
    return STEERING.sub(IN_THEIR_PLACE, COLOURS.sub("", text))


def plain_value(value: Any) -> Any:
    """A JSON value with all its texts and names plain."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(name): plain_value(inner) for name, inner in value.items()}
    return [plain_value(inner) for inner in value] if isinstance(value, list) else value


# Suggestions: what a name that is not known was probably meant to be.

CUTOFF = 0.6
"""How similar two names are, from 0 to 1, for the one to be taken for the other, misspelt."""
OTHERS_CUTOFF = 0.8
"""The same for names that others use: a short one, as gpu, is alike to too much."""


def nearest(
    name: str, names: Iterable[str], also_called: Mapping[str, str] | None = None
) -> str | None:
    """The name that was probably meant; `also_called` gives names that others use for the same thing."""

    def plainly(name: str) -> str:
        return name.strip().lower().replace("-", "_")

    wanted = plainly(name)
    others = {plainly(other): known for other, known in (also_called or {}).items()}
    spellings = {plainly(known): known for known in names}
    if wanted in others:
        return others[wanted]
    for known, cutoff in ((spellings, CUTOFF), (others, OTHERS_CUTOFF)):
        if near := get_close_matches(wanted, known, n=1, cutoff=cutoff):
            return known[near[0]]
    return None


def did_you_mean(
    name: str, names: Iterable[str], also_called: Mapping[str, str] | None = None
) -> str:
    """`; did you mean …?` for the end of a rule; empty where nothing is alike."""
    near = nearest(name, names, also_called)
    return "" if near is None else f"; did you mean {near}?"


def name_hint(
    name: str,
    names: Iterable[str],
    otherwise: str,
    also_called: Mapping[str, str] | None = None,
) -> str:
    """For an unknown name: `did you mean …?` where one of the names is alike, else the other hint."""
    return did_you_mean(name, names, also_called).removeprefix("; ") or otherwise


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
    aka: str = ""
    """What others call it, for suggestions; names with spaces between."""
    option: str = ""
    """What the command line calls it, where that is not its name."""
    resolves_to: tuple[str, ...] = ()
    """Further names in a trial's `resolved` that it changes by itself: no confound where it is varied."""
    not_by: tuple[str, ...] = ()
    """What cannot do it: `processes`, several that train one trial; `programs`, engines that do not make
    steps one by one; `own_update`, that of a workload."""
    is_said: bool = False
    """Whether a report names it, where it is set, beside the main settings; as all with `not_by` are."""
    is_of_scripts: bool = False
    """Whether only trials of a script that is watched have it."""


class Spec(BaseModel):
    """A frozen, validated value. `None` means "not asked"; unknown keys are errors."""

    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_not_true_or_false(cls, value: Any, info: ValidationInfo) -> Any:
        """Python counts true as 1; someone who writes it for a number of epochs means something else."""
        if isinstance(value, bool) and info.field_name is not None:
            annotation = cls.model_fields[info.field_name].annotation
            kinds = {annotation, *get_args(annotation)}
            if kinds & {int, float} and bool not in kinds:
                raise ValueError(f"got {str(value).lower()}, must be a number")
        return value


def setting_of(kind: type[BaseModel], name: str) -> Setting:
    """What is written on a field; nothing special where nothing is."""
    field = kind.model_fields.get(name)
    metadata = field.metadata if field is not None else ()
    return next((item for item in metadata if isinstance(item, Setting)), Setting())


def option_of(kind: type[Spec], name: str) -> str:
    """The option of a field on the command line."""
    return f"--{(setting_of(kind, name).option or name).replace('_', '-')}"


def choices_of(kind: type[Spec], name: str) -> tuple[str, ...]:
    """The values a field may take, if they are a fixed list."""
    annotation = kind.model_fields[name].annotation
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def other_names(kind: type[BaseModel]) -> dict[str, str]:
    """What others call the fields of a spec, to what they are called here."""
    return {
        other: name for name in kind.model_fields for other in setting_of(kind, name).aka.split()
    }


RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""A name that a run folder can have on every system."""


def seconds_of(text: object) -> float:
    """`90s`, `10m`, `10min` or `1.5h` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|m|min|h)?", str(text).strip())
    if not match or not float(match[1]):
        raise ValueError(f"got {text!r}, must be a time, as in 90s, 10m or 2h")
    if not match[2]:
        units = f"{match[1]}s, {match[1]}m or {match[1]}h"
        raise ValueError(f"got {text!r}, which has no unit; write {units}")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2][0]]


S = TypeVar("S", bound=BaseModel)

SCALARS = ("bool", "int", "float", "str")
"""The last part of pydantic's error location for a field that takes any scalar: the type it tried."""

RULES = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "scalar": "must be a number, a text, true or false",
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string_pattern_mismatch": "must begin with a letter or digit and hold only letters, digits, dots, "
    "dashes and underscores",
    "string": "must be a text",
    "tuple": "must be a list",
    "list": "must be a list",
    "dict": "must be a table of names and values",
    "model": "must be a table of names and values",
}
"""The rule that was broken, by the type of pydantic's error or by the first word of that type."""


def checked(kind: type[S], values: Mapping[str, Any], where: str = "") -> S:
    """`kind(**values)`, or a SpecError that lists every problem as `where: place: got, rule`."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise SpecError(_problems(kind, error.errors(include_url=False)), where) from None


def field_problems(kind: type[Spec], values: Mapping[str, Any]) -> list[str]:
    """What is wrong with each value by itself; rules between several fields are left out."""
    try:
        kind.model_validate(dict(values))
    except ValidationError as error:
        details = error.errors(include_url=False)
        return _problems(kind, [detail for detail in details if detail["loc"]])
    return []


def _problems(kind: type[BaseModel], details: Sequence[ErrorDetails]) -> list[str]:
    lines = (line for detail in details for line in _problem(detail, kind).split("\n"))
    # A value that is no scalar fails once for each type of scalar: the same line each time.
    return list(dict.fromkeys(lines))


def _problem(detail: ErrorDetails, kind: type[BaseModel]) -> str:
    error_type, location, context = detail["type"], detail["loc"], detail.get("ctx", {})
    if location and location[-1] in SCALARS:
        location, error_type = location[:-1], "scalar"
    place, got = _place(location), f"got {detail['input']!r}"
    if error_type == "extra_forbidden":
        owner = _owner(kind, location)
        names = [n for n in owner.model_fields if not setting_of(owner, n).is_of_scripts]
        known = f"known: {', '.join(names)}"
        hint = name_hint(str(location[-1]), names, known, other_names(owner))
        return f"{place}: unknown setting; {hint}"
    if error_type == "missing":
        return f"{place}: is required"
    if error_type == "value_error":
        return f"{place}: {context['error']}" if place else str(context["error"])
    if error_type == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        hint = did_you_mean(str(detail["input"]), choices)
        return f"{place}: {got}, must be one of {', '.join(choices)}{hint}"
    rule = RULES.get(error_type) or RULES.get(error_type.partition("_")[0])
    # Limits are written as people do: 1, not 1.0.
    limits = {n: f"{v:g}" if isinstance(v, float) else v for n, v in context.items()}
    message = detail["msg"][:1].lower() + detail["msg"][1:]
    return f"{place}: {got}, {rule.format(**limits) if rule else message}"


def _owner(kind: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    """The spec, inside another or not, that the last name of a location is a field of."""
    for part in location[:-1]:
        field = kind.model_fields.get(str(part))
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        kind = next((k for k in kinds if isinstance(k, type) and issubclass(k, Spec)), kind)
    return kind


def _place(location: tuple[int | str, ...]) -> str:
    """As users write it: `cells[0].lr`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")
