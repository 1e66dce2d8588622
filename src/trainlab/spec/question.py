"""Question: a study as a person writes it, in a TOML file or as flags; resolved into cells."""

import json
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, NonNegativeInt, PositiveInt

from trainlab.errors import SpecError
from trainlab.spec.base import (
    RunName,
    checked,
    field_problems,
    name_hint,
    nearest,
    other_names,
    setting_of,
)
from trainlab.spec.facts import WorkloadFacts
from trainlab.spec.search import (
    SearchAsked,
    SearchSpec,
    corners,
    space_of,
)
from trainlab.spec.settings import (
    OF_WORKLOADS,
    Scalar,
    TrainSpec,
    pairs_of,
    scalar_of,
    script_only,
    settings_for,
)
from trainlab.spec.study import (
    BASE,
    Cell,
    CostSpec,
    StudyBase,
    cell_id,
    combinations,
    level_text,
    lower_is_better,
    objective_of,
    short_name,
    with_levels,
    without_part,
)

# Settings that contradict each other: what was asked for and would have no effect, or not the one meant.

STEP_SCHEDULE_ONLY = ("lr_gamma", "lr_step_epochs")


def set_and_varied(settings: Mapping[str, Any], factors: Collection[str]) -> Iterator[str]:
    """In a grid every cell takes a level of every factor: the value of the base would go unused."""
    for factor in factors:
        outer, dot, inner = factor.partition(".")
        asked = settings.get(outer)
        value = pairs_of(asked or {}).get(inner) if dot else asked
        if value is not None:
            yield (
                f"{short_name(factor)}: got {value!r}, but it is varied too, and in a grid "
                "every setting takes one of its levels; leave one of the two out"
            )


def without_effect(asked: Collection[str], cells: Sequence[TrainSpec]) -> Iterator[str]:
    """Settings that were asked for and change nothing in any cell."""
    schedules = list(dict.fromkeys(cell.schedule for cell in cells))
    for name in () if "step" in schedules else STEP_SCHEDULE_ONLY:
        if name in asked:
            yield (
                f"{name}: is for the step schedule, but the schedule is {' or '.join(schedules)}; "
                "add schedule step or leave it out"
            )
    if "epochs" in asked and all(cell.max_steps is not None for cell in cells):
        yield "epochs: has no effect beside max_steps, which says how long to train; leave one out"


MOST_LOOKS = 10
FIRST_LOOK = 3
"""Fewer seeds know too little of their noise for a look to be worth its price."""

EACH_DEVICE = "each"
"""As a level of `device`: every device this machine has."""


def _seeds(value: object) -> object:
    """One line for wrong seeds: pydantic would write one for a number and one for a list."""
    if type(value) is int and value >= 1:
        return value
    if isinstance(value, list | tuple) and all(type(seed) is int and seed >= 0 for seed in value):
        if not value:
            raise ValueError("got none, must be at least one")
        if twice := sorted(seed for seed, count in Counter(value).items() if count > 1):
            raise ValueError(f"got {twice[0]} twice, seeds must differ")
        return tuple(value)
    raise ValueError(f"got {value!r}, must be a number of seeds or a list of seeds, as [1, 2, 3]")


class Question(StudyBase):
    """What is asked about a workload: base settings, factors with their levels, seeds, instruments."""

    name: RunName | None = None
    """Names the run folder; not given: the workload's name."""
    seeds: Annotated[PositiveInt | tuple[NonNegativeInt, ...], BeforeValidator(_seeds)] = 1
    """How many seeds, or the seeds themselves: one learn trial per cell and seed."""
    until_decided: bool = False
    """Add seeds until every comparison is decided, or there are `max_seeds`: of the metrics with a margin,
    else of the first metric. The error rate holds over all looks at the results."""
    max_seeds: PositiveInt = 20
    """The most seeds that `until_decided` goes to."""
    design: Literal["grid", "one-at-a-time"] = "grid"
    """All combinations of levels, or the base and one change at a time."""
    settings: dict[str, Any] = {}
    """The base: settings as for `trainlab run`."""
    vary: dict[str, tuple[Scalar, ...]] = {}
    """Factors and their levels; a name that is no setting is a parameter of the model."""
    cells: tuple[dict[str, Scalar], ...] = ()
    """Further cells, each with its own levels."""
    search: SearchAsked | None = None
    """Look for the best setting in place of comparing those of `vary`."""


