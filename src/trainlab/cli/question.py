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
from trainlab.spec.settings import scalar_of
from trainlab.studies import builtin_study, study_names
from trainlab.workloads.catalogue import BUILTIN

SECONDS_PER_UNIT = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def question_of(
    what: str, settings: Mapping[str, Any], vary: Sequence[str] = (), **fields: Any
) -> tuple[Question, str]:
    """The question, and where its settings come from for messages; flags override a study's file.

    `fields` are those of Question; None means that a field was not given.
    """
    question, where = _base_question(what)
    levels, single, problems = dict(question.vary), dict(question.settings), list[str]()
    for name, text in settings.items():
        is_list = isinstance(text, str) and "," in text
        if is_list and not setting_of(TrainSpec, name).holds_commas:
            levels[name] = tuple(scalar_of(part.strip()) for part in text.split(","))
        else:
            single[name] = text
            levels.pop(name, None)
    for text in vary:
        name, equals, values = text.partition("=")
        if not equals or not name.strip():
            rule = "must be name=level,level, as in lr=0.01,0.001"
            problems.append(f"--vary: got {text!r}, {rule}")
        parts = (part.strip() for part in values.split(","))
        levels[name.strip().replace("-", "_")] = tuple(scalar_of(part) for part in parts if part)
    if problems:
        raise SpecError(problems)
    given = {name: value for name, value in fields.items() if value is not None}
    merged = {
        **question.model_dump(exclude_unset=True),
        "settings": single,
        "vary": levels,
        **given,
    }
    return checked_question(merged, where), where


def seconds_of(text: str) -> float:
    """`90`, `90s`, `10m` or `1.5h` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if not match or not float(match[1]):
        raise SpecError([f"--budget: got {text!r}, must be a time, as in 90s, 10m or 2h"])
    return float(match[1]) * SECONDS_PER_UNIT[match[2]]


def requested_seeds(seed: str | None, seeds: int | None) -> int | tuple[int, ...] | None:
    """The seeds of --seed or the number of --seeds; None where neither was given."""
    if seed is not None and seeds is not None:
        raise SpecError(["--seed and --seeds: give one of them"])
    if seed is None:
        return seeds
    try:
        return tuple(int(part) for part in seed.split(","))
    except ValueError:
        problem = f"--seed: got {seed!r}, must be whole numbers, as in 1 or 1,2,3"
        raise SpecError([problem]) from None


def _base_question(what: str) -> tuple[Question, str]:
    """Before any flags; the built-in study, the study file, or the workload alone."""
    if what in study_names():
        return builtin_study(what), what
    if what.endswith(".toml"):
        return read_question(Path(what).expanduser()), what
    if what not in BUILTIN:
        near = get_close_matches(what, [*BUILTIN, *study_names()], n=1)
        if near and near[0] not in BUILTIN:
            raise SpecError([f"{what}: no such workload or study; did you mean {near[0]}?"])
    return Question(workload=what), "settings"
