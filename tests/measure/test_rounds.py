"""Rounds end when ratios are known, and go on for longer where turns vary much."""

import math
import random

import pytest

from trainlab.measure import interleaved as module
from trainlab.measure.interleaved import PATIENCE, Rounds
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


def spent(noise: float, monkeypatch: pytest.MonkeyPatch) -> tuple[float, str]:
    """The time for each of three takers over the budget, and why it ended."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    takers = [Taker(clock, noise, seed) for seed in range(3)]
    spec = CostSpec(budget_s=1.0, tight=0.005, ratio_within=0.05)
    stopped = Rounds(spec, "test").run(takers)
    assert len({taker.num_turns for taker in takers}) == 1
    return clock.now_s / 3, stopped


def test_quiet_turns_end_early_and_those_that_vary_much_go_on_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for noise, least_s, most_s, ended in (
        (0.001, 0.0, 0.8, {"tight"}),
        (0.03, 0.7, 1.3, {"budget"}),
        (0.12, 1.2, PATIENCE + 2 * TURN_S, {"tight", "budget"}),
        (1.0, PATIENCE - 3 * TURN_S, PATIENCE + 3 * TURN_S, {"budget"}),
    ):
        spent_s, why = spent(noise, monkeypatch)
        assert least_s < spent_s <= most_s, noise
        assert why in ended, noise