def read_question(path: Path) -> Question:
    """A study file; SpecError with all its problems, or with the line where it is no TOML."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        raise SpecError([f"{path}: is not TOML: {error}"]) from None
    return checked_question(values, str(path))


def checked_question(values: Mapping[str, Any], where: str = "") -> Question:
    """The question, or a SpecError with its problems and those of each setting and level by itself."""
    settings, vary, cells = (values.get(name) for name in ("settings", "vary", "cells"))
    settings = settings if isinstance(settings, Mapping) else {}
    vary = vary if isinstance(vary, Mapping) else {}
    cells = cells if isinstance(cells, list | tuple) else ()
    problems: list[str] = []
    try:
        question = checked(Question, values)
    except SpecError as error:
        problems += map(_with_its_table, error.problems)
    if problems := [*problems, *_value_problems(settings, vary, cells)]:
        raise SpecError(problems, where)
    return question


def _with_its_table(problem: str) -> str:
    """A setting that stands outside of the table it belongs to is told where it goes."""
    name, _, rest = problem.partition(": ")
    if not rest.startswith("unknown setting"):
        return problem
    kinds = (("settings", TrainSpec), ("cost", CostSpec))
    tables = [f"[{table}]" for table, kind in kinds if name in kind.model_fields]
    if tables:
        return f"{name}: is out of place; write it under {' or '.join(tables)}"
    meant = None if "did you mean" in rest else nearest(name, OF_WORKLOADS, other_names(TrainSpec))
    return f"{name}: is out of place; write it as {meant} under [settings]" if meant else problem


def asked_values(question: Question, setting: str) -> list[Any]:
    """Every value of a setting that is asked for; text of a command line as what it means."""
    asked = [question.settings.get(setting), *question.vary.get(setting, ())]
    asked += [cell.get(setting) for cell in question.cells]
    return [scalar_of(v) if isinstance(v, str) else v for v in asked if v is not None]


def seeds_of(question: Question) -> tuple[int, ...]:
    seeds = question.seeds
    if not isinstance(seeds, int):
        return seeds
    looks = looks_of(question)
    return tuple(range(1, (looks[0] if looks else seeds) + 1))


def looks_of(question: Question) -> tuple[int, ...]:
    """After how many seeds it is looked whether all is decided; empty where seeds are not added. Ten at
    most: every look costs a little power."""
    if not question.until_decided:
        return ()
    if not isinstance(question.seeds, int):
        raise SpecError(
            ["until_decided: adds seeds to 1, 2, …; give a number of seeds, not a list"]
        )
    first, last = max(question.seeds, FIRST_LOOK), question.max_seeds
    if last < first:
        raise SpecError([f"max_seeds: got {last}, must be {first} or more: so many come first"])
    steps = min(MOST_LOOKS, last - first + 1)
    spaced = (first * (last / first) ** (step / max(1, steps - 1)) for step in range(steps))
    return tuple(sorted({*(round(count) for count in spaced), last}))


def layout_of(
    question: Question,
    defaults: Mapping[str, Any],
    parameters: Collection[str] | None,
    model_defaults: Mapping[str, Any] | None = None,
) -> tuple[tuple[Cell, ...], tuple[str, ...]]:
    """Every cell with its settings, and the names of those that were asked for but are no other than the
    base: they are not run, and compared with nothing. SpecError with all problems. `parameters` are the
    model's, None where it takes any; in a one-at-a-time design, and with cells listed by hand, the first
    cell is the base."""
    problems: list[str] = []
    factors = question.vary.items()
    vary = {_factor(name, parameters, "vary", problems): levels for name, levels in factors}
    listed = [
        {_factor(n, parameters, f"cells[{i}]", problems): v for n, v in cell.items()}
        for i, cell in enumerate(question.cells)
    ]
    if question.design == "grid" and not problems:
        problems += set_and_varied(question.settings, vary)
    if problems:
        raise SpecError(problems)
    design = "one-at-a-time" if listed and not vary else question.design
    cells: dict[str, Cell] = {}
    same_as_base: list[str] = []
    for levels in (*combinations(vary, design), *listed):
        try:
            settings = settings_for(defaults, with_levels(question.settings, levels))
        except SpecError as error:
            problems += error.problems
            continue
        model = {**(model_defaults or {}), **settings.model}
        name, key = cell_id(levels), json.dumps(settings.meaning | {"model": model}, sort_keys=True)
        if key in cells and cells[key].id == BASE:
            same_as_base.append(name)
        elif key in cells or name in (cell.id for cell in cells.values()):
            same = cells[key].id if key in cells else name
            problems.append(f"{name}: is the same as {same}; leave one out")
        else:
            cells[key] = Cell(id=name, levels=levels, settings=settings)
    asked = {*question.settings, *vary, *(name for levels in listed for name in levels)}
    problems += without_effect(asked, [cell.settings for cell in cells.values()])
    if problems:
        raise SpecError(dict.fromkeys(problems))
    return tuple(cells.values()), tuple(same_as_base)


def search_of(asked: SearchAsked, question: Question, facts: WorkloadFacts) -> SearchSpec:
    """The search with its space laid out; SpecError with all that is wrong with it."""
    own, problems = {"val_fraction": VALIDATED, **question.settings}, list[str]()
    full_name = partial(
        _factor, parameters=facts.parameters, place="search.vary", problems=problems
    )
    space = space_of(asked.vary, full_name, "search.vary.", problems)
    if not asked.vary:
        problems.append('search.vary: got none, must name what is searched, as lr = "1e-5..1e-1"')
    if question.vary or question.cells:
        problems.append("search: a search compares what it finds; leave vary and cells out")
    if asked.sampler == "grid" and (ranges := [one.name for one in space if not one.choices]):
        rule = "grid tries all combinations of choices; give choices, or sampler tpe or random"
        problems.append(f"search.vary.{short_name(ranges[0])}: is a range, but {rule}")
    problems += set_and_varied(question.settings, [one.name for one in space])
    if str(own["val_fraction"]) in ("0", "0.0"):
        rule = "test data are never searched on; leave it out, or give a share"
        problems.append(f"val_fraction: got 0, but {rule}")
    for levels in () if problems else corners(space):
        try:
            settings = settings_for(facts.defaults, with_levels(own, levels))
            problems += facts.problems(settings)
        except SpecError as error:
            problems += [f"{cell_id(levels)}: {problem}" for problem in error.problems]
    metric, is_lower = _searched_by(question.objective or facts.objective, facts)
    if is_lower is None:
        rule = f"add --objective {metric}:min or {metric}:max"
        problems.append(f"objective: nothing says which way {metric} is better; {rule}")
    if problems:
        raise SpecError(dict.fromkeys(problems))
    return SearchSpec(
        **asked.model_dump(),
        dimensions=space,
        metric=f"val/{metric}",
        is_lower_better=bool(is_lower),
        defaults=dict(facts.defaults),
        asked=own,
        # The base is trained before it is known whether its weights are wanted.
        cost=None
        if question.cost is None
        else question.cost.model_dump(mode="json") | {"weights": "untrained"},
    )


def _searched_by(objective: str | None, facts: WorkloadFacts) -> tuple[str, bool | None]:
    """The metric that tells the better of two, without its part, and whether lower is better."""
    named, is_lower = objective_of(objective or next(iter(facts.metrics), "loss"))
    metric = without_part(named)
    if is_lower is None and metric in facts.higher_is_better:
        is_lower = not facts.higher_is_better[metric]
    return metric, lower_is_better(metric) if is_lower is None else is_lower


VALIDATED = 0.1
"""The share of the training samples that a search is scored on, unless another is asked for."""


def _factor(name: str, parameters: Collection[str] | None, place: str, problems: list[str]) -> str:
    """The full name of a factor, as `lr`, `model.hidden`, `loss.label_smoothing`,
    `data_options.fraction`."""
    is_setting = name in OF_WORKLOADS
    if is_setting and setting_of(TrainSpec, name).is_factor:
        return name
    name = _with_options(name)
    outer, _, inner = name.partition(".")
    if outer in ("optimizer_options", "loss", "data_options") and inner:
        return name
    parameter = inner if outer == "model" and inner else name
    if parameter not in (parameters or ()) and (of_script := [*script_only([name])]):
        problems += [f"{place}.{problem}" for problem in of_script]
        return name
    if parameters is None or parameter in parameters:
        return f"model.{parameter}"
    if is_setting or name in ("seed", "seeds"):
        instead = "it stays the same in a study" if is_setting else "give seeds apart"
        problems.append(f"{place}.{name}: is no factor; {instead}")
        return name
    settings = [n for n in OF_WORKLOADS if setting_of(TrainSpec, n).is_factor]
    own = f"the model's parameters: {', '.join(parameters)}" if parameters else "the model has none"
    known = f"settings: {', '.join(settings)}; {own}"
    hint = name_hint(name, [*settings, *parameters], known, other_names(TrainSpec))
    problems.append(f"{place}.{name}: unknown factor; {hint}")
    return name


def _with_options(name: str) -> str:
    """`data.fraction` is an option of the data; `data` itself says which data."""
    outer, dot, inner = name.partition(".")
    return f"data_options.{inner}" if dot and outer == "data" else name


def level_problems(vary: Mapping[str, Sequence[Scalar]]) -> Iterator[str]:
    """Of factors that have no levels, or one of them twice."""
    for name, levels in vary.items():
        if not levels:
            yield f"vary.{name}: got no levels, must be at least one"
        for text, count in Counter(map(level_text, levels)).items():
            if count > 1:
                yield f"vary.{name}: got {text} twice, levels must differ"


def _value_problems(
    settings: Mapping[str, Any], vary: Mapping[str, Any], cells: Sequence[Any]
) -> Iterator[str]:
    """Of every setting and level by itself, each with its place; rules between settings come later."""
    yield from script_only(settings)
    yield from field_problems(TrainSpec, settings)
    varied = {name: levels for name, levels in vary.items() if isinstance(levels, list | tuple)}
    yield from level_problems(varied)
    placed = [
        (f"vary.{name}[{index}]", name, level)
        for name, levels in varied.items()
        for index, level in enumerate(levels)
    ]
    for index, cell in enumerate(cells):
        if isinstance(cell, Mapping):
            placed += [(f"cells[{index}].{name}", name, level) for name, level in cell.items()]
    for place, name, level in placed:
        full_name = _with_options(name)
        is_setting = full_name.partition(".")[0] in OF_WORKLOADS
        if is_setting and level != EACH_DEVICE and isinstance(level, Scalar):
            for problem in field_problems(TrainSpec, with_levels({}, {full_name: level})):
                yield f"{place}: got {problem.partition('got ')[2]}"
