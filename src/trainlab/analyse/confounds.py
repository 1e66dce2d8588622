"""What differs between two trials or two runs beyond the factor that was meant to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainlab.record.environment import Environment
from trainlab.record.trial import TrialRecord
from trainlab.spec import TrainSpec
from trainlab.spec.base import setting_of

BREAKS_POOLING = ("torch", "numpy", "trainlab")
"""Packages whose version changes results: runs that differ in one are compared, never pooled."""


Plain = bool | int | float | str | None


@dataclass(frozen=True)
class Confound:
    """One thing that differs and was not asked about."""

    what: str
    first: Plain
    second: Plain

    def __str__(self) -> str:
        first, second = ("not set" if v is None else v for v in (self.first, self.second))
        return f"{self.what}: {first} against {second}"


def trial_confounds(
    first: TrialRecord, second: TrialRecord, factors: frozenset[str]
) -> tuple[Confound, ...]:
    """Of two trials that should differ by these factors only."""
    expected = set(factors)
    for factor in factors:
        expected |= set(setting_of(TrainSpec, factor.partition(".")[0]).resolves_to)
    found = _differences(first.resolved, second.resolved, expected)
    asked = {name.partition(".")[0] for name in factors}
    # What a setting became counts, where that is known: `auto` and `cpu` may be the same device.
    told = asked | expected | first.resolved.keys() | second.resolved.keys()
    settings = _differences(first.settings, second.settings, told)
    data = _differences(_data(first), _data(second), set())
    return (*found, *settings, *data)


def run_confounds(first: Environment, second: Environment) -> tuple[Confound, ...]:
    """Of the machines and software of two runs."""
    a, b = first.model_dump(mode="json"), second.model_dump(mode="json")
    flat = [_flat(side) for side in (a, b)]
    return tuple(_differences(flat[0], flat[1], {"format"}))


def pooling_problems(first: Environment, second: Environment) -> tuple[str, ...]:
    """Why trials of two runs must not be put into one mean; empty where nothing speaks against it."""
    problems = [
        f"{name} {first.packages.get(name)} against {second.packages.get(name)}"
        for name in BREAKS_POOLING
        if first.packages.get(name) != second.packages.get(name)
    ]
    if (first.cpu, first.gpus) != (second.cpu, second.gpus):
        problems.append(f"another machine: {first.cpu} against {second.cpu}")
    codes = [_code(one) for one in (first, second)]
    if codes[0] != codes[1]:
        problems.append(f"other code: {codes[0]} against {codes[1]}")
    return tuple(problems)


def _code(environment: Environment) -> str:
    """What git says of the folder a run was started in."""
    if environment.git_commit is None:
        return "not in git"
    changed = " with changes" if environment.git_dirty else ""
    return f"git commit {environment.git_commit[:10]}{changed}"


def _differences(
    first: Mapping[str, Any], second: Mapping[str, Any], expected: set[str]
) -> list[Confound]:
    names = [*first, *(name for name in second if name not in first)]
    return [
        Confound(name, _plain(first.get(name)), _plain(second.get(name)))
        for name in names
        if name not in expected and first.get(name) != second.get(name)
    ]


def _data(trial: TrialRecord) -> dict[str, Any]:
    if trial.data is None:
        return {}
    told = trial.data.model_dump(include={"name", "num_train", "num_test", "is_subset"})
    return {f"data.{name}": value for name, value in told.items()}


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": one for inner, one in value.items()}
        else:
            flat[name] = value
    return flat


def _plain(value: Any) -> Plain:
    """A list or a table as text: a confound is a value that can be compared and counted."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
