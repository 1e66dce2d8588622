"""What a command line asks for, as a Question: a workload or a study, and options."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlab.errors import DataError, DeviceError, SpecError, WorkloadError
from trainlab.spec import CostSpec, Question, TrainSpec
from trainlab.spec.base import nearest, option_of, setting_of
from trainlab.spec.question import STEP_SCHEDULE_ONLY, checked_question, read_question
from trainlab.spec.settings import NOT_OF_LEARNING, Scalar, pairs_of, scalar_of
from trainlab.spec.study import cost_margins
from trainlab.studies import builtin_study, study_names
from trainlab.workloads.reference import BUILTIN, with_name


@dataclass(frozen=True)
class Asked:
    """A question as a command line asks it, and what of it was typed."""

    question: Question
    where: str
    """Where all that was not typed comes from, for messages."""
    places: Mapping[str, str]
    """Places in a study, as `vary.lr`, to the options that they were given by."""
    overridden: dict[str, Any]
    """What the study or its file said of settings and factors, where an option says otherwise."""

    @contextmanager
    def naming_options(self) -> Iterator[None]:
        """In this block a problem with what was typed is told under the name of its option."""
        try:
            yield
        except SpecError as error:
            raise SpecError(map(self._named, error.problems)) from error
        except (DataError, DeviceError, WorkloadError) as error:
            raise type(error)(self._named(str(error))) from error

    def _named(self, problem: str) -> str:
        place, colon, rule = problem.removeprefix(f"{self.where}: ").partition(": ")
        place = re.sub(r"\[\d+\]$", "", place)
        outer, _, inner = place.partition(".")
        option = self.places.get(place)
        if option is None and outer in self.places:
            option = f"{self.places[outer]} {inner}"
        return f"{option}: {rule}" if option and colon else problem


def question_of(
    what: str,
    settings: Mapping[str, str],
    vary: Sequence[str] = (),
    *,
    profile: bool | None = None,
    cost: Mapping[str, str] | None = None,
    **fields: Any,
) -> Asked:
    """The question that a workload or a study and options ask; options override a study's file. `profile`
    adds a measurement of cost or leaves that of a study out, `cost` overrides its fields. `fields` are
    others of Question; None means that one was not given."""
    base, where = _base_question(what)
    varied = varied_of(vary)
    given = {name: value for name, value in fields.items() if value is not None}
    levels, single = dict(base.vary), dict(base.settings)
    for name, text in settings.items():
        if "," not in text or setting_of(TrainSpec, name).holds_commas:
            single[name] = text
            levels.pop(name, None)
            continue
        single.pop(name, None)
        option, parts = option_of(TrainSpec, name), [part.strip() for part in text.split(",")]
        if name in varied:
            raise SpecError([f"{option} and --vary {name}: give its levels once"])
        if not all(parts):
            rule = "has an empty level; write levels with one comma between, as in 1,16"
            raise SpecError([f"{option}: got {text!r}, which {rule}"])
        levels[name] = tuple(map(scalar_of, parts))
    # An option overrides what a file says of the same setting, and what is only about what it said.
    dropped = {*varied, *(STEP_SCHEDULE_ONLY if "schedule" in settings else ())} - settings.keys()
    if "search" in given and base.search is not None:
        given["search"] = base.search.model_dump(exclude_unset=True) | given["search"]
    merged = {
        **base.model_dump(exclude_unset=True),
        "settings": {name: value for name, value in single.items() if name not in dropped},
        "vary": levels | varied,
        "cost": _cost(base, profile, cost or {}),
        **given,
    }
    places = {
        **{name: f"--{name.replace('_', '-')}" for name in given},
        **{f"cost.{name}": option_of(CostSpec, name) for name in cost or ()},
        **{name: f"--vary {name}" for name in varied},
        **{f"{kind}{n}": option_of(TrainSpec, n) for n in settings for kind in ("", "vary.")},
        **{f"{kind}.{name}": f"--vary {name}" for name in varied for kind in ("vary", "model")},
        **_places_of_search(given.get("search") or {}),
    }
    with Asked(base, where, places, {}).naming_options():
        question = checked_question(merged, where)
    # A margin of what is no longer measured says nothing; one that never was stays, and is refused.
    left_out = cost_margins(base.cost).keys() - cost_margins(question.cost).keys()
    margins = {name: margin for name, margin in question.margins.items() if name not in left_out}
    # The noise that it states is that of its own settings.
    asked, own = ({**one.settings, **one.vary} for one in (question, base))
    changed = {n for n in asked.keys() | own if not (n in own and _same(asked.get(n), own[n]))}
    spreads = {} if changed - NOT_OF_LEARNING else question.spreads
    question = question.model_copy(update={"margins": margins, "spreads": spreads})
    now, said = _written(question), _written(base, exclude_unset=True)
    before = {name: value for name, value in _written(base).items() if name in said}
    overridden = {n: v for n, v in before.items() if n not in now or not _same(now[n], v)}
    return Asked(question, where, places, overridden)


def _places_of_search(asked: Mapping[str, Any]) -> dict[str, str]:
    """Places in the search of a study to the options of `search`."""
    options = {f"search.{name}": f"--{name.replace('_', '-')}" for name in asked}
    spaces = {f"search.vary.{name}": f"--vary {name}" for name in asked.get("vary", ())}
    return options | spaces | {"search.budget_s": "--budget"}


def _cost(base: Question, profile: bool | None, given: Mapping[str, str]) -> dict[str, Any] | None:
    """The study's measurement of cost, overridden by what was given."""
    if profile is False or (base.cost is None and not profile):
        if given:
            first, remedy = next(iter(given)).replace("_", "-"), "add --profile"
            if first == "processes":
                remedy = "add --profile, or train with several processes by --data-parallel"
            raise SpecError([f"--{first}: is about measuring cost; {remedy}"])
        return None
    own = {"weights": "both"} if base.cost is None else base.cost.model_dump(exclude_unset=True)
    return {**own, **given}


