"""What a command line asks for, as a Question: a workload, a built-in study or a study file, and flags."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from trainlab.errors import SpecError
from trainlab.spec import Question, TrainSpec
from trainlab.spec.base import setting_of
from trainlab.spec.question import checked_question, read_question
from trainlab.spec.settings import Scalar, scalar_of
from trainlab.studies import builtin_study, study_names
from trainlab.workloads.catalogue import BUILTIN

TIMES = {"s": 1.0, "m": 60.0, "h": 3600.0}


def question_of(
    what: str,
    settings: Mapping[str, Any],
    vary: Sequence[str] = (),
    **given: Any,
) -> tuple[Question, str]:
    """The question, and where its settings come from for messages; flags override a study's file.

    `given` are fields of Question; those that are None were not asked.
    """
    question, where = _start(what)
    levels, single, problems = dict(question.vary), dict(question.settings), list[str]()
    for name, text in settings.items():
        is_list = isinstance(text, str) and "," in text
        if is_list and not setting_of(TrainSpec, name).holds_commas:
            levels[name] = tuple(scalar_of(part.strip()) for part in text.split(","))
        else:
            single[name] = text
            levels.pop(name, None)
    for text in vary:
        try:
            name, values = _factor(text)
        except ValueError as error:
            problems.append(str(error))
        else:
            levels[name] = values
    if problems:
        raise SpecError(problems)
    asked = {name: value for name, value in given.items() if value is not None}
    merged = {**question.model_dump(), "settings": single, "vary": levels, **asked}
    return checked_question(merged, where), where


def seconds_of(text: str) -> float:
    """`90`, `90s`, `10m` or `1.5h` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if not match or not float(match[1]):
        raise SpecError([f"--budget: got {text!r}, must be a time, as in 90s, 10m or 2h"])
    return float(match[1]) * TIMES[match[2] or "s"]


def seeds_asked(seed: str | None, seeds: int | None) -> int | tuple[int, ...] | None:
    """Seeds by number or by name; None where neither was asked."""
    if seed is not None and seeds is not None:
        raise SpecError(["--seed and --seeds: give one of them"])
    if seed is None:
        return seeds
    try:
        return tuple(int(part) for part in seed.split(","))
    except ValueError:
        raise SpecError(
            [f"--seed: got {seed!r}, must be whole numbers, as in 1 or 1,2,3"]
        ) from None


def _start(what: str) -> tuple[Question, str]:
    if what in study_names():
        return builtin_study(what), what
    if what.endswith(".toml"):
        return read_question(Path(what).expanduser()), what
    if what not in BUILTIN:
        near = get_close_matches(what, [*BUILTIN, *study_names()], n=1)
        if near and near[0] not in BUILTIN:
            raise SpecError([f"{what}: no such workload or study; did you mean {near[0]}?"])
    return Question(workload=what), "settings"


def _factor(text: str) -> tuple[str, tuple[Scalar, ...]]:
    name, equals, values = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"--vary: got {text!r}, must be name=level,level, as in lr=0.01,0.001")
    parts = [part.strip() for part in values.split(",") if part.strip()]
    return name.strip().replace("-", "_"), tuple(scalar_of(part) for part in parts)
