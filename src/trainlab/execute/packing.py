"""Which learn trials one worker trains together: those whose steps are the same program.

They may differ in seed, optimizer and its settings, schedule, gradient resets, and in parameters of the
model that change no shape. Different batch sizes are different programs.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from trainlab.machine.device import pick_device
from trainlab.plan import Group
from trainlab.train.engines import engines_for

FREE = frozenset(
    {
        "optimizer",
        "lr",
        "momentum",
        "weight_decay",
        "optimizer_options",
        "schedule",
        "lr_gamma",
        "lr_step_epochs",
        "zero_grad",
        "seed_parts",
        "model",
    }
)
"""Settings that trials of one program may differ in."""
MOST_TOGETHER = 256
"""More gain nothing."""


def packed_here(groups: Sequence[Group]) -> list[Group]:
    """Trials of one program, as this machine would run it, put into one group, between those that must be
    alone."""
    found: list[Group] = []
    for is_alone, consecutive in groupby(groups, lambda group: group.is_alone):
        some = list(consecutive)
        found += some if is_alone else packed(some, _runs_together)
    return found


def in_turn(first: Group, waiting: Sequence[Group], number: int) -> Group:
    """A group and up to so many others that wait, for one process to run one after the other; unless an
    engine would take them for trials of one program."""
    if number < 2 or _runs_together(first):
        return first
    alike = [group for group in waiting if _runs_like(group) == _runs_like(first)]
    trials = tuple(trial for group in [first, *alike[: number - 1]] for trial in group.trials)
    return Group(trials=trials, is_alone=False)


def _runs_like(group: Group) -> tuple[Any, ...]:
    """What a process must be for it, and which engines are tried."""
    settings = group.trials[0].settings
    asked = settings.engine, settings.optimizer_code, settings.device, settings.threads
    return group.is_alone, settings.processes, *asked


def _runs_together(group: Group) -> bool:
    """Whether an engine that takes many trials is the first to be tried for it."""
    settings = group.trials[0].settings
    return engines_for(settings, pick_device(settings.device), has_others=True)[0].takes_many


def packed(groups: Sequence[Group], runs_together: Callable[[Group], bool]) -> list[Group]:
    """Groups that may run beside each other, those of one program put into one; in the order in which each
    program first comes up."""
    packs: dict[Any, list[Group]] = {}
    for number, group in enumerate(groups):
        key = _program_of(group) if runs_together(group) else number
        packs.setdefault(key, []).append(group)
    merged: list[Group] = []
    for some in packs.values():
        trials = [trial for group in some for trial in group.trials]
        for first in range(0, len(trials), MOST_TOGETHER):
            part = tuple(trials[first : first + MOST_TOGETHER])
            merged.append(Group(trials=part, is_alone=False))
    return merged


def _program_of(group: Group) -> tuple[Any, ...]:
    trial = group.trials[0]
    shared = trial.settings.model_dump(mode="json", exclude=set(FREE))
    return trial.workload, *(str(value) for value in shared.values())
