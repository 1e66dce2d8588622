"""Contrasts by hand, and a few simulated studies; `benchmarks.verdicts` has many."""

from collections.abc import Callable

import numpy as np
import pytest

from trainlab.stats.contrasts import (
    Floats,
    all_pairs,
    compare_cells,
    complete,
    critical_of,
    estimate,
    pair_rows,
    rows_of,
)
from trainlab.stats.power import ability, relative_stds, seeds_for
from trainlab.stats.verdict import compare_all

STUDIES = 2000


def against_first(num_cells: int) -> Floats:
    """Every cell less the first."""
    return pair_rows(((0, cell) for cell in range(1, num_cells)), num_cells)


def called_different(values: Floats, resolution: float = 0.0) -> float:
    """The share of studies in which some cell is called different from the first."""
    weights = against_first(values.shape[1])
    found = estimate(values, weights, resolution)
    limit = critical_of(complete(weights, values.shape[2])).two_sided
    return float((np.abs(found.value) > found.half_width(limit)).any(axis=1).mean())


def at_most(bound: float) -> float:
    """With three standard errors of a simulated share."""
    return bound + 3 * float(np.sqrt(bound * (1 - bound) / STUDIES))


def test_noise_is_pooled_as_far_as_it_agrees_on_hand_worked_numbers() -> None:
    assert against_first(3).tolist() == [[-1, 1, 0], [-1, 0, 1]]
    assert all_pairs(3).tolist() == [[-1, 1, 0], [-1, 0, 1], [0, -1, 1]]
    # Variances 1 and 3; of the differences 2, -2, 0 halved 2, which is that of the two apart. Together they
    # have (1 + 3)² / (1 + 9) = 1.6 times two degrees of freedom.
    two = np.array([[-1.0, 0.0, 1.0], [1.0, -2.0, 1.0]])
    alone = estimate(two, against_first(2))
    assert (alone.std**2, alone.degrees_of_freedom) == (pytest.approx([2]), pytest.approx([3.2]))
    assert alone.error == pytest.approx(alone.std * np.sqrt(2 / 3))
    # The third differs from them by variances 3 and 7, halved 1.5 and 3.5; the smaller of two is usually
    # 0.345 of what it stands for. 4.35 is 2.17 times 2, less than 7/3, which chance exceeds in 30%.
    third = np.array([[0.0, 1.0, -1.0]])
    found = estimate(np.concatenate((two, third)), against_first(3))
    assert found.degrees_of_freedom[0] == pytest.approx(2 + 1.2 + 2)
    assert found.std[0] ** 2 == pytest.approx((2 * 2 + 1.2 * 2 + 2 * 1.5 / 0.34484) / 5.2, rel=1e-4)
    # One that is far noisier tells nothing of them.
    found = estimate(np.concatenate((two, 100 * third)), against_first(3))
    assert (found.std[0], found.degrees_of_freedom[0]) == pytest.approx((2**0.5, 3.2))


def test_a_noisy_cell_does_not_blind_the_comparison_of_two_quiet_ones() -> None:
    """Standard deviations and a difference in points of a case that was found with them."""
    weights, noise = all_pairs(3), np.array([[2.2], [2.0], [9.8]])
    values = noise * np.random.default_rng(11).standard_normal((STUDIES, 3, 5))
    values[:, 1] += 8
    found = estimate(values, weights)
    limit = critical_of(complete(weights, 5)).two_sided
    # Paired t with the same correction finds it in 92%; with noise pooled over all pairs it was 51%.
    assert (found.scores(found.value)[:, 0] > limit).mean() > 0.87


def test_missing_values_change_nothing_but_what_they_are_part_of() -> None:
    values = np.random.default_rng(1).standard_normal((4, 6))
    weights = against_first(4)
    whole = estimate(values, weights)
    wider = np.column_stack((values, np.full(4, np.nan)))
    assert estimate(wider, weights).error == pytest.approx(whole.error)
    values[3, 2:] = np.nan
    part = estimate(values, weights)
    assert part.value[:2] == pytest.approx(whole.value[:2])
    assert part.value[2] == pytest.approx((values[3] - values[0])[:2].mean())
    values[3, 1:] = np.nan
    assert np.isnan(estimate(values, weights).value[2])


def test_a_family_decides_as_its_intervals_do() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        values = rng.standard_normal((4, 4)) + rng.choice([0, 2, 5], (4, 1))
        family = compare_cells(values, against_first(4))
        excludes_zero = np.abs(family.estimates.value) > family.half_width
        assert (excludes_zero == (family.p < 0.05)).all() or (np.abs(family.p - 0.05) < 2e-4).any()
        assert (family.half_width_90 < family.half_width).all()


