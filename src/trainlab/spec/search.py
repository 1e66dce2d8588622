"""Search: the space in which the best setting is looked for, and how what is found is confirmed."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, NonNegativeInt, PositiveFloat, PositiveInt

from trainlab.errors import SpecError
from trainlab.spec.base import Setting, Spec, seconds_of
from trainlab.spec.settings import Scalar, scalar_of

RANGE = re.compile(r"(\S+?)\.\.(\S+?)(?:\s+(log|linear))?")
CONDITION = re.compile(r"(.*\S)\s+if\s+([\w.-]+)\s*=\s*(\S+)")
LOG_FROM = 100.0
"""From so many times on, between its ends, a range is searched by its logarithm."""
RULE = "must be LOW..HIGH, as 1e-5..1e-1 or 32..512, or choices, as adam,sgd"
SETTINGS = 60
"""Tried where neither a number nor a budget is asked for."""
DIGITS = 3
"""A number that is tried has no more: it is to be read, and typed again."""

Levels = dict[str, Scalar]


class Dimension(Spec):
    """What is searched of one setting: all numbers from `low` to `high`, whole ones where both are, or one
    of `choices`."""

    name: str
    """Its full name, as `lr` or `model.hidden`."""
    low: int | float | None = None
    high: int | float | None = None
    is_log: bool = False
    choices: tuple[Scalar, ...] = ()
    only_if: tuple[str, Scalar] | None = None
    """Another dimension and its value, without which this one is not set."""

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[Scalar, ...]:
        """What must be right for all of it to be."""
        return self.choices or tuple(end for end in (self.low, self.high) if end is not None)

    def applies(self, levels: Mapping[str, Scalar]) -> bool:
        """Whether it is set beside these."""
        return self.only_if is None or levels.get(self.only_if[0]) == self.only_if[1]

    def rounded(self, value: Scalar) -> Scalar:
        """A number with few digits, within the range."""
        if not isinstance(value, float) or not value or self.low is None or self.high is None:
            return value
        return min(max(float(f"{value:.{DIGITS}g}"), float(self.low)), float(self.high))

    def text(self) -> str:
        """As it is written."""
        if self.choices:
            return ",".join(map(str, self.choices))
        ends = f"{self.low:g}..{self.high:g}"
        return f"{ends} {'log' if self.is_log else 'linear'}"


def dimension_of(name: str, asked: object) -> Dimension:
    """What is asked for one setting: text, or a list of choices. SpecError with the rule."""
    problem = SpecError([f"{name}: got {asked!r}, {RULE}"])
    text, only_if = asked if isinstance(asked, str) else "", None
    if match := CONDITION.fullmatch(text.strip()):
        text, only_if = match[1], (match[2].replace("-", "_"), scalar_of(match[3]))
    choices: Sequence[Any] = ()
    if isinstance(asked, list | tuple):
        choices = asked
    elif ".." not in text:
        choices = [scalar_of(part.strip()) for part in text.split(",") if part.strip()]
    if choices or ".." not in text:
        if len(choices) < 2 or not all(isinstance(one, Scalar) for one in choices):
            raise problem
        if len({*map(str, choices)}) < len(choices):
            raise SpecError([f"{name}: got {asked!r}, choices must differ"])
        return Dimension(name=name, choices=tuple(choices), only_if=only_if)
    match = RANGE.fullmatch(text.strip())
    low, high = map(scalar_of, match.groups()[:2]) if match else ("", "")
    if not (_is_number(low) and _is_number(high)) or low >= high:  # type: ignore[operator]
        raise problem
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    way = match[3] if match else None
    if way == "log" and low <= 0:
        raise SpecError([f"{name}: got {asked!r}, a log range must begin above 0"])
    is_log = way == "log" or (way is None and low > 0 and high / low >= LOG_FROM)
    return Dimension(name=name, low=low, high=high, is_log=is_log, only_if=only_if)


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def ordered(dimensions: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """Each behind the one that its condition names. SpecError where that is none, or no choice of it."""
    names, problems = {one.name: one for one in dimensions}, list[str]()
    for one in dimensions:
        if one.only_if is None:
            continue
        other, value = one.only_if
        where = f"{one.name}: is searched only if {other}={value}"
        if other not in names or names[other].only_if is not None:
            known = [name for name, found in names.items() if found.choices and not found.only_if]
            problems.append(f"{where}, which must be one of {', '.join(known) or 'none'}")
        elif value not in names[other].choices:
            has = ", ".join(map(str, names[other].choices))
            problems.append(f"{where}, but {other} has the choices {has or 'none'}")
    if problems:
        raise SpecError(problems)
    return tuple(sorted(dimensions, key=lambda one: one.only_if is not None))


def space_of(
    vary: Mapping[str, object], full_name: Callable[[str], str], place: str, problems: list[str]
) -> tuple[Dimension, ...]:
    """All that is searched, by full names; what makes no sense goes to the problems, as at that place."""
    found = list[Dimension]()
    for name, space in vary.items():
        try:
            one = dimension_of(full_name(name), space)
        except SpecError as error:
            problems += [f"{place}{problem}" for problem in error.problems]
            continue
        if one.only_if is not None:
            one = one.model_copy(update={"only_if": (full_name(one.only_if[0]), one.only_if[1])})
        found.append(one)
    return () if problems else ordered(found)


def grid_of(dimensions: Sequence[Dimension]) -> list[Levels]:
    """All combinations of choices, each once."""
    found: dict[str, Levels] = {}
    for values in product(*(one.choices for one in dimensions)):
        levels: Levels = {}
        for one, value in zip(dimensions, values, strict=True):
            if one.applies(levels):
                levels[one.name] = value
        found[str(levels)] = levels
    return list(found.values())


def corners(dimensions: Sequence[Dimension]) -> Iterator[Levels]:
    """Settings of which each has an end of one dimension, the others being as they come first."""
    for one in dimensions:
        for end in one.ends:
            levels: Levels = {}
            for other in dimensions:
                wanted = other.only_if if one.only_if is None else one.only_if
                value = end if other is one else other.ends[0]
                if one.only_if is not None and other.name == one.only_if[0]:
                    value = wanted[1] if wanted else value
                if other.applies(levels):
                    levels[other.name] = value
            yield levels


Budget = Annotated[
    PositiveFloat,
    BeforeValidator(lambda given: seconds_of(given) if isinstance(given, str) else given),
    Setting("time"),
]


class SearchAsked(Spec):
    """A search as a person writes it."""

    vary: dict[str, Any]
    """What is searched, as lr = "1e-5..1e-1", optimizer = ["adam", "sgd"] or momentum = "0..0.99 if
    optimizer=sgd"."""
    settings: PositiveInt | None = None
    """How many are tried; not given: 60, or as many as the budget allows."""
    budget_s: Budget | None = None
    """End after about this long, confirmation included, as 10m."""
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    """What is tried next: by Optuna's TPE, at random, or all combinations of choices."""
    stop_early: bool = True
    """Stop a setting whose validation metric after an epoch is worse than half of those before it had."""
    confirm: PositiveInt = 3
    """So many of the best are trained again, with seeds that chose nothing."""
    draw: NonNegativeInt = 0
    """Another number tries other settings."""
    time_to: float | None = None
    """Look for the setting that is soonest this good, on validation data, in place of the best."""


class Bars(Spec):
    """What a trial must not be worse than to go on."""

    metric: str
    """As `val/accuracy`."""
    is_lower_better: bool
    values: tuple[float, ...]
    """After each epoch, from the first."""

    def stops(self, epoch: int, value: float) -> bool:
        """Whether a value after an epoch is worse; one that is not finite always."""
        if epoch > len(self.values):
            return False
        bar = self.values[epoch - 1]
        return not (value <= bar if self.is_lower_better else value >= bar)


class SearchSpec(SearchAsked):
    """A search whose space is laid out, with all that makes settings of it."""

    dimensions: tuple[Dimension, ...]
    metric: str
    """What tells the better of two, as `val/accuracy`."""
    is_lower_better: bool
    defaults: dict[str, Any]
    """The workload's."""
    asked: dict[str, Any]
    """The settings of all that are tried."""
    cost: dict[str, Any] | None = None
    """What a step costs is measured of those that are confirmed, as this says."""

    def is_good(self, value: float) -> bool:
        """Whether it reaches the target that is looked for."""
        target = math.nan if self.time_to is None else self.time_to
        return value <= target if self.is_lower_better else value >= target
