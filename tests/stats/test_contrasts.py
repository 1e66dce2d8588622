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
from trainlab.stats.power import ability, seeds_for

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


def test_rows_of_contrasts() -> None:
    assert against_first(3).tolist() == [[-1, 1, 0], [-1, 0, 1]]
    assert all_pairs(3).tolist() == [[-1, 1, 0], [-1, 0, 1], [0, -1, 1]]


def test_equally_noisy_cells_share_their_noise_on_hand_worked_numbers() -> None:
    # Differences to the first cell: -1, 0, 1 and 1, 1, -2; of the second and third: 2, 1, -3. Halved
    # variances 0.5, 1.5, 3.5. Of the cells: 2 * (means 1, 2, 2.5) - 5.5 / 2, times 2: -1.5, 2.5, 4.5.
    values = np.array([[0.0, 0.0, 0.0], [-1.0, 0.0, 1.0], [1.0, 1.0, -2.0]])
    found = estimate(values, against_first(3))
    assert found.value == pytest.approx([0, 0])
    # The first: (0 + 2.5) / 2 = 1.25, below the typical 1.5: as likely as not, so 2 + 2 degrees.
    assert found.degrees_of_freedom[0] == pytest.approx(4)
    assert found.std[0] ** 2 == pytest.approx((2 * 1.5 + 2 * 1.25) / 4)
    # The second: (0 + 4.5) / 2 = 2.25 is more than typical and is kept.
    assert found.std[1] ** 2 == pytest.approx(2.25)
    assert found.error == pytest.approx(found.std * np.sqrt(2 / 3))


def test_two_cells_that_vary_alike_give_the_usual_t() -> None:
    values = np.array([[1.0, 2.0, 4.0, 3.0, 6.0], [2.0, 5.0, 1.0, 4.0, 4.5]])
    found = estimate(values, against_first(2))
    assert found.value[0] == pytest.approx(0.1)
    assert found.error[0] >= np.std(values[1] - values[0], ddof=1) / np.sqrt(5) - 1e-12


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
        "heavy-tailed": lambda: rng.standard_t(2, shape),
        "skewed": lambda: rng.exponential(size=shape),
        "seeds matter": lambda: (
            rng.standard_normal(shape) + 3 * rng.standard_normal((STUDIES, 1, seeds))
        ),
    }
    for name, draw in noises.items():
        share = called_different(draw(), resolution=float(name == "rounded"))
        assert share <= at_most(0.05), name
        if name == "normal":
            assert share >= 0.025, "intervals wider than they need be"


@pytest.mark.parametrize(("times", "bound"), [(3, 0.08), (10, 0.10)])
def test_one_noisy_cell_hardly_misleads(times: int, bound: float) -> None:
    for cells, noisy, seeds in ((3, 0, 3), (3, 1, 8), (7, 1, 3)):
        values = np.random.default_rng(seeds).standard_normal((STUDIES, cells, seeds))
        values[:, noisy] *= times
        assert called_different(values) <= at_most(bound), (cells, noisy, seeds)


def test_three_seeds_find_six_standard_deviations() -> None:
    values = np.random.default_rng(5).standard_normal((STUDIES, 7, 3))
    values[:, 1] += 6
    weights = against_first(7)
    found = estimate(values, weights)
    limit = critical_of(complete(weights, 3)).two_sided
    assert (found.value[:, 0] > found.half_width(limit)[:, 0]).mean() >= 0.90


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


@pytest.mark.parametrize(("cells", "seeds"), [(2, 3), (7, 5)])
def test_what_is_called_detectable_is_found_in_four_of_five_studies(cells: int, seeds: int) -> None:
    weights = against_first(cells)
    able = ability(rows_of(weights), seeds)
    values = np.random.default_rng(11).standard_normal((STUDIES, cells, seeds))
    limits = critical_of(complete(weights, seeds))
    shifted = values.copy()
    shifted[:, 1] += able.difference[0]
    found = estimate(shifted, weights)
    power = float((found.value[:, 0] > found.half_width(limits.two_sided)[:, 0]).mean())
    found = estimate(values, weights)
    reach = np.abs(found.value[:, 0]) + found.half_width(limits.one_sided)[:, 0]
    assert power == pytest.approx(0.8, abs=0.04)
    assert float((reach < able.margin[0]).mean()) == pytest.approx(0.8, abs=0.06)


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


def test_a_family_is_simulated_once_and_always_alike() -> None:
    design = complete(against_first(3), 4)
    assert critical_of(design) is critical_of(complete(against_first(3), 4))
    first = critical_of.__wrapped__(design).two_sided
    assert first == critical_of(design).two_sided
