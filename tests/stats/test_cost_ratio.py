import itertools
import math

import numpy as np
import pytest

from trainlab.errors import SpecError
from trainlab.stats.contrasts import compare_cells, estimate
from trainlab.stats.cost_ratio import (
    CostComparison,
    Floats,
    compare_costs,
    excess_variance,
    ratio_twice,
)

PAIRS = [(0, 1), (0, 2)]
TWICE = [(0, 3), (2, 4)]
"""Three cells, the first and the last of them measured twice."""


def study(rng: np.random.Generator, n: int, std: float, slower: float = 1.0) -> Floats:
    """Benches differ far more than the processes of one bench; the second cell is slower."""
    figures = std * rng.standard_normal((5, n)) + 0.3 * rng.standard_normal(n)
    figures[1] += math.log(slower)
    return figures


def share_different(std: float, slower: float, n: int, studies: int = 300) -> float:
    rng = np.random.default_rng(7)
    found = (compare_costs(study(rng, n, std, slower), PAIRS, TWICE)[0] for _ in range(studies))
    return sum(one.verdict == "different" for one in found) / studies


def test_ratio_is_that_within_benches() -> None:
    # The second cell takes 1.2, 1.3 and 1.25 times as long; the benches themselves double.
    first = np.log([1.0, 2.0, 4.0])
    second = first + np.log([1.2, 1.3, 1.25])
    (found,) = compare_costs(np.array([first, second, first]), [(0, 1)], [(0, 2)])
    assert found.ratio.value == pytest.approx((1.2 * 1.3 * 1.25) ** (1 / 3))
    assert (found.n, found.family) == (3, 1)


def test_the_interval_is_that_of_the_contrasts_and_decides() -> None:
    rng = np.random.default_rng(1)
    figures = study(rng, 4, 0.02, 1.1)
    assert excess_variance(figures, TWICE) == 0.0
    family = compare_cells(figures, np.array([[-1.0, 1, 0, 0, 0], [-1.0, 0, 1, 0, 0]]))
    for found, half_width in zip(
        compare_costs(figures, PAIRS, TWICE), family.half_width, strict=True
    ):
        assert found.ratio.interval is not None
        assert found.ratio.interval.high / found.ratio.value == pytest.approx(math.exp(half_width))
        assert found.half_width == pytest.approx(math.expm1(half_width))


def test_what_a_cell_differs_from_itself_beyond_its_error_widens_every_interval() -> None:
    rng = np.random.default_rng(2)
    figures = study(rng, 4, 0.01)
    quiet = compare_costs(figures, PAIRS, TWICE)
    figures[3] += 0.1
    loud = compare_costs(figures, PAIRS, TWICE)
    apart = np.array([[-1.0, 0, 0, 1, 0], [0, 0, -1.0, 0, 1]])
    found = estimate(figures, apart)
    expected = float(np.mean(found.value**2 - found.error**2))
    assert excess_variance(figures, TWICE) == pytest.approx(expected)
    assert expected == pytest.approx(0.005, rel=0.3)
    for before, after in zip(quiet, loud, strict=True):
        assert before.half_width is not None
        assert after.half_width is not None
        assert after.half_width > 3 * before.half_width


def test_the_ratio_of_a_cell_with_itself_is_told_as_a_ratio_above_one() -> None:
    figures = np.log([[1.0, 1.0], [2.0, 2.0], [1.0, 1.0], [0.98, 0.98]])
    assert ratio_twice(figures, [(0, 2), (0, 3)]) == pytest.approx(1 / 0.98)
    assert ratio_twice(figures, []) is None


@pytest.mark.slow
def test_more_processes_find_a_slowdown_more_often_at_every_noise() -> None:
    """With the floor as the largest difference of any two processes, 50 found it in 3% of studies."""
    for std in (0.01, 0.02, 0.04):
        shares = [share_different(std, 1.05, n) for n in (3, 6, 12, 24)]
        print(std, shares)
        assert all(b >= a - 0.04 for a, b in itertools.pairwise(shares)), (std, shares)
    assert share_different(0.02, 1.05, 50, 100) == 1.0


