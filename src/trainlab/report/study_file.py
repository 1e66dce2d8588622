"""A study as the TOML file that asks for it again."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainlab.spec import Cell, Study, TrainSpec
from trainlab.spec.question import STEP_SCHEDULE_ONLY
from trainlab.spec.settings import OF_WORKLOADS, Scalar
from trainlab.spec.study import combinations


def study_file(study: Study) -> str:
    """Every setting written out, so that later defaults change nothing.

    Cells that are not a full grid are listed one by one, after the settings they share.
    """
    vary, shared = _grid(study), _shared(study)
    head = {
        "name": study.name,
        "title": study.title or None,
        "workload": study.workload,
        "seeds": study.seeds,
        "learn": study.learn,
        "tensorboard": study.tensorboard,
        "save_model": study.save_model,
        "probes": [str(probe) for probe in study.probes] or None,
        "design": "one-at-a-time" if study.cells and not vary else None,
    }
    tables: dict[str, Mapping[str, Any]] = {
        "settings": shared,
        "vary": vary,
        "cost": {} if study.cost is None else study.cost.model_dump(mode="json"),
        "targets": study.targets,
        "margins": study.margins,
    }
    lines = list(_lines(head))
    for name, values in tables.items():
        if table := list(_lines(values)):
            lines += ["", f"[{name}]", *table]
    for cell in () if vary else study.cells:
        if cell.levels:
            lines += ["", "[[cells]]", *_lines(_own(cell, study, shared))]
    return "\n".join(lines)


def _shared(study: Study) -> dict[str, Any]:
    """The settings all cells have in common; all settings of the base where it is a cell itself. Those
    that have no effect in any cell are left out: a study that asks for them is refused."""
    base = study.settings.model_dump(mode="json", exclude=_unused(study))
    if not study.all_cells[0].levels:
        return base
    cells = [cell.settings.model_dump(mode="json") for cell in study.all_cells]
    return {
        name: value for name, value in base.items() if all(cell[name] == value for cell in cells)
    }


def _unused(study: Study) -> set[str]:
    cells = [cell.settings for cell in study.all_cells]
    has_steps = any(one.schedule == "step" for one in cells)
    unused = set(TrainSpec.model_fields) - set(OF_WORKLOADS)
    unused |= set() if has_steps else set(STEP_SCHEDULE_ONLY)
    return unused | ({"epochs"} if all(one.max_steps for one in cells) else set())


def _own(cell: Cell, study: Study, shared: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's levels, and its other settings that differ from the shared ones."""
    outer = {name.partition(".")[0] for name in cell.levels}
    settings = cell.settings.model_dump(mode="json", exclude=_unused(study))
    rest = {
        name: value
        for name, value in settings.items()
        if name not in outer and value != shared.get(name) and not isinstance(value, dict)
    }
    return {**cell.levels, **rest}


def _grid(study: Study) -> dict[str, list[Scalar]]:
    """Factors and levels where the cells are all their combinations; else empty."""
    factors: dict[str, list[Scalar]] = {}
    for cell in study.cells:
        for name, level in cell.levels.items():
            levels = factors.setdefault(name, [])
            if repr(level) not in map(repr, levels):
                levels.append(level)
    grid = [repr(sorted(levels.items())) for levels in combinations(factors, "grid")]
    return factors if grid == [repr(sorted(cell.levels.items())) for cell in study.cells] else {}


def _lines(values: Mapping[str, Any]) -> Iterator[str]:
    """`name = value`; values that are not set are left out, since TOML has no null."""
    for name, value in values.items():
        if value is not None and value != {}:
            yield f"{_key(name)} = {_value(value)}"


def _key(name: str) -> str:
    """Bare where TOML allows it, in quotes otherwise."""
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if is_bare else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_lines(value)) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    # TOML takes JSON's strings, numbers and booleans as they are, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
