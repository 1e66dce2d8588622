"""Settings that contradict each other: what was asked for and would have no effect, or not the one meant.

Each rule looks at what was asked, not at defaults, and says what to change.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from trainlab.spec.cell import short_name
from trainlab.spec.settings import TrainSpec, pairs_of

STEP_SCHEDULE_ONLY = ("lr_gamma", "lr_step_epochs")


def set_and_varied(settings: Mapping[str, Any], factors: Collection[str]) -> Iterator[str]:
    """In a grid every cell takes a level of every factor: the value of the base would go unused.

    `factors` by their full names, as `lr` or `model.hidden`.
    """
    for factor in factors:
        outer, dot, inner = factor.partition(".")
        asked = settings.get(outer)
        value = pairs_of(asked or {}).get(inner) if dot else asked
        if value is not None:
            yield (
                f"{short_name(factor)}: got {value!r}, but it is varied too, and in a grid "
                "every setting takes one of its levels; leave one of the two out"
            )


def without_effect(asked: Collection[str], cells: Sequence[TrainSpec]) -> Iterator[str]:
    """Settings that were asked for and change nothing in any cell."""
    schedules = list(dict.fromkeys(cell.schedule for cell in cells))
    for name in () if "step" in schedules else STEP_SCHEDULE_ONLY:
        if name in asked:
            yield (
                f"{name}: is for the step schedule, but the schedule is {' or '.join(schedules)}; "
                "add schedule step or leave it out"
            )
    if "epochs" in asked and all(cell.max_steps is not None for cell in cells):
        yield "epochs: has no effect beside max_steps, which says how long to train; leave one out"