@pytest.mark.parametrize("n", [3, 10])
@pytest.mark.slow
def test_nothing_is_invented(n: int) -> None:
    rng = np.random.default_rng(9)
    false = 0
    for _ in range(400):
        found = compare_costs(study(rng, n, 0.02), PAIRS, TWICE)
        false += any(one.verdict == "different" for one in found)
    assert false / 400 <= 0.05


@pytest.mark.slow
def test_so_many_processes_as_it_says_do_settle_it() -> None:
    rng = np.random.default_rng(4)
    found = []
    for _ in range(400):
        first = compare_costs(study(rng, 3, 0.02, 1.05), PAIRS, TWICE)[0]
        if first.processes_needed is None:
            continue
        again = compare_costs(study(rng, first.processes_needed, 0.02, 1.05), PAIRS, TWICE)[0]
        found.append(again.verdict == "different")
    print(f"{sum(found)} of {len(found)}")
    assert len(found) > 100
    assert sum(found) / len(found) >= 0.9


def test_interval_and_verdict_never_contradict() -> None:
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(500):
        figures = study(rng, int(rng.integers(2, 8)), 0.02, float(rng.uniform(0.97, 1.06)))
        for one in compare_costs(figures, PAIRS, TWICE, margin=0.05):
            assert one.ratio.interval is not None
            assert one.equivalence is not None
            excludes_one = not one.ratio.interval.contains(1.0)
            assert excludes_one == (one.verdict == "different")
            inside = one.equivalence.low > 1 / 1.05 and one.equivalence.high < 1.05
            assert (one.verdict == "equivalent") == (inside and not excludes_one)
            seen.add(one.verdict)
    assert seen == {"different", "equivalent", "cannot tell"}


def only(figures: Floats, margin: float | None = None) -> CostComparison:
    return compare_costs(figures, [(0, 1)], [(0, 2)], margin)[0]


def test_equivalent_needs_a_margin_that_holds() -> None:
    rng = np.random.default_rng(6)
    figures = study(rng, 6, 0.005)[:3]
    assert only(figures, 0.05).verdict == "equivalent"
    assert only(figures, 0.002).verdict == "cannot tell"
    assert only(figures).verdict == "cannot tell"


def test_figures_that_never_vary_are_compared_exactly() -> None:
    same = np.log([[64.0] * 3, [64.0] * 3, [64.0] * 3])
    assert only(same, 0.01).verdict == "equivalent"
    assert only(np.log([[64.0] * 3, [80.0] * 3, [64.0] * 3])).verdict == "different"


def test_a_single_process_has_no_interval_and_cannot_tell() -> None:
    found = only(np.log([[100.0], [200.0], [100.0]]), 0.05)
    assert found.ratio.value == pytest.approx(2.0)
    assert (found.ratio.interval, found.equivalence, found.p, found.half_width) == (None,) * 4
    assert (found.verdict, found.processes_needed, found.detectable) == ("cannot tell", None, None)


def test_without_a_cell_measured_twice_nothing_is_decided() -> None:
    figures = np.log([[100.0, 101, 102], [200, 201, 203], [100, 101, 102]])
    (found,) = compare_costs(figures, [(0, 1)], [], 0.05)
    assert found.verdict == "cannot tell"
    assert found.ratio.interval is not None


def test_a_process_that_is_missing_leaves_its_bench_out() -> None:
    rng = np.random.default_rng(8)
    figures = study(rng, 5, 0.01, 1.3)
    figures[1, 2] = math.nan
    first, second = compare_costs(figures, PAIRS, TWICE)
    assert (first.n, second.n) == (4, 5)
    assert first.verdict == "different"
    assert first.ratio.value == pytest.approx(1.3, rel=0.03)


def test_the_detectable_ratio_is_found_in_about_eight_of_ten() -> None:
    rng = np.random.default_rng(10)
    known = [compare_costs(study(rng, 5, 0.02), PAIRS, TWICE)[0].detectable for _ in range(100)]
    typical = float(np.median([one for one in known if one is not None]))
    share = share_different(0.02, typical, 5)
    print(f"{typical:.3f} found in {share:.1%}")
    assert share == pytest.approx(0.8, abs=0.1)


def test_a_margin_must_be_positive() -> None:
    with pytest.raises(SpecError, match=r"margin: got 0.0, must be above 0"):
        only(np.zeros((3, 3)), 0.0)
