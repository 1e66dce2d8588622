"""When a limit is confirmed, refuted or left open, on made-up times."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from benchmarks.diagnosis import share_of

from fabricate import made_cost, made_turns
from trainlab.analysis.diagnosis import (
    LARGER_GAINS,
    MIN_GAIN,
    Hypothesis,
    Timed,
    cell_of,
    figures_of,
    samples_per_update,
    tried_rows,
)
from trainlab.record.cost_record import CostRecord
from trainlab.record.script_record import LimitName, TriedRow
from trainlab.stats.cost_ratio import effects

MOST = 5
"""Processes of each change."""
NUM_ROUNDS = 6


def cost(turns_ms: list[float], bench: str, size: int = 64, **changes: Any) -> CostRecord:
    made = made_cost("train", size, 1.0, {}, bench)
    turns = made_turns(len(turns_ms))
    own = {"turns": turns, "step_ms": turns_ms, "num_samples": size, "steps_per_epoch": 1}
    return made.model_copy(update={**own, **changes})


def bench_of(
    draw: np.random.Generator, name: str, ratios: Mapping[str, float], process_noise: float
) -> list[Timed]:
    """The base, the base again and changes that take so many times as long, with the luck of each process
    and of each turn, and a machine that drifts from round to round."""
    timed = []
    drift = np.exp(draw.normal(0, 0.1, NUM_ROUNDS))
    for change in ["", "", *ratios]:
        luck = math.exp(draw.normal(0, process_noise))
        turns = 10 * ratios.get(change, 1.0) * luck * drift * np.exp(draw.normal(0, 0.03, 6))
        cell = cell_of(change) if change else "base"
        timed.append(Timed(cell, cost(list(turns), name)))
    return timed


def rows_of(
    timed: list[Timed], changes: Sequence[str], limit: LimitName = "data", *rare: LimitName
) -> dict[str, TriedRow]:
    guessed = [Hypothesis(limit=limit, changes=(change,)) for change in changes]
    return tried_rows(figures_of(timed), guessed, rare, len(changes), MOST)


def diagnosed(
    draw: np.random.Generator, ratios: Mapping[str, float], process_noise: float
) -> dict[str, TriedRow]:
    """Bench by bench, as a diagnosis goes on: two changes that are open beside the base."""
    timed: list[Timed] = []
    rows: dict[str, TriedRow] = {}

    def is_open(change: str) -> bool:
        row = rows.get(change)
        return row is None or (row.verdict == "cannot tell" and row.processes < MOST)

    while still := [change for change in ratios if is_open(change)][:2]:
        some = {change: ratios[change] for change in still}
        timed += bench_of(draw, str(len(timed)), some, process_noise)
        rows = rows_of(timed, list(ratios))
    return rows


def test_large_gains_are_confirmed_small_ones_refuted_and_noise_leaves_it_open() -> None:
    ratios = {"fast": 0.4, "same": 1.0, "slow": 1.3}
    rows = diagnosed(np.random.default_rng(1), ratios, 0.01)
    verdicts = {change: row.verdict for change, row in rows.items()}
    assert verdicts == {"fast": "confirmed", "same": "refuted", "slow": "refuted"}
    assert rows["fast"].processes == 2  # the first look that can tell
    rows = diagnosed(np.random.default_rng(2), {"a little": 0.95}, 0.002)
    assert rows["a little"].verdict == "refuted"
    # About so many decide that would bring the interval to the nearer of what decides.
    one = diagnosed(np.random.default_rng(3), {"maybe": 0.9}, 0.15)["maybe"]
    assert (one.verdict, one.processes) == ("cannot tell", MOST)
    assert one.ratio is not None
    assert one.high is not None
    needed, decides = one.processes_needed or 0, 0.97 if one.ratio <= 0.9 else 0.9
    width, distance = math.log(one.high / one.ratio), abs(math.log(one.ratio / decides))
    assert width / math.sqrt(needed / MOST) <= distance < width / math.sqrt((needed - 1) / MOST)
    # One process decides nothing.
    timed = bench_of(np.random.default_rng(1), "1", {"fast": 0.1}, 0.01)
    assert rows_of(timed, ["fast"])["fast"].verdict == "cannot tell"


def test_what_is_decided_stays_so_whatever_later_benches_show() -> None:
    draw = np.random.default_rng(5)
    timed = [one for name in "12" for one in bench_of(draw, name, {"fast": 0.4}, 0.01)]
    before = rows_of(timed, ["fast"])
    assert before["fast"].verdict == "confirmed"
    timed += bench_of(draw, "3", {"fast": 1.0}, 0.01)
    assert rows_of(timed, ["fast"]) == before


def test_the_interval_of_an_effect_knows_the_luck_of_all_processes() -> None:
    """By hand: the base four times and a change twice, in two benches that lie 10 apart."""
    first = [("base", "1", 1.0), ("base", "1", -1.0), ("change", "1", 3.0)]
    figures = first + [(cell, "2", value + 10) for cell, _, value in first]
    ((value, half, n),) = effects(figures, "base", 0.05).values()
    # Squares of 4, three degrees of freedom: t is 3.182, and the error sqrt(4/3 * (1/4 + 1/2)) is 1.
    assert (value, n) == (pytest.approx(3.0), 2)
    assert half == pytest.approx(3.182, rel=1e-3)
    assert effects(first[2:], "base", 0.05) == {}


def test_healthy_scripts_get_no_false_confirmation() -> None:
    """At most 5% of diagnoses confirm any of four changes without effect, over all looks; `--simulated` of
    the benchmark shows more kinds of noise."""
    assert share_of("confirmed", dict.fromkeys("abcd", 1.0), 0.1, 50) <= 0.05


def test_a_script_that_could_be_faster_by_half_is_nearly_always_told_so() -> None:
    assert share_of("confirmed", {"fast": 0.5, "same": 1.0}, 0.05, 30, "fast") >= 0.9


def test_rare_long_turns_count_by_the_mean() -> None:
    """A test in every sixth turn: the usual turn would hide what it takes."""
    timed = []
    for number, bench in enumerate("012"):
        tested = [10.0, 10.0, 10.0, 10.0, 10.0, 70.0 + number]
        timed.append(Timed("base", cost(tested, bench)))
        timed.append(Timed("base", cost(tested[::-1], bench)))
        timed.append(Timed(cell_of("evaluation=1"), cost([10.0] * 6, bench)))
    usual = rows_of(timed, ["evaluation=1"], "evaluation")["evaluation=1"]
    assert usual.ratio == pytest.approx(1.0)
    found = rows_of(timed, ["evaluation=1"], "evaluation", "evaluation")["evaluation=1"]
    mean_ms = statistics.fmean([20, 20 + 1 / 6, 20 + 1 / 3])
    assert found.ratio == pytest.approx(10 / mean_ms, rel=0.01)
    assert found.verdict == "confirmed"


def test_times_are_per_sample_where_batches_differ() -> None:
    timed = []
    for bench in "012":
        for _ in range(2):
            timed.append(Timed("base", cost([10.0] * 6, bench, size=2)))
        larger = cost([20.0] * 6, bench, size=16)
        timed.append(Timed(cell_of("batch_size=16"), larger))
    found = rows_of(timed, ["batch_size=16"], "batch_size")["batch_size=16"]
    assert found.ratio == pytest.approx(0.25)
    assert LARGER_GAINS["batch_size"] > MIN_GAIN
    # A smaller last batch counts.
    record = cost([1.0], "1", num_samples=400, steps_per_epoch=7)
    assert samples_per_update(record) == pytest.approx(400 / 7)


def test_a_container_is_confirmed_where_most_of_the_growth_goes_with_it() -> None:
    def leaking(growth: float, bench: str, cell: str) -> Timed:
        memory = [(step, int(1e8 + growth * step)) for step in range(10, 60, 10)]
        return Timed(cell, cost([10.0] * 5, bench, memory=memory))

    timed = [
        leaking(growth * (1 + 0.01 * number), str(number), cell)
        for number in range(3)
        for cell, growth in [("base", 2e6), (cell_of("drop=a"), 1e4), (cell_of("drop=b"), 1.9e6)]
    ]
    rows = rows_of(timed, ["drop=a", "drop=b", "drop=c"], "memory")
    assert rows.keys() == {"drop=a", "drop=b"}
    assert rows["drop=a"].verdict == "confirmed"
    assert rows["drop=a"].growth_bytes == pytest.approx((2.02e6, 1.01e4), rel=0.02)
    assert rows["drop=b"].verdict == "refuted"