def varied_of(options: Sequence[str], *, as_written: bool = False) -> dict[str, tuple[Scalar, ...]]:
    """Factors and levels of every --vary; names `as_written` are a script's own."""
    varied: dict[str, tuple[Scalar, ...]] = {}
    problems: list[str] = []
    for text in options:
        name, equals, values = text.partition("=")
        name = name.strip()
        name = name.removeprefix("--") if as_written else name.replace("-", "_")
        if not equals or not name:
            rule = "must be name=level,level, as in lr=0.01,0.001"
            problems.append(f"--vary: got {text!r}, {rule}")
        elif name in varied:
            problems.append(f"--vary: got {name} twice; give all its levels at once, as {name}=…,…")
        parts = (part.strip() for part in values.split(","))
        varied[name] = tuple(scalar_of(part) for part in parts if part)
    if problems:
        raise SpecError(problems)
    return varied


def spaces_of(options: Sequence[str]) -> dict[str, str]:
    """What every --vary of a search says of its setting."""
    found: dict[str, str] = {}
    for text in options:
        name, equals, space = (part.strip() for part in text.partition("="))
        name = name.replace("-", "_")
        if not equals or not name or name in found:
            rule = "must be NAME=SPACE, each name once, as in lr=1e-5..1e-1 or optimizer=adam,sgd"
            raise SpecError([f"--vary: got {text!r}, {rule}"])
        found[name] = space
    return found


def _written(question: Question, *, exclude_unset: bool = False) -> dict[str, Any]:
    """What a question says of settings, factors, its own fields and those of the cost."""
    apart = {"settings", "vary", "cost", "margins", "spreads"}
    values = question.model_dump(mode="json", exclude=apart, exclude_unset=exclude_unset)
    if question.cost is not None:
        cost = question.cost.model_dump(mode="json", exclude_unset=exclude_unset)
        values |= {f"cost.{name}": value for name, value in cost.items()}
    return {**question.settings, **question.vary, **values}


def _same(typed: Any, value: Any) -> bool:
    """Whether an option says what a file says: an option comes as text."""
    if not isinstance(typed, str):
        return bool(typed == value)
    try:
        return bool((pairs_of(typed) if "=" in typed else scalar_of(typed)) == value)
    except ValueError:
        return False


def _base_question(what: str) -> tuple[Question, str]:
    """Before any options; the built-in study, the study file, or the workload alone."""
    if what in study_names():
        return builtin_study(what), what
    if what.endswith(".toml"):
        path = Path(what).expanduser()
        question = read_question(path)
        # A workload's file lies beside that of the study, or else in the current folder.
        written = question.workload
        place, name = (written, "") if written.endswith(".py") else written.rpartition(":")[::2]
        beside = path.parent / place
        if place.endswith(".py") and not Path(place).is_absolute() and beside.is_file():
            written = f"{beside}:{name}"
        return question.model_copy(update={"workload": with_name(written, str(path))}), what
    if what not in BUILTIN and ":" not in what:
        near = nearest(what, [*BUILTIN, *study_names()])
        if near is not None and near not in BUILTIN:
            raise SpecError([f"{what}: no such workload or study; did you mean {near}?"])
    return Question(workload=with_name(what)), "settings"
