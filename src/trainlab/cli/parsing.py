"""What a command line asks for, as a Question: a workload, a built-in study or a study file, and flags."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainlab.errors import DataError, DeviceError, SpecError, WorkloadError
from trainlab.spec import CostSpec, Question, TrainSpec, checked
from trainlab.spec.base import nearest, option_of, setting_of
from trainlab.spec.question import STEP_SCHEDULE_ONLY, checked_question, read_question
from trainlab.spec.settings import Scalar, pairs_of, scalar_of
from trainlab.spec.study import cost_margins
from trainlab.studies import builtin_study, study_names
from trainlab.workloads.reference import BUILTIN, with_name

SECONDS_PER_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Asked:
    """A question as a command line asks it, and what of it was typed."""

    question: Question
    where: str
    """Where all that was not typed comes from, for messages."""
    typed: frozenset[str]
    """Settings and fields of Question that were given as options."""
    measured: frozenset[str]
    """Fields of CostSpec that were given as options."""
    varied: frozenset[str]
    """Factors that were given with --vary."""
    overridden: dict[str, Any]
    """What the study or its file said of settings and factors, where an option says otherwise."""

    def checked_cost(self, own: Mapping[str, Any], given: Mapping[str, Any]) -> "Asked":
        """The same with a measurement of cost that is its own, overridden by what was given as options."""
        named = replace(self, typed=frozenset(), measured=frozenset(given))
        with named.naming_options():
            cost = checked(CostSpec, {**own, **given}, self.where)
        return replace(self, measured=named.measured).with_cost(cost)

    def with_cost(self, cost: CostSpec | None) -> "Asked":
        """The same with another measurement of cost; what a study says of it otherwise is overridden."""
        own = self.question.cost
        before = {} if own is None else own.model_dump(mode="json", exclude_unset=True)
        now = {} if cost is None else cost.model_dump(mode="json")
        changed = {
            f"cost.{name}": value for name, value in before.items() if now.get(name) != value
        }
        # A margin of what is no longer measured says nothing; one that never was stays, and is refused.
        left_out = cost_margins(own).keys() - cost_margins(cost).keys()
        margins = {
            name: margin for name, margin in self.question.margins.items() if name not in left_out
        }
        return replace(
            self,
            question=self.question.model_copy(update={"cost": cost, "margins": margins}),
            overridden=self.overridden | changed,
        )

    @contextmanager
    def naming_options(self) -> Iterator[None]:
        """In this block a problem with what was typed is told under the name of its option."""
        try:
            yield
        except SpecError as error:
            raise SpecError(map(self._as_typed, error.problems)) from error
        except (DataError, DeviceError, WorkloadError) as error:
            raise type(error)(self._as_typed(str(error))) from error

    def _as_typed(self, problem: str) -> str:
        own = problem.removeprefix(f"{self.where}: ")
        place = PLACE.match(own)
        if place is None:
            return problem
        name, inner, rest = place["name"], place["inner"] or "", own[place.end() :]
        if name in self.varied and (place["outer"] or name not in self.typed):
            return f"--vary {name}{inner}: {rest}"
        if place["outer"] == "model." and "model" in self.typed:
            return f"--model {name}: {rest}"
        if name in self.typed and place["outer"] != "cost.":
            return f"{option_of(TrainSpec, name)}{inner.replace('.', ' ')}: {rest}"
        if name in self.measured:
            return f"{option_of(CostSpec, name)}: {rest}"
        return problem


PLACE = re.compile(r"(?P<outer>vary\.|model\.|cost\.)?(?P<name>\w+)(?P<inner>\.\w+)?(?:\[\d+\])?: ")
"""Where a problem is: `lr`, `vary.lr[1]`, `optimizer_options.rho`."""


def question_of(
    what: str, settings: Mapping[str, Any], vary: Sequence[str] = (), **fields: Any
) -> Asked:
    """The question that a workload or a study and options ask; options override a study's file.

    `fields` are those of Question; None means that a field was not given.
    """
    base, where = _base_question(what)
    varied = varied_of(vary)
    given = {name: value for name, value in fields.items() if value is not None}
    levels, single = dict(base.vary), dict(base.settings)
    for name, text in settings.items():
        is_list = isinstance(text, str) and "," in text
        if is_list and not setting_of(TrainSpec, name).holds_commas:
            option, parts = option_of(TrainSpec, name), [p.strip() for p in text.split(",")]
            if name in varied:
                raise SpecError([f"{option} and --vary {name}: give its levels once"])
            if not all(parts):
                rule = "has an empty level; write levels with one comma between, as in 1,16"
                raise SpecError([f"{option}: got {text!r}, which {rule}"])
            levels[name] = tuple(map(scalar_of, parts))
            single.pop(name, None)
        else:
            single[name] = text
            levels.pop(name, None)
    levels |= varied
    # An option overrides what a file says of the same setting, and what is only about what it said.
    dropped = {name for name in varied if name not in settings}
    if "schedule" in settings:
        dropped |= {name for name in STEP_SCHEDULE_ONLY if name not in settings}
    single = {name: value for name, value in single.items() if name not in dropped}
    merged = {**base.model_dump(exclude_unset=True), "settings": single, "vary": levels, **given}
    asked = Asked(
        question=base,
        where=where,
        typed=frozenset({*settings, *given}),
        measured=frozenset(),
        varied=frozenset(varied),
        overridden=_overridden(base, {**single, **levels, **given}),
    )
    with asked.naming_options():
        return replace(asked, question=checked_question(merged, where))


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


def _overridden(base: Question, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a study says of settings, factors and its own fields, where something else is asked for."""
    written = base.model_dump(mode="json", exclude={"settings", "vary"}, exclude_unset=True)
    own: dict[str, Any] = {**base.settings, **base.vary}
    own |= {name: value for name, value in written.items() if name in asked}
    return {
        name: value
        for name, value in own.items()
        if name not in asked or not _same(asked[name], value)
    }


