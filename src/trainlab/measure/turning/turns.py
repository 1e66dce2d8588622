"""How long a turn is, and when steps are warm: the same for whatever is timed in turns."""

import math
import statistics
from collections.abc import Mapping, Sequence

from trainlab.machine.load import load_record
from trainlab.record.cost_record import LoadRecord, TurnRecord

TURN_MS = 30.0
"""Bare steps of a turn: short, so that the turns of a round meet the same machine."""
MIN_TURN_STEPS = 2
LEAD_MS = 10.0
"""At least so much of a turn, and one step, is set aside: what ran before has filled the caches, and
threads of its process may still spin."""
MARKED_SHARE = 1 / 3
"""Marked steps of a turn that has some, for each bare one."""
WINDOW_STEPS = 3
WINDOW_MS = 30.0
"""Warm-up steps are looked at in windows of at least so many and so long."""
DRIFT = 0.03
"""Steps are warm once the median of a window is no lower than that of the one before, less this share."""
WARMUP_S = 3.0
"""Steps that still drift after so long are taken as they are."""


def turn_steps(step_ms: float) -> tuple[int, int]:
    """Bare steps of a turn, and steps set aside before them."""
    return max(MIN_TURN_STEPS, round(TURN_MS / step_ms)), max(1, math.ceil(LEAD_MS / step_ms))


def is_warm(steps_ms: Sequence[float]) -> bool:
    """Whether steps no longer get faster."""
    ms = steps_ms
    size = max(WINDOW_STEPS, math.ceil(WINDOW_MS / statistics.median(ms))) if ms else 1
    if len(ms) < 2 * size:
        return False
    before, last = ms[-2 * size : -size], ms[-size:]
    return statistics.median(last) >= (1 - DRIFT) * statistics.median(before)


def warm_ms(steps_ms: Sequence[float]) -> float:
    """A step as the warm-up left it."""
    return statistics.median(steps_ms[-WINDOW_STEPS:])


def by_phase(steps_ms: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Marked steps as a series for each phase; 0 in those that had none."""
    names = dict.fromkeys(name for step in steps_ms for name in step)
    return {name: [step.get(name, 0.0) for step in steps_ms] for name in names}


def load_of(turns: Sequence[TurnRecord], load_before: float | None) -> LoadRecord:
    """What else the machine did, over all turns."""
    others = statistics.fmean(turn.others_cores for turn in turns)
    stolen = statistics.fmean(turn.stolen_cores for turn in turns)
    return load_record(others, stolen, load_before)
