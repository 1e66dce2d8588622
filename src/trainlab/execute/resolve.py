"""From a question to a study: checked against the workload and this machine before anything runs."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainlab.errors import SpecError, TrainlabError
from trainlab.execute.worker import Loader
from trainlab.instruments.probes.available import check_selectors
from trainlab.machine.device import devices_here, pick_device
from trainlab.plan import Trial, plan
from trainlab.record.folder import TrialFolder
from trainlab.spec import Cell, Question, Study, TrainSpec, checked
from trainlab.spec.question import EACH_DEVICE, cells_of, seeds_of
from trainlab.train.optimizers import check_optimizer
from trainlab.train.setup import prepare_process, set_up
from trainlab.workloads.workload import Workload

MOST_TRIALS = 500
"""More are planned only when asked for twice."""


def make_study(
    load: Loader,
    workload: str,
    asked: Mapping[str, Any],
    seeds: Sequence[int],
    where: str = "",
    **options: Any,
) -> Study:
    """A study without a file: the workload's defaults, overridden by what was asked."""
    values = {"workload": workload, "settings": asked, "seeds": tuple(seeds), **options}
    return resolve(load, checked(Question, values, where), where)


def resolve(load: Loader, question: Question, where: str = "", *, many: bool = False) -> Study:
    """The study with all its cells, or a SpecError with every problem; nothing has run then.

    `many` allows more than MOST_TRIALS trials.
    """
    found = load.workload(question.workload)
    checked(TrainSpec, found.defaults, f"{found.name}: defaults")
    question = _on_each_device(question)
    problems = _metric_problems(question, found, where)
    if not many and (count := _count_cells(question)) > MOST_TRIALS:
        raise SpecError([*problems, _too_many(count, where)])
    cells: tuple[Cell, ...] = ()
    with _gathering(problems):
        cells = cells_of(question, found.defaults, found.parameters(), where)
    study = _study(question, found.name, TrainSpec(), (), problems, where)
    if problems or study is None:
        raise SpecError(problems)
    for cell in cells:
        for check in _checks(found, cell):
            with _gathering(problems):
                check()
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    # In a grid the base itself need not be sound: momentum beside a varied optimizer.
    base = cells[0].settings
    varied = cells if len(cells) > 1 or cells[0].levels else ()
    study = _study(question, found.name, base, varied, problems)
    assert study is not None, problems
    if not many and (count := len(plan(study))) > MOST_TRIALS:
        raise SpecError([_too_many(count, where)])
    prepare_process(base)
    _, dataset = load(question.workload, base.data)
    if study.probes:
        trial = Trial(id="probes", workload=question.workload, seed=0, settings=base)
        # A bench of its own, used up by looking: a selector that reaches nothing is told before the run.
        check_selectors(study.probes, set_up(trial, found, TrialFolder(Path()), dataset))
    return study


def _count_cells(question: Question) -> int:
    """At least so many trials are planned; known before a huge grid is laid out."""
    counts = [len(levels) for levels in question.vary.values()]
    grid = math.prod(counts) if question.design == "grid" else 1 + sum(counts)
    return grid + len(question.cells)


def _too_many(count: int, where: str) -> str:
    told = (
        f"plans {count:,} trials or more, but {MOST_TRIALS} is the limit; vary less, or add --yes "
        "(in Python many=True)"
    )
    return f"{where}: {told}" if where else told


def _metric_problems(question: Question, workload: Workload, where: str) -> list[str]:
    """Targets and margins of metrics that will never be recorded."""
    known = [f"{part}/{name}" for part in ("train", "test") for name in ("loss", *workload.metrics)]
    places = [("targets", name) for name in question.targets]
    places += [("margins", name) for name in question.margins]
    prefix = f"{where}: " if where else ""
    return [
        f"{prefix}{place}.{name}: {workload.name} has no such metric; it has {', '.join(known)}"
        for place, name in places
        if name not in known
    ]


def _study(
    question: Question,
    name: str,
    settings: TrainSpec,
    cells: Sequence[Cell],
    problems: list[str],
    where: str = "",
) -> Study | None:
    given = question.model_dump(exclude={"vary", "design", "name", "seeds", "settings", "cells"})
    values = {
        **given,
        "name": question.name or name,
        "seeds": seeds_of(question),
        "settings": settings,
        "cells": tuple(cells),
    }
    with _gathering(problems):
        return checked(Study, values, where)
    return None


def _on_each_device(question: Question) -> Question:
    """`each` as the devices there are; a factor only where there are several."""
    if EACH_DEVICE not in question.vary.get("device", ()):
        return question
    here = tuple(str(device) for device in devices_here())
    if len(here) > 1:
        return question.model_copy(update={"vary": {**question.vary, "device": here}})
    vary = {name: levels for name, levels in question.vary.items() if name != "device"}
    settings = {**question.settings, "device": here[0]}
    return question.model_copy(update={"vary": vary, "settings": settings})


def _checks(workload: Workload, cell: Cell) -> Iterator[Callable[[], object]]:
    settings = cell.settings
    yield lambda: workload.check_parameters(settings.model)
    yield lambda: check_optimizer(settings, pick_device(settings.device))


@contextmanager
def _gathering(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except SpecError as error:
        problems += error.problems
    except TrainlabError as error:
        problems.append(str(error))
