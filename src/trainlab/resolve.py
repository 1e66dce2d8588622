"""From a question to a study: its cells laid out and checked. Pure: no torch, no data, no machine.

What only the machine that runs the trials can say (its devices, the data, the model itself) is checked
there, by the preflight.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from trainlab.errors import SpecError
from trainlab.plan import count_trials
from trainlab.spec import Cell, Question, Study, TrainSpec, checked
from trainlab.spec.base import did_you_mean
from trainlab.spec.facts import WorkloadFacts
from trainlab.spec.question import EACH_DEVICE, layout_of, looks_of, search_of, seeds_of
from trainlab.spec.search import SearchSpec
from trainlab.spec.study import OF_SPREADS, StudyBase, objective_of, without_part

MOST_TRIALS = 500
"""More are planned only when asked for twice."""
COSTS = ("train/sample_us", "inference/sample_us")
DATA_KINDS = ("full", "bundled")
"""The data whose noise a study can state."""


def resolve(
    question: Question,
    facts: WorkloadFacts,
    where: str = "",
    *,
    devices: Sequence[str] = (),
    many: bool = False,
) -> Study:
    """The study with all its cells, or a SpecError with every problem. Before `devices` are known, a study
    that asks for each of them is laid out for one. `many` allows more than MOST_TRIALS trials."""
    checked(TrainSpec, facts.defaults, f"{facts.name}: defaults")
    question = _on_devices(question, devices)
    # Every cell is a trial or more: known before a huge grid is laid out.
    counts = [len(levels) for levels in question.vary.values()]
    grid = math.prod(counts) if question.design == "grid" else 1 + sum(counts)
    check_number(grid + len(question.cells), many=many, where=where)
    problems = [*_metric_problems(question, facts), *_repetition_problems(question)]
    search = None
    try:
        if question.search is not None:
            search = search_of(question.search, question, facts)
            question = question.model_copy(update=_searched(search, question))
        cells, same_as_base = layout_of(
            question, facts.defaults, facts.parameters, facts.model_defaults
        )
    except SpecError as error:
        raise SpecError([*problems, *error.problems], where) from None
    # With every seed that may be added, before seeds are listed: a number of them is soon written. Further
    # processes are limited by time, and not counted.
    given = question.seeds if isinstance(question.seeds, int) else len(question.seeds)
    num_seeds = max(given, question.max_seeds) if question.until_decided else given
    num_trials = count_trials(len(cells), num_seeds, learn=question.learn, cost=question.cost)
    check_number(num_trials, many=many, where=where)
    for cell in cells:
        problems += facts.problems(cell.settings)
        if cell.settings.processes > 1 and question.cost and "inference" in question.cost.modes:
            rule = "share training steps only; set cost.mode to train (on the command line --mode train)"
            problems.append(f"processes: {cell.settings.processes} {rule}")
    cells = _on_equal_terms(cells)
    # The first cell stands for the base, which a grid may make unsound: momentum, with optimizers varied.
    varied = cells if len(cells) > 1 or cells[0].levels else ()
    values = {
        **question.model_dump(include=set(StudyBase.model_fields)),
        "name": question.name or facts.name,
        "objective": question.objective or facts.objective,
        "settings": cells[0].settings,
        "cells": varied,
        "same_as_base": same_as_base,
        "higher_is_better": dict(facts.higher_is_better),
        "search": search,
    }
    try:
        values |= {"seeds": seeds_of(question), "looks": looks_of(question)}
        study = checked(Study, values)
    except SpecError as error:
        problems += error.problems
    else:
        problems += _objective_problems(study, facts)
    if problems:
        raise SpecError(dict.fromkeys(problems), where)
    if study.looks and not varied and search is None:
        raise SpecError(["until_decided: there is nothing to compare; vary a setting"], where)
    return study


CONFIRMED_SEEDS = 5
"""With which a search confirms what it found, unless another number is asked for."""


def _searched(search: SearchSpec, question: Question) -> dict[str, Any]:
    """What of a question is otherwise where it is a search; costs are measured of what is confirmed."""
    changed: dict[str, Any] = {"settings": search.asked, "cost": None}
    if "seeds" not in question.model_fields_set:
        changed["seeds"] = CONFIRMED_SEEDS
    return changed


def _on_equal_terms(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Where trials run in several processes, all have the same engine and as many threads in each process:
    nobody could else say what further processes gain."""
    if all(cell.settings.processes == 1 for cell in cells):
        return tuple(cells)

    def alike(settings: TrainSpec) -> TrainSpec:
        engine = "eager" if settings.engine == "auto" else settings.engine
        return settings.model_copy(update={"engine": engine, "threads": settings.threads or 1})

    return tuple(cell.model_copy(update={"settings": alike(cell.settings)}) for cell in cells)


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


