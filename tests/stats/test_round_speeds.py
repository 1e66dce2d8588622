import math
import random

import pytest

from trainlab.stats.cost_ratio import levels


def test_a_ratio_is_formed_within_rounds() -> None:
    # The machine is twice as slow from the third round on; the second takes 1.5 times as long.
    first = {1: 10.0, 2: 10.0, 3: 20.0, 4: 20.0, 5: 20.0}
    second = {number: 1.5 * time for number, time in first.items()}
    a, b = levels([first, second])
    assert b - a == pytest.approx(math.log(1.5))
    assert a == pytest.approx(math.log(20.0))


def test_a_disturbed_turn_moves_nothing() -> None:
    first = dict.fromkeys(range(1, 8), 10.0)
    second, third = dict.fromkeys(first, 20.0), dict.fromkeys(first, 30.0)
    second[3] = 500.0
    assert levels([first, second, third]) == pytest.approx([math.log(t) for t in (10, 20, 30)])


def test_turns_that_are_often_made_longer_are_still_told_by_the_others() -> None:
    draw = random.Random(4)

    def turns(base: float) -> dict[int, float]:
        """Four turns in ten meet something that makes them up to twice as long."""
        return {
            number: base
            * (1 + draw.random() * (draw.random() < 0.4))
            * math.exp(draw.gauss(0, 0.01))
            for number in range(25)
        }

    errors = [
        b - a - math.log(3)
        for a, b, *_ in (levels([turns(1.0), turns(3.0), turns(2.0)]) for _ in range(200))
    ]
    assert math.sqrt(sum(error**2 for error in errors) / len(errors)) < 0.03


def test_series_of_different_rounds_are_linked_by_the_one_that_has_all() -> None:
    machine = {number: 1.0 + 0.3 * number for number in range(1, 11)}
    early = {number: 2.0 * machine[number] for number in range(1, 6)}
    late = {number: 3.0 * machine[number] for number in range(6, 11)}
    a, b, c = levels([machine, early, late])
    assert (b - a, c - a) == pytest.approx((math.log(2), math.log(3)))


def test_one_that_shares_no_round_stands_by_itself() -> None:
    assert levels([{1: 2.0, 2: 2.0}, {7: 5.0}]) == pytest.approx([math.log(2.0), math.log(5.0)])
    assert levels([{0: 7.0}]) == pytest.approx([math.log(7.0)])


def test_drift_that_would_ruin_a_ratio_of_medians_leaves_that_of_rounds_alone() -> None:
    draw = random.Random(3)
    errors = []
    for _ in range(200):
        speed, rounds = 0.0, {}
        for number in range(25):
            speed += draw.gauss(0, 0.15)
            rounds[number] = math.exp(speed)
        noisy = [
            {number: base * t * math.exp(draw.gauss(0, 0.03)) for number, t in rounds.items()}
            for base in (1.0, 4.0, 2.0)
        ]
        a, b, _ = levels(noisy)
        errors.append(b - a - math.log(4.0))
    assert abs(sum(errors) / len(errors)) < 0.003
    assert math.sqrt(sum(error**2 for error in errors) / len(errors)) < 0.015


def test_the_series_that_others_are_aligned_with_seems_no_slower_than_they_are() -> None:
    draw, biases = random.Random(4), []
    for _ in range(3000):
        series = [{n: math.exp(draw.gauss(0, 0.1)) for n in range(8)} for _ in range(3)]
        first, second, third = levels(series)
        biases.append((second + third) / 2 - first)
    assert abs(sum(biases) / len(biases)) < 0.003
