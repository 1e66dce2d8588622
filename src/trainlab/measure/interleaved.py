"""Rounds: processes take turns, one running at a time, until their ratios are known well or time is up.

What hits the machine for longer than a round (its clock, other programs, time stolen by a host) hits all
turns of the round, so that the ratio of two of them hardly depends on it.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from trainlab.record.cost_record import LoadRecord, TurnRecord
from trainlab.spec.study import CostSpec

MIN_ROUNDS = 6
"""A median of fewer has no 95% interval."""
TIGHT_SHARE = 0.25
"""Of the half-width that is asked for over processes: a ratio known as well as that within one process
hardly gains by further rounds, since processes differ by more."""


class TurnTaker(Protocol):
    """Something that runs some steps when it is its turn."""

    def turn(self, number: int) -> float | None:
        """Runs a turn in that round; its median step in ms, or None where it cannot go on."""


class Rounds:
    """The rounds of one bench; each in an order of its own, so that no one always runs after the same."""

    def __init__(self, spec: CostSpec, name: str = "") -> None:
        self._within, self._turns_s = TIGHT_SHARE * spec.ratio_within, spec.turns_s
        self._order = random.Random(name)  # noqa: S311  an order, not a secret
        self._number = 0

    def run(
        self,
        takers: Sequence[TurnTaker],
        report: Callable[[float], None] = lambda share: None,
        most_s: float = math.inf,
    ) -> Literal["tight", "budget"]:
        """Rounds until the ratio of every taker to the first is tight, or `turns_s` for each is spent, or
        `most_s` for all; MIN_ROUNDS at least. A taker that cannot go on is left out; the next one stands
        for the first. `report` gets the share of the time spent."""
        logs: dict[TurnTaker, dict[int, float]] = {taker: {} for taker in takers}
        start_s, budget_s = time.monotonic(), min(self._turns_s * len(takers), most_s)
        done = 0
        while logs and (done < MIN_ROUNDS or time.monotonic() - start_s < budget_s):
            self._number += 1
            done += 1
            for taker in self._order.sample(list(logs), len(logs)):
                median_ms = taker.turn(self._number)
                if median_ms is None:
                    del logs[taker]
                else:
                    logs[taker][self._number] = math.log(median_ms)
            spent_s = time.monotonic() - start_s
            report(min(done / MIN_ROUNDS, spent_s / budget_s, 1.0) if budget_s > 0 else 1.0)
            if done >= MIN_ROUNDS and _are_known(logs, self._within):
                return "tight"
        return "budget"


def _are_known(logs: dict[TurnTaker, dict[int, float]], within: float) -> bool:
    """Whether the ratio of every taker to the first has an interval of no more than this share either
    way."""
    from trainlab.stats.means import median_interval

    if not logs:
        return False
    base, *others = logs.values()
    ratios = [[taken[number] - base[number] for number in taken] for taken in others]
    for values in ratios or [list(base.values())]:
        _, low, high = median_interval(values)
        if high - low > 2 * within:
            return False
    return True


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
    return statistics.median(steps_ms[-WINDOW_STEPS:])


def by_phase(steps_ms: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Marked steps as a series for each phase; 0 in those that had none."""
    names = dict.fromkeys(name for step in steps_ms for name in step)
    return {name: [step.get(name, 0.0) for step in steps_ms] for name in names}


def load_of(turns: Sequence[TurnRecord]) -> LoadRecord:
    """What else the machine did, over all turns."""
    others = statistics.fmean(turn.others_cores for turn in turns)
    stolen = statistics.fmean(turn.stolen_cores for turn in turns)
    return LoadRecord(others_cores=others, stolen_cores=stolen)