def check_number(count: int, *, many: bool, where: str = "") -> None:
    """SpecError where so many trials are planned only when asked for twice."""
    if count > MOST_TRIALS and not many:
        rule = f"{MOST_TRIALS} is the limit; vary less, or add --yes (in Python many=True)"
        raise SpecError([f"plans {count:,} trials or more, but {rule}"], where)


def _metric_problems(question: Question, facts: WorkloadFacts) -> Iterator[str]:
    """Targets, margins and spreads of metrics that will never be recorded."""
    recorded = [
        f"{part}/{name}" for part in ("train", "test", "val") for name in ("loss", *facts.metrics)
    ]
    modes = () if question.cost is None else question.cost.modes
    costs = [f"{mode}/sample_us" for mode in modes]
    named: list[tuple[str, Iterable[str], list[str]]] = [
        ("targets", question.targets, recorded),
        ("margins", question.margins, recorded + costs),
    ]
    for data, spreads in question.spreads.items():
        if data not in DATA_KINDS:
            yield f"spreads.{data}: no such data; must be one of {', '.join(DATA_KINDS)}"
        elif "epochs" not in spreads:
            yield f"spreads.{data}: lacks epochs; add those that it was measured with, as epochs = 5"
        named.append((f"spreads.{data}", spreads.keys() - {*OF_SPREADS}, recorded))
    for field, metrics, known in named:
        for metric in metrics:
            if field == "margins" and metric in COSTS and metric not in costs:
                remedy = "add [cost] (on the command line --profile, in Python profile=True)"
                if question.cost is not None:
                    remedy = f"set cost.mode to both or {metric.partition('/')[0]}"
                yield f"margins.{metric}: is not measured; {remedy}"
            elif metric not in known:
                has = f"it has {', '.join(known)}{did_you_mean(metric, known)}"
                yield f"{field}.{metric}: {facts.name} has no such metric; {has}"


def _objective_problems(study: Study, facts: WorkloadFacts) -> Iterator[str]:
    """An objective that will never be recorded, or by which no two settings compare; targets of which
    nothing says from which side they are reached."""
    own, name = ("loss", *facts.metrics), objective_of(study.objective or "loss")[0]
    bare = without_part(name)
    if not facts.logs_more and not f"{bare}_".startswith(tuple(f"{one}_" for one in own)):
        has = f"it has {', '.join(own)}{did_you_mean(bare, own)}"
        yield f"objective.{name}: {facts.name} has no such metric; {has}"
    if study.objective and bare == "loss" and any(f.startswith("loss.") for f in study.factors):
        yield f"objective: got {name!r}, which is another loss in each setting; name another metric"
    for metric, written in study.targets.items():
        if not isinstance(written, str) and study.is_better_lower(metric) is None:
            remedy = f'write ">= {written:g}" or "<= {written:g}", or give an objective with :min or :max'
            yield f"targets.{metric}: got {written:g}, but nothing says which way is better; {remedy}"


def _repetition_problems(question: Question) -> Iterator[str]:
    """Numbers of seeds and processes that contradict each other."""
    if question.until_decided and not question.learn:
        yield (
            "until_decided: adds seeds to train with, but learn is false; what a step costs is measured "
            "until it is known as well as cost.ratio_within asks"
        )
    cost = question.cost
    if cost is None or "max_processes" not in cost.model_fields_set:
        return
    if cost.max_processes < cost.processes:
        yield (
            f"cost.max_processes: got {cost.max_processes}, must be {cost.processes} or more: "
            "so many come first"
        )
