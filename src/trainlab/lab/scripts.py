"""A study over a script: its own arguments are the factors, and each trial is the script itself."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainlab.errors import SpecError
from trainlab.plan import count_trials
from trainlab.resolve import check_number
from trainlab.spec import Cell, CostSpec, Study, TrainSpec, checked
from trainlab.spec.base import field_problems
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.question import level_problems
from trainlab.spec.script import ScriptSpec, misspelt_option, option_of, seed_argument_of
from trainlab.spec.settings import Scalar
from trainlab.spec.study import BASE, cell_id, combinations, cost_margins, with_levels

NO_SEED = "none"
"""As the seed argument of a script that takes none."""
OF_MODULE = "-m"
"""In place of a script's path: a module follows."""


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
    """The study; SpecError with all problems. `path`: the script's file, or `-m` where the first argument
    names a module. `seed_argument`: the script's option that takes the seed; `none` where it has none,
    None for one that its text shows."""
    path, module, source = found_script(path, arguments)
    if module:
        arguments = arguments[1:]
    if seed_argument is None:
        seed_argument = seed_argument_of(source)
    elif seed_argument == NO_SEED:
        seed_argument = None
    script = checked(
        ScriptSpec,
        {
            "path": str(path.absolute()),
            "module": module,
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
    if problems := list(_misspelt(vary or {}, source)):
        raise SpecError(problems)
    cells = _cells(vary or {}, design, threads)
    if processes > 1 and cost is not None:
        rule = "but steps of several processes are not timed in turns"
        raise SpecError([f"--nproc: got {processes}, {rule}; leave --profile out"])
    _check_cost(cost)
    check_number(count_trials(len(cells), len(seeds), learn=learn, cost=cost), many=many)
    values: dict[str, Any] = {
        "name": name or _run_name(path, module),
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


def found_script(path: Path | str, arguments: Sequence[str]) -> tuple[Path, str, str]:
    """A script's file, the name of the module that it is, where the first argument names one, and its text.
    SpecError where there is none."""
    from trainlab.watching.script_process import module_file, source_of

    module = ""
    if str(path) == OF_MODULE:
        if not arguments:
            raise SpecError(["-m: got no value, needs one; give a module, as -m package.train"])
        module, path = module_file(arguments[0], Path.cwd())
    return Path(path), module, source_of(Path(path))


def _misspelt(vary: Iterable[str], source: str) -> Iterator[str]:
    """Found before it runs: every trial would fail."""
    for name in vary:
        if (near := misspelt_option(name, source)) is not None:
            yield f"--vary {name}: the script has no option {option_of(name)}; did you mean {near}?"


def _check_cost(cost: CostSpec | None) -> None:
    """SpecError for what cannot be measured of a script: it is timed as it trains, with its own weights."""
    problems = []
    if cost is not None and cost.mode != "train":
        rule = "but a script is timed as it trains"
        problems.append(f"--mode: got {cost.mode}, {rule}; leave it out")
    if cost is not None and cost.weights != "untrained":
        rule = "but a script makes its own weights"
        problems.append(f"--weights: got {cost.weights}, {rule}; leave it out")
    if problems:
        raise SpecError(problems)


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


def _run_name(path: Path, module: str) -> str:
    """From the name of the file or of the module, as a run folder can be called."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", module or path.stem).lstrip("._-") or "script"
