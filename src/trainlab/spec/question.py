"""Question: a study as a person writes it, in a TOML file or as flags; resolved into cells."""

import re
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from trainlab.errors import SpecError
from trainlab.spec.base import Spec, checked
from trainlab.spec.cell import BASE, Cell, cell_id, combinations, level_told, with_levels
from trainlab.spec.cost import CostSpec
from trainlab.spec.train import Scalar, TrainSpec, settings_for

NOT_VARIED = ("data", "log_every_steps")
"""Settings that change what is compared rather than how it is trained."""


class Question(Spec):
    """What is asked about a workload: base settings, factors with their levels, seeds, instruments."""

    workload: str
    """A built-in workload's name, or `file.py:name` of your own."""
    name: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = None
    """Names the run folder; not given: the workload's name."""
    title: str = ""
    """The question in words, for the report."""
    seeds: PositiveInt | tuple[NonNegativeInt, ...] = 1
    """How many seeds, or the seeds themselves: one learn trial per cell and seed."""
    design: Literal["grid", "one-at-a-time"] = "grid"
    """All combinations of levels, or the base and one change at a time."""
    settings: dict[str, Any] = {}
    """The base: settings as for `trainlab run`."""
    vary: dict[str, tuple[Scalar, ...]] = {}
    """Factors and their levels; a name that is no setting is a parameter of the model."""
    cells: tuple[dict[str, Scalar], ...] = ()
    """Further cells, each with its own levels."""
    learn: bool = True
    """Train every cell with every seed."""
    cost: CostSpec | None = None
    """Measure what a step costs in every cell, in fresh processes."""
    targets: dict[str, float] = {}
    """Metric to the value whose reaching is timed, as "test/accuracy" = 0.97."""
    margins: dict[str, float] = {}
    """Metric to the difference that would not matter: within it, cells can be called equivalent."""
    tensorboard: bool = True
    """Write TensorBoard event files beside the records."""
    save_model: bool = False
    """Keep the trained weights."""


def read_question(path: Path) -> Question:
    """A study file; SpecError with all its problems, or with the line where it is no TOML."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError([f"{path}: is not TOML: {error}"]) from None
    return checked(Question, values, str(path))


def seeds_of(question: Question) -> tuple[int, ...]:
    """The seeds themselves."""
    seeds = question.seeds
    return tuple(range(1, seeds + 1)) if isinstance(seeds, int) else seeds


def cells_of(
    question: Question,
    defaults: Mapping[str, Any],
    parameters: Collection[str] | None,
    where: str = "",
) -> tuple[Cell, ...]:
    """Every cell with its settings, or a SpecError with all problems.

    `parameters` are the model's, None where it takes any. In a one-at-a-time design, and with cells
    listed by hand, the first cell is the base.
    """
    problems: list[str] = []
    vary = {
        _factor(name, parameters, "vary", problems): levels
        for name, levels in question.vary.items()
    }
    problems += _level_problems(vary)
    listed = [
        {_factor(n, parameters, f"cells[{i}]", problems): v for n, v in cell.items()}
        for i, cell in enumerate(question.cells)
    ]
    if problems:
        raise SpecError([_at(where, problem) for problem in problems])
    design = "one-at-a-time" if listed and not vary else question.design
    cells: dict[str, Cell] = {}
    told: dict[str, None] = {}
    for levels in (*combinations(vary, design), *listed):
        try:
            settings = settings_for(defaults, with_levels(question.settings, levels))
        except SpecError as error:
            told.update(dict.fromkeys(_placed(problem, vary) for problem in error.problems))
            continue
        same = cells.get(key := settings.model_dump_json())
        if same is None:
            cells[key] = Cell(id=cell_id(levels), levels=levels, settings=settings)
        elif same.id != BASE:
            told[f"{cell_id(levels)}: is the same as {same.id}; leave one out"] = None
    if told:
        raise SpecError([_at(where, problem) for problem in told])
    return tuple(cells.values())


def _factor(name: str, parameters: Collection[str] | None, place: str, problems: list[str]) -> str:
    """The full name of a factor: a setting, an optimizer's option, or `model.<parameter>`."""
    if name in TrainSpec.model_fields and name not in NOT_VARIED:
        return name
    outer, _, inner = name.partition(".")
    if outer == "optimizer_options" and inner:
        return name
    parameter = inner if outer == "model" and inner else name
    if parameters is None or parameter in parameters:
        return f"model.{parameter}"
    settings = [known for known in TrainSpec.model_fields if known not in NOT_VARIED]
    near = get_close_matches(name, [*settings, *parameters], n=1)
    own = f"the model's parameters: {', '.join(parameters)}" if parameters else "the model has none"
    hint = f"did you mean {near[0]}?" if near else f"settings: {', '.join(settings)}; {own}"
    problems.append(f"{place}.{name}: unknown factor; {hint}")
    return name


def _level_problems(vary: Mapping[str, tuple[Scalar, ...]]) -> list[str]:
    problems = []
    for name, levels in vary.items():
        if not levels:
            problems.append(f"vary.{name}: got no levels, must be at least one")
        told = [level_told(level) for level in levels]
        twice = [text for text in dict.fromkeys(told) if told.count(text) > 1]
        problems += [f"vary.{name}: got {text} twice, levels must differ" for text in twice]
    return problems


def _placed(problem: str, vary: Mapping[str, tuple[Scalar, ...]]) -> str:
    """`batch_size: got 0, …` as `vary.batch_size[2]: got 0, …` where that level is at fault."""
    match = re.match(r"([\w.]+): got (.+?), ", problem)
    if match:
        for index, level in enumerate(vary.get(match[1], ())):
            if repr(level) == match[2]:
                return problem.replace(match[1], f"vary.{match[1]}[{index}]", 1)
    return problem


def _at(where: str, problem: str) -> str:
    return f"{where}: {problem}" if where else problem
