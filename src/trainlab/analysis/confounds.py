"""What differs between two trials or two runs beyond the factor that was meant to."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from trainlab.record.study_record import Environment
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import TrainSpec
from trainlab.spec.base import setting_of
from trainlab.spec.settings import Scalar

COMPANY = frozenset({"trials_together"})
"""With how many others a trial ran as one program: it computes the same with any, and has its share of the
time."""
UPDATES, OF_SCRIPT = "updates", "script."
CALLED = {
    "accumulate": ("accum",),
    "batch_size": ("batch",),
    "device": ("device", "accel", "cuda", "cpu", "gpu"),
    "drop_last": ("drop",),
    "dtype": ("type", "precision", "amp", "half"),
    "lr": ("lr", "rate"),
    "model": ("model", "arch", "net"),
    "optimizer": ("opt",),
    "order": ("shuffle", "order", "sampler"),
    "passes": ("epoch", "pass"),
    "pinned": ("pin",),
    "threads": ("thread",),
    "train_samples": ("sample", "size", "data"),
    "workers": ("worker",),
}
"""What the arguments of scripts are called that set what is seen under these names."""
BREAKS_POOLING = ("torch", "numpy", "trainlab")
"""Packages whose version changes results: runs that differ in one are compared, never pooled."""


@dataclass(frozen=True)
class Confound:
    """Something that differs without being one of the factors compared."""

    what: str
    first: Scalar | None
    second: Scalar | None

    def __str__(self) -> str:
        first, second = ("not set" if v is None else v for v in (self.first, self.second))
        return f"{self.what}: {first} against {second}"


def trial_confounds(
    first: TrialRecord, second: TrialRecord, factors: frozenset[str]
) -> tuple[Confound, ...]:
    """Of two trials that should differ by these factors only."""
    varied = {factor.partition(".")[0] for factor in factors}
    expected = COMPANY.union(factors, *(setting_of(TrainSpec, name).resolves_to for name in varied))
    # What a setting became counts, where that is known: `auto` and `cpu` may be the same device.
    ignored = varied | expected | first.resolved.keys() | second.resolved.keys()
    seen = _differences(first.resolved, second.resolved, expected)
    return (
        *(one for one in seen if not _follows(one, first, second, factors)),
        *_differences(first.settings, second.settings, ignored),
        *_differences(_data(first), _data(second), expected),
    )


def _follows(
    confound: Confound, first: TrialRecord, second: TrialRecord, factors: frozenset[str]
) -> bool:
    """Whether what a script was seen to use is what its varied argument says, or follows from it: as many
    passes over the data are fewer updates of larger batches."""
    if confound.what == UPDATES:
        a, b = first.resolved, second.resolved
        return a.get("passes") != b.get("passes") or a.get("batch_size") != b.get("batch_size")
    seen = confound.first, confound.second
    for factor in factors:
        name = factor.removeprefix(OF_SCRIPT).casefold()
        is_about = any(hint in name for hint in CALLED.get(confound.what, ()))
        levels = first.levels.get(factor), second.levels.get(factor)
        if factor.startswith(OF_SCRIPT) and is_about and all(map(_is_level, levels, seen)):
            return True
    return False


def _is_level(level: Scalar | None, seen: Scalar | None) -> bool:
    """Whether it says what was seen, or may: None is an argument that was not given, whose default is not
    known; words and switches have no number to compare."""
    return level is None or isinstance(level, bool | str) or level == seen


def run_confounds(first: Environment, second: Environment) -> tuple[Confound, ...]:
    """Of the machines and software of two runs."""
    a, b = (_flat(environment.model_dump(mode="json")) for environment in (first, second))
    return tuple(_differences(a, b, {"format"}))


def pooling_problems(
    first: Environment, second: Environment, git_matters: bool = True
) -> tuple[str, ...]:
    """Why trials of two runs must not be put into one mean; empty where nothing speaks against it.

    `git_matters`: whether the code that ran may be that of the folder a run was started in.
    """
    problems = [
        f"{name} {first.packages.get(name)} against {second.packages.get(name)}"
        for name in BREAKS_POOLING
        if first.packages.get(name) != second.packages.get(name)
    ]
    if (first.cpu, first.gpus) != (second.cpu, second.gpus):
        problems.append(f"another machine: {first.cpu} against {second.cpu}")
    if git_matters and (code_a := _code(first)) != (code_b := _code(second)):
        problems.append(f"other code: {code_a} against {code_b}")
    return tuple(problems)


def _code(environment: Environment) -> str:
    """The git state of the folder a run was started in."""
    if environment.git_commit is None:
        return "not in git"
    changed = " with changes" if environment.git_dirty else ""
    return f"git commit {environment.git_commit[:10]}{changed}"


def _differences(
    first: Mapping[str, Any], second: Mapping[str, Any], expected: Set[str]
) -> list[Confound]:
    return [
        Confound(name, _scalar(first.get(name)), _scalar(second.get(name)))
        for name in dict.fromkeys([*first, *second])
        if name not in expected and first.get(name) != second.get(name)
    ]


def _data(trial: TrialRecord) -> dict[str, Any]:
    if trial.data is None:
        return {}
    facts = trial.data.model_dump(include={"name", "num_train", "num_test", "num_val", "is_subset"})
    return {f"data.{name}": value for name, value in facts.items()}


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        nested = isinstance(value, dict)
        flat |= {f"{name}.{inner}": v for inner, v in value.items()} if nested else {name: value}
    return flat


def _scalar(value: Any) -> Scalar | None:
    """A list or a table as text, so that confounds can be compared and hashed."""
    return value if value is None or isinstance(value, Scalar) else str(value)
