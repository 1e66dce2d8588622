"""A study over a script: its own arguments are the factors, and each trial is the script itself."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainlab.errors import SpecError
from trainlab.plan import count_trials
from trainlab.resolve import check_number
from trainlab.spec import Cell, CostSpec, Study, TrainSpec, checked
from trainlab.spec.base import field_problems
from trainlab.spec.cell import BASE, cell_id, combinations, with_levels
from trainlab.spec.cost import cost_margins
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.question import level_problems
from trainlab.spec.script import ScriptSpec, seed_argument_of
from trainlab.spec.settings import Scalar

NO_SEED = "none"
"""As the seed argument of a script that takes none."""


def script_study(
    path: Path | str,
    arguments: Sequence[str] = (),
    *,
    vary: Mapping[str, Sequence[Scalar]] | None = None,
    design: str = "grid",
    seeds: Sequence[int] = (1,),
    metrics: Mapping[str, str] | None = None,
    metric_files: Mapping[str, str] | None = None,
    seed_argument: str | None = None,
    threads: int | None = None,
    processes: int = 1,
    max_steps: int = 0,
    cost: CostSpec | None = None,
    learn: bool = True,
    probes: Sequence[ProbeSpec] = (),
    tensorboard: bool = True,
    name: str | None = None,
    many: bool = False,
) -> Study:
    """The study; SpecError with all problems. `seed_argument`: the script's option that takes the seed;
    `none` where it has none, None for one that its text shows."""
    from trainlab.watching.scripts.source import source_of

    source = source_of(Path(path))
    if seed_argument is None:
        seed_argument = seed_argument_of(source)
    elif seed_argument == NO_SEED:
        seed_argument = None
    script = checked(
        ScriptSpec,
        {
            "path": str(Path(path).absolute()),
            "arguments": tuple(arguments),
            "folder": str(Path.cwd()),
            "seed_argument": seed_argument,
            "metrics": dict(metrics or {}),
            "metric_files": dict(metric_files or {}),
            "processes": processes,
            "max_steps": max_steps,
        },
    )
    if script.gives_seed and len(seeds) > 1:
        rule = "is among the script's arguments, so that every seed would be the same"
        raise SpecError([f"{seed_argument}: {rule}; leave it out, and give --seeds"])
    cells = _cells(vary or {}, design, threads)
    if processes > 1 and cost is not None:
        rule = "steps of several processes are not timed in turns"
        raise SpecError([f"--nproc: got {processes}, but {rule}; leave --profile out"])
    check_number(count_trials(len(cells), len(seeds), learn=learn, cost=cost), many=many)
    values: dict[str, Any] = {
        "name": name or _run_name(Path(path)),
        "workload": str(path),
        "settings": cells[0].settings,
        "cells": cells if len(cells) > 1 or cells[0].levels else (),
        "seeds": tuple(seeds),
        "learn": learn,
        "cost": cost,
        "margins": cost_margins(cost),
        "script": script,
        "probes": tuple(probes),
        "tensorboard": tensorboard,
    }
    return checked(Study, values)


def _cells(
    vary: Mapping[str, Sequence[Scalar]], design: str, threads: int | None
) -> tuple[Cell, ...]:
    settings = {} if threads is None else {"threads": threads}
    if problems := [*level_problems(vary), *field_problems(TrainSpec, settings)]:
        raise SpecError(problems)
    named = {f"script.{name}": levels for name, levels in vary.items()}
    cells = [
        Cell(
            id=cell_id(levels) if levels else BASE,
            levels=levels,
            settings=checked(TrainSpec, with_levels(settings, levels)),
        )
        for levels in combinations(named, design)
    ]
    return tuple(cells)


def _run_name(path: Path) -> str:
    """From the file's name, as a run folder can be called."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", path.stem).lstrip("._-") or "script"