@pytest.mark.parametrize(("cells", "seeds"), [(2, 3), (3, 8), (7, 3)])
def test_studies_without_a_difference_seldom_show_one(cells: int, seeds: int) -> None:
    rng, shape = np.random.default_rng(7), (STUDIES, cells, seeds)
    noises: dict[str, Callable[[], Floats]] = {
        "normal": lambda: rng.standard_normal(shape),
        "rounded": lambda: np.round(rng.standard_normal(shape)),
        "skewed": lambda: rng.exponential(size=shape),
    }
    for name, draw in noises.items():
        share = called_different(draw(), resolution=float(name == "rounded"))
        assert share <= at_most(0.05), name
        if name == "normal":
            assert share >= 0.025, "intervals wider than they need be"


def test_looks_on_the_way_do_not_raise_the_error() -> None:
    looks, weights = (3, 5, 8), against_first(3)
    values = np.random.default_rng(9).standard_normal((STUDIES, 3, looks[-1]))
    wrong, naive = np.zeros(STUDIES, dtype=bool), np.zeros(STUDIES, dtype=bool)
    for count in looks:
        found = estimate(values[..., :count], weights)
        for asked, out in ((looks, wrong), ((), naive)):
            limit = critical_of(complete(weights, count, asked)).two_sided
            out |= (np.abs(found.value) > found.half_width(limit)).any(axis=1)
    assert wrong.mean() <= at_most(0.05)
    assert naive.mean() > 0.07, "this test could not fail"


def test_seeds_for_an_effect() -> None:
    rows = rows_of(against_first(2))
    # Two independent groups, one standard deviation apart, 5%, power 0.8: 17 each by the textbook;
    # a few more, since cells may vary unequally.
    assert seeds_for(rows, 0, 1.0) == pytest.approx(20, abs=3)
    assert seeds_for(rows, 0, 100.0) == 2
    assert seeds_for(rows, 0, 0.0) is None
    assert seeds_for(rows, 0, 1e-4) is None
    assert seeds_for(rows, 0, 0.0, margin=1.0) == pytest.approx(23, abs=4)
    many = rows_of(against_first(13))
    assert (seeds_for(many, 0, 1.0, known=5) or 0) > 20


# What seeds are said to find: simulated again, with cells as noisy as they were.

PAIRS = ((0, 3), (1, 4), (2, 5), (0, 1), (0, 2), (3, 4), (3, 5))
WEIGHTS = pair_rows(PAIRS, 6)
ONE_NOISY = np.array([[0.014], [0.031], [0.13], [0.0014], [0.025], [0.0057]])
"""Standard deviations as a grid of two batch sizes and three learning rates had them."""


def test_what_is_said_to_be_found_is_found_in_four_of_five_studies_of_the_same_noise() -> None:
    """Within what rounding the noise and a wide interval add."""
    values = ONE_NOISY * np.random.default_rng(7).standard_normal((6, 3))
    by_cell = {str(cell): dict(enumerate(row)) for cell, row in enumerate(values)}
    found = compare_all(by_cell, [(str(a), str(b)) for a, b in PAIRS])
    said = np.array([one.detectable for one in found])
    drawn = np.random.default_rng(3).standard_normal((3000, 6, 3))
    again = estimate(drawn * values.std(axis=1, ddof=1, keepdims=True), WEIGHTS)
    half_width = again.half_width(critical_of(complete(WEIGHTS, 3)).two_sided)
    power = (again.value + said > half_width).mean(axis=0)
    # The interval of contrast 4 or 2, of the noisy cell, is wide by chance in some studies.
    assert power.min() > 0.55, power
    assert 0.68 < np.median(power) < 0.95, power
    widths = [one.interval.high - one.interval.low for one in found if one.interval is not None]
    assert (said >= np.array(widths) / 2 * (1 - 1e-9)).all(), "less than half the interval"


def test_equal_noise_finds_what_was_planned_for() -> None:
    """What a plan says in standard deviations is what the study then finds."""
    planned = ability(rows_of(WEIGHTS), 5).difference
    afterwards = ability(rows_of(WEIGHTS), 5, (1.0,) * 6).difference
    assert afterwards == pytest.approx(planned, rel=0.05)


def test_seeds_said_to_be_needed_find_the_difference_in_four_of_five_studies() -> None:
    """Also where seeds do alike to the two cells, but not to a third."""
    rng, weights = np.random.default_rng(5), pair_rows(((0, 1), (0, 2), (1, 2)), 3)

    def drawn(studies: int, num_seeds: int) -> Floats:
        alike, own = rng.standard_normal((2, studies, 3, num_seeds))
        own[:, :2] += 5 * alike[:, :1]
        return own

    (values,) = drawn(1, 8)
    apart = values[1] - values[0]
    values[1] = values[0] + 1 + (apart - apart.mean()) / apart.std(ddof=1) * 2**0.5
    by_cell = {str(cell): dict(enumerate(row)) for cell, row in enumerate(values)}
    num_seeds = compare_all(by_cell, [("0", "1"), ("0", "2"), ("1", "2")])[0].seeds_needed
    assert num_seeds is not None
    again = estimate(drawn(2000, num_seeds), weights)
    limit = critical_of(complete(weights, num_seeds)).two_sided
    assert (again.value + 1 > again.half_width(limit))[:, 0].mean() == pytest.approx(0.8, abs=0.1)
    assert relative_stds(np.ones((3, 4))) == ()
