"""From a question to a study: its cells laid out and checked. Pure: no torch, no data, no machine.

What only the machine that runs the trials can say (its devices, the data, the model itself) is checked
there, by the preflight.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from trainlab.errors import SpecError, TrainlabError
from trainlab.plan import plan, trials_of
from trainlab.spec import Question, Study, TrainSpec, checked
from trainlab.spec.contradictions import of_cost
from trainlab.spec.question import EACH_DEVICE, Layout, layout_of, looks_of, seeds_of
from trainlab.spec.suggestion import did_you_mean
from trainlab.spec.workload import WorkloadFacts

MOST_TRIALS = 500
"""More are planned only when asked for twice."""


def resolve(
    question: Question,
    facts: WorkloadFacts,
    where: str = "",
    *,
    devices: Sequence[str] = (),
    many: bool = False,
) -> Study:
    """The study with all its cells, or a SpecError with every problem.

    `devices` are those of the machine that will run it; before they are known, a study that asks for
    each of them is laid out for one. `many` allows more than MOST_TRIALS trials.
    """
    checked(TrainSpec, facts.defaults, f"{facts.name}: defaults")
    question = _on_devices(question, devices)
    prefix = f"{where}: " if where else ""
    contradictions = () if question.cost is None else of_cost(question.cost)
    problems = [
        prefix + problem for problem in (*_metric_problems(question, facts), *contradictions)
    ]
    if not many and (count := _count_cells(question)) > MOST_TRIALS:
        raise SpecError([*problems, prefix + _too_many(count)])
    layout = Layout((), ())
    with _gathering(problems):
        layout = layout_of(question, facts.defaults, facts.parameters, where, facts.model_defaults)
    cells = layout.cells
    with _gathering(problems):
        study = _without_cells(question, facts.name, where)
    for cell in cells:
        with _gathering(problems):
            facts.check_parameters(cell.settings.model, where)
        if (too_large := facts.batch_problem(cell.settings)) is not None:
            problems.append(prefix + too_large)
    if problems:
        raise SpecError(dict.fromkeys(problems))
    # The first cell stands for the base, which a grid may make unsound: momentum, with optimizers varied.
    varied = cells if len(cells) > 1 or cells[0].levels else ()
    laid_out = {"cells": varied, "same_as_base": layout.same_as_base}
    study = study.model_copy(update={"settings": cells[0].settings, **laid_out})
    if study.looks and not (study.learn and varied):
        raise SpecError(["until_decided: there is nothing to compare; vary a setting"], where)
    if not many and (count := len(trials_of(plan(study)))) > MOST_TRIALS:
        raise SpecError([_too_many(count)], where)
    return study


def asks_each_device(question: Question) -> bool:
    """Whether the devices of the machine that runs it are among what it varies."""
    return EACH_DEVICE in question.vary.get("device", ())


def _on_devices(question: Question, devices: Sequence[str]) -> Question:
    """`each` as the devices there are; a factor only where there are several."""
    if not asks_each_device(question):
        return question
    vary = {name: levels for name, levels in question.vary.items() if name != "device"}
    if len(devices) > 1:
        return question.model_copy(update={"vary": {**question.vary, "device": tuple(devices)}})
    settings = {**question.settings, **({"device": devices[0]} if devices else {})}
    return question.model_copy(update={"vary": vary, "settings": settings})


def _count_cells(question: Question) -> int:
    """At least so many trials are planned; known before a huge grid is laid out."""
    counts = [len(levels) for levels in question.vary.values()]
    grid = math.prod(counts) if question.design == "grid" else 1 + sum(counts)
    return grid + len(question.cells)


def _too_many(count: int) -> str:
    return (
        f"plans {count:,} trials or more, but {MOST_TRIALS} is the limit; vary less, or add --yes "
        "(in Python many=True)"
    )


def _metric_problems(question: Question, facts: WorkloadFacts) -> list[str]:
    """Targets and margins of metrics that will never be recorded."""
    recorded = [f"{part}/{name}" for part in ("train", "test") for name in ("loss", *facts.metrics)]
    costs = [] if question.cost is None else [f"{mode}/sample_us" for mode in question.cost.modes]
    return [
        f"{field}.{metric}: {_no_such_metric(metric, known, facts.name)}"
        for field, metrics, known in (
            ("targets", question.targets, recorded),
            ("margins", question.margins, [*recorded, *costs]),
        )
        for metric in metrics
        if metric not in known
    ]


def _no_such_metric(metric: str, known: Sequence[str], name: str) -> str:
    if metric.endswith("/sample_us"):
        mode = metric.removesuffix("/sample_us")
        return f"is a cost that is not measured here; add [cost] with mode {mode} or both"
    hint = did_you_mean(metric, known)
    return f"{name} has no such metric; it has {', '.join(known)}{hint}"


def _without_cells(question: Question, name: str, where: str) -> Study:
    """The study with all but its cells and its base settings, checked."""
    not_shared = {"vary", "design", "name", "seeds", "settings", "cells"}
    shared = question.model_dump(exclude={*not_shared, "until_decided", "max_seeds"})
    try:
        seeds, looks = seeds_of(question), looks_of(question)
    except SpecError as error:
        raise SpecError(error.problems, where) from None
    own = {
        "name": question.name or name,
        "seeds": seeds,
        "looks": looks,
        "settings": TrainSpec(),
    }
    return checked(Study, {**shared, **own}, where)


@contextmanager
def _gathering(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except SpecError as error:
        problems += error.problems
    except TrainlabError as error:
        problems.append(str(error))
