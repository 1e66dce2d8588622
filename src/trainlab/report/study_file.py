"""A study as the TOML file that asks for it again."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainlab.spec import Cell, Study
from trainlab.spec.cell import combinations
from trainlab.spec.settings import Scalar


def study_file(study: Study) -> str:
    """Every setting written out, so that later defaults change nothing.

    Cells that are no grid are listed one by one, beside a base of what they share.
    """
    head: dict[str, Any] = {"name": study.name}
    if study.title:
        head["title"] = study.title
    head |= {"workload": study.workload, "seeds": list(study.seeds), "learn": study.learn}
    head |= {"tensorboard": study.tensorboard, "save_model": study.save_model}
    if study.probes:
        head["probes"] = [str(probe) for probe in study.probes]
    vary = _grid(study)
    shared = _shared(study)
    cells = [] if vary else [_own(cell, shared) for cell in study.cells if cell.levels]
    if not vary and study.cells:
        head["design"] = "one-at-a-time"
    lines = [*_lines(head), *_table("settings", shared)]
    if vary:
        lines += _table("vary", vary)
    if study.cost is not None:
        lines += _table("cost", study.cost.model_dump(mode="json"))
    lines += _table("targets", study.targets)
    lines += _table("margins", study.margins)
    for cell in cells:
        lines += ["", "[[cells]]", *_lines(cell)]
    return "\n".join(lines)


def _shared(study: Study) -> dict[str, Any]:
    """Settings that all cells have alike, and those of a base that stands for itself."""
    base = study.settings.model_dump(mode="json")
    first = study.all_cells[0]
    if not first.levels:
        return base
    others = [cell.settings.model_dump(mode="json") for cell in study.all_cells]
    return {name: value for name, value in base.items() if all(o[name] == value for o in others)}


def _own(cell: Cell, shared: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's levels, and what else of it differs from what is shared."""
    outer = {name.partition(".")[0] for name in cell.levels}
    settings = cell.settings.model_dump(mode="json")
    rest = {
        name: value
        for name, value in settings.items()
        if name not in outer and value != shared.get(name) and not isinstance(value, dict)
    }
    return {**cell.levels, **rest}


def _grid(study: Study) -> dict[str, list[Scalar]]:
    """Factors and levels where the cells are all their combinations; else empty."""
    levels: dict[str, list[Scalar]] = {}
    for cell in study.cells:
        for name, level in cell.levels.items():
            known = levels.setdefault(name, [])
            if repr(level) not in map(repr, known):
                known.append(level)
    if not levels:
        return {}
    asked = [repr(sorted(one.items())) for one in combinations(levels, "grid")]
    return levels if asked == [repr(sorted(cell.levels.items())) for cell in study.cells] else {}


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    told = list(_lines(values))
    return ["", f"[{name}]", *told] if told else []


def _lines(values: Mapping[str, Any]) -> Iterator[str]:
    """What is not set is left out: TOML has no word for it."""
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
        return "[" + ", ".join(_value(one) for one in value) + "]"
    # TOML takes JSON's strings, numbers and booleans as they are, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
