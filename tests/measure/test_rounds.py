"""Rounds end when ratios are known, and go on for longer where turns vary much."""

import math
import random

import pytest

from trainlab.measure import interleaved as module
from trainlab.measure.interleaved import MIN_ROUNDS, Rounds
from trainlab.spec import CostSpec

TURN_S = 0.05


class Clock:
    """Time that passes only while someone has a turn."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class Taker:
    """A turn of 10 ms steps, with noise."""

    def __init__(self, clock: Clock, noise: float, seed: int) -> None:
        self._clock, self._noise, self._draw = clock, noise, random.Random(seed)
        self.num_turns = 0

    def turn(self, number: int) -> float:
        self._clock.now_s += TURN_S
        self.num_turns += 1
        return 10 * math.exp(self._draw.gauss(0, self._noise))


def spent(noise: float, monkeypatch: pytest.MonkeyPatch, most_s: float = math.inf) -> float:
    """The time for each of three takers."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    takers = [Taker(clock, noise, seed) for seed in range(3)]
    Rounds(CostSpec(turns_s=2.0, ratio_within=0.05), "test").run(takers, most_s=most_s)
    assert len({taker.num_turns for taker in takers}) == 1
    return clock.now_s / 3


def test_rounds_end_once_every_ratio_is_narrow_or_the_time_of_a_process_is_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fewest_s = MIN_ROUNDS * TURN_S
    for noise, least_s, most_s in (
        (0.001, fewest_s, fewest_s),
        (0.02, 1.5 * fewest_s, 2.0),
        (0.5, 2.0, 2.0 + 2 * TURN_S),
    ):
        spent_s = spent(noise, monkeypatch)
        assert least_s - 1e-9 <= spent_s <= most_s + 1e-9, noise


def test_where_time_is_up_a_few_rounds_are_run_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spent_s = spent(0.5, monkeypatch, most_s=-1.0)
    assert spent_s == pytest.approx(MIN_ROUNDS * TURN_S)