def _same(typed: Any, value: Any) -> bool:
    """Whether an option says what a file says: an option comes as text."""
    if not isinstance(typed, str):
        return bool(typed == value)
    try:
        return bool((pairs_of(typed) if "=" in typed else scalar_of(typed)) == value)
    except ValueError:
        return False


def seconds_of(text: str | None, option: str = "--budget") -> float | None:
    """`90s`, `10m`, `10min` or `1.5h` in seconds; None where the option was not given."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|m|min|h)?", text.strip())
    if not match or not float(match[1]):
        raise SpecError([f"{option}: got {text!r}, must be a time, as in 90s, 10m or 2h"])
    if not match[2]:
        units = f"{match[1]}s, {match[1]}m or {match[1]}h"
        raise SpecError([f"{option}: got {text!r}, which has no unit; write {units}"])
    return float(match[1]) * SECONDS_PER_UNIT[match[2][0]]


def placed(on: str, slurm: str | None) -> str:
    """Where trials run, with what sbatch is told."""
    if slurm and on != "slurm":
        raise SpecError([f"--slurm: is for --on slurm, but --on is {on}; leave it out"])
    return f"slurm:{slurm}" if slurm else on


def requested_seeds(seed: str | None, seeds: int | None) -> int | tuple[int, ...] | None:
    """The seeds of --seed or the number of --seeds; None where neither was given."""
    if seed is not None and seeds is not None:
        raise SpecError(["--seed and --seeds: give one of them"])
    if seed is None:
        return seeds
    numbers = [part.strip() for part in seed.split(",")]
    if not all(number.isdecimal() for number in numbers):
        rule = "must be whole numbers from 0, as in 1 or 1,2,3"
        raise SpecError([f"--seed: got {seed!r}, {rule}"])
    chosen = tuple(map(int, numbers))
    if twice := sorted(one for one in set(chosen) if chosen.count(one) > 1):
        raise SpecError([f"--seed: got {twice[0]} twice, seeds must differ"])
    return chosen


def _base_question(what: str) -> tuple[Question, str]:
    """Before any flags; the built-in study, the study file, or the workload alone."""
    if what in study_names():
        return builtin_study(what), what
    if what.endswith(".toml"):
        path = Path(what).expanduser()
        return _beside(read_question(path), path), what
    if what not in BUILTIN and ":" not in what:
        near = nearest(what, [*BUILTIN, *study_names()])
        if near is not None and near not in BUILTIN:
            raise SpecError([f"{what}: no such workload or study; did you mean {near}?"])
    return Question(workload=with_name(what)), "settings"


def _beside(question: Question, path: Path) -> Question:
    """The question of a study file: a workload's file lies beside it, or else in the current folder."""
    written = question.workload
    place, name = (written, "") if written.endswith(".py") else written.rpartition(":")[::2]
    near = path.parent / place
    if place.endswith(".py") and not Path(place).is_absolute() and near.is_file():
        written = f"{near}:{name}"
    return question.model_copy(update={"workload": with_name(written, str(path))})
