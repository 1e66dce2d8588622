"""When a limit is confirmed, refuted or left open, on made-up times."""

import math
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fabricate import made_cost, made_turns
from trainlab.analysis.diagnosis import (
    LARGER_GAINS,
    MIN_GAIN,
    Timed,
    cell_of,
    compared,
    growth_compared,
    processes_needed,
    samples_per_update,
    verdict_of,
)
from trainlab.record.cost_record import CostRecord

NUM_ROUNDS = 6


def cost(turns_ms: list[float], bench: str, size: int = 64, **changes: Any) -> CostRecord:
    made = made_cost("train", size, 1.0, {}, bench)
    turns = made_turns(len(turns_ms))
    own = {"turns": turns, "step_ms": turns_ms, "num_samples": size, "steps_per_epoch": 1}
    return made.model_copy(update={**own, **changes})


def benches(
    draw: np.random.Generator, ratios: Mapping[str, float], process_noise: float, num: int = 3
) -> list[Timed]:
    """The base, the base again and cells that take so many times as long, with the luck of each process
    and of each turn, and a machine that drifts from round to round."""
    timed = []
    for number in range(num):
        drift = np.exp(draw.normal(0, 0.1, NUM_ROUNDS))
        for cell, again in [("base", False), ("base", True), *((name, False) for name in ratios)]:
            luck = math.exp(draw.normal(0, process_noise))
            turns = 10 * ratios.get(cell, 1.0) * luck * drift * np.exp(draw.normal(0, 0.03, 6))
            timed.append(Timed(cell, again, cost(list(turns), str(number))))
    return timed


def verdicts(timed: list[Timed], gain: float = 0.1) -> dict[str, str]:
    return {cell: verdict_of(found, gain) for cell, found in compared(timed, "base").items()}


def test_large_gains_are_confirmed_small_ones_refuted_and_noise_leaves_it_open() -> None:
    ratios = {"faster": 0.4, "same": 1.0, "slower": 1.3}
    found = verdicts(benches(np.random.default_rng(1), ratios, 0.01))
    assert found == {"faster": "confirmed", "same": "refuted", "slower": "refuted"}
    found = verdicts(benches(np.random.default_rng(2), {"a little": 0.95}, 0.002))
    assert found == {"a little": "refuted"}
    found = verdicts(benches(np.random.default_rng(3), {"maybe": 0.9}, 0.15))
    assert found == {"maybe": "cannot tell"}
    # About so many decide that would bring the interval to the nearer of what decides.
    (one,) = compared(benches(np.random.default_rng(3), {"maybe": 0.9}, 0.15), "base").values()
    interval, value = one.ratio.interval, one.ratio.value
    assert interval is not None
    needed = processes_needed(one, 0.1) or 0
    decides = 0.97 if value <= 0.9 else 0.9
    width, distance = math.log(interval.high / value), abs(math.log(value / decides))
    assert width / math.sqrt(needed / one.n) <= distance < width / math.sqrt((needed - 1) / one.n)
    # One process decides nothing.
    found = verdicts(benches(np.random.default_rng(1), {"faster": 0.1}, 0.01, num=1))
    assert found == {"faster": "cannot tell"}


@pytest.mark.slow
@pytest.mark.parametrize("process_noise", [0.02, 0.08])
def test_healthy_scripts_get_no_false_confirmation(process_noise: float) -> None:
    """Four changes without effect: at most 5% of diagnoses confirm any, however noisy processes are."""
    draw = np.random.default_rng(4)
    names = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}
    num, false = 120, 0
    for _ in range(num):
        found = compared(benches(draw, names, process_noise), "base", {"c", "d"})
        false += any(verdict_of(one, 0.1) == "confirmed" for one in found.values())
    assert false / num <= 0.05


def test_rare_long_turns_count_by_the_mean() -> None:
    """A test in every sixth turn: the usual turn would hide what it takes."""
    timed = []
    for number, bench in enumerate("012"):
        tested = [10.0, 10.0, 10.0, 10.0, 10.0, 70.0 + number]
        timed.append(Timed("base", False, cost(tested, bench)))
        timed.append(Timed("base", True, cost(tested[::-1], bench)))
        timed.append(Timed("evaluation=1", False, cost([10.0] * 6, bench)))
    assert compared(timed, "base")["evaluation=1"].ratio.value == pytest.approx(1.0)
    found = compared(timed, "base", {"evaluation=1"})["evaluation=1"]
    mean_ms = statistics.fmean([20, 20 + 1 / 6, 20 + 1 / 3])
    assert found.ratio.value == pytest.approx(10 / mean_ms, rel=0.01)
    assert verdict_of(found, 0.1) == "confirmed"


def test_times_are_per_sample_where_batches_differ() -> None:
    timed = []
    for bench in "012":
        for again in (False, True):
            timed.append(Timed("base", again, cost([10.0] * 6, bench, size=2)))
        timed.append(Timed("batch_size=16", False, cost([20.0] * 6, bench, size=16)))
    found = compared(timed, "base")["batch_size=16"]
    assert found.ratio.value == pytest.approx(0.25)
    assert LARGER_GAINS["batch_size"] > MIN_GAIN
    # A smaller last batch counts.
    record = cost([1.0], "1", num_samples=400, steps_per_epoch=7)
    assert samples_per_update(record) == pytest.approx(400 / 7)


def test_a_container_is_confirmed_where_most_of_the_growth_goes_with_it() -> None:
    def leaking(growth: float, bench: str, cell: str) -> Timed:
        memory = [(step, int(1e8 + growth * step)) for step in range(10, 60, 10)]
        return Timed(cell, False, cost([10.0] * 5, bench, memory=memory))

    timed = [
        leaking(growth * (1 + 0.01 * number), str(number), cell)
        for number in range(3)
        for cell, growth in [("base", 2e6), (cell_of("drop=a"), 1e4), (cell_of("drop=b"), 1.9e6)]
    ]
    found = growth_compared(timed, "base", "drop=a", 2)
    assert (found.verdict, found.processes) == ("confirmed", 3)
    assert found.growth_bytes == pytest.approx((2.02e6, 1.01e4))
    assert growth_compared(timed, "base", "drop=b", 2).verdict == "refuted"
    gone = growth_compared(timed, "base", "drop=c", 2)
    assert (gone.verdict, gone.reason) == ("not tried", "few_looks")
