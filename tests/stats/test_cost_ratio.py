import math

import numpy as np
import pytest
from scipy import stats

from trainlab.errors import SpecError
from trainlab.stats.cost_ratio import compare_cost, decide_cost, noise_floor


def test_ratio_and_interval_on_hand_worked_numbers() -> None:
    # Logs of a: 0, 1, 2; of b: 1, 2, 3. Means differ by 1; both variances are 1, so the error is
    # sqrt(1/3 + 1/3) with 4 degrees of freedom: t = 1.224745, p = 0.287864; t(0.975, 4) = 2.776445.
    a, b = [[math.exp(x) for x in logs] for logs in ((0, 1, 2), (1, 2, 3))]
    found = compare_cost(a, b, noise_floor=0.0)
    assert found.ratio.value == pytest.approx(math.e)
    assert found.std == pytest.approx(1)
    assert found.p == pytest.approx(0.287864, abs=1e-6)
    assert found.ratio.interval is not None
    reach = 2.776445 * math.sqrt(2 / 3)
    assert found.ratio.interval.low == pytest.approx(math.exp(1 - reach), rel=1e-5)
    assert found.verdict == "cannot tell"


def test_p_is_welchs() -> None:
    draw = np.random.default_rng(0)
    a, b = np.exp(draw.normal(0, 0.1, 4)), np.exp(draw.normal(0, 0.3, 6))
    expected = stats.ttest_ind(np.log(a), np.log(b), equal_var=False).pvalue
    assert compare_cost(a.tolist(), b.tolist(), 0.0).p == pytest.approx(expected)


def test_the_noise_floor_is_the_largest_ratio_of_a_cell_with_itself() -> None:
    assert noise_floor([100, 100, 100], [101, 99, 102]) == pytest.approx(math.log(1.02))
    assert noise_floor([100], [98]) == pytest.approx(math.log(100 / 98))


def test_nothing_below_the_noise_floor_is_different() -> None:
    a, b = [100.0, 100.1, 99.9], [105.0, 105.1, 104.9]
    assert compare_cost(a, b, noise_floor=0.02).verdict == "different"
    within = compare_cost(a, b, noise_floor=0.06)
    assert (within.verdict, within.processes_needed) == ("cannot tell", None)
    assert within.p is not None
    assert within.p < 0.001


def test_equivalence_needs_a_margin_above_the_noise_floor() -> None:
    a, b = [100.0, 100.1, 99.9], [100.1, 100.2, 100.0]
    assert compare_cost(a, b, noise_floor=0.005, margin=0.02).verdict == "equivalent"
    assert compare_cost(a, b, noise_floor=0.03, margin=0.02).verdict == "cannot tell"
    assert compare_cost(a, b, noise_floor=0.005).verdict == "cannot tell"


def test_figures_that_never_vary_are_compared_exactly() -> None:
    assert compare_cost([64.0] * 3, [80.0] * 3, 0.0).verdict == "different"
    same = compare_cost([64.0] * 3, [64.0] * 3, 0.0, margin=0.01)
    assert (same.verdict, same.p, same.ratio.value) == ("equivalent", 1, 1)


def test_a_single_process_cannot_tell() -> None:
    found = compare_cost([100.0], [200.0, 201.0], noise_floor=0.0)
    assert (found.verdict, found.p, found.ratio.interval) == ("cannot tell", None, None)
    assert found.ratio.value == pytest.approx(math.sqrt(200 * 201) / 100)


def test_a_family_is_decided_together() -> None:
    a, b = [100.0, 101.0, 102.0], [104.0, 105.0, 106.5]
    alone = compare_cost(a, b, noise_floor=0.01)
    assert alone.verdict == "different"
    family = decide_cost([alone] * 10)
    assert {(c.verdict, c.family) for c in family} == {("cannot tell", 10)}
    assert family[0].processes_needed is not None
    assert family[0].processes_needed > 3


def test_figures_must_be_positive() -> None:
    with pytest.raises(SpecError, match=r"cost: got 0.0, must be above 0 and finite"):
        compare_cost([0.0, 1.0], [1.0, 1.0], 0.0)
    with pytest.raises(SpecError, match=r"cost: got nothing"):
        compare_cost([], [1.0], 0.0)


def share_different(std: float, slower: float, processes: int = 3) -> float:
    logs = np.random.default_rng(5).normal(0, std, (1500, 4, processes))
    logs[:, 1] += math.log(slower)
    cells = np.exp(logs).tolist()
    verdicts = [compare_cost(a, b, noise_floor(c, d)).verdict for a, b, c, d in cells]
    return verdicts.count("different") / len(verdicts)


def test_a_planted_slowdown_is_found_when_noise_allows_and_not_invented_when_not() -> None:
    quiet, loud, nothing = (
        share_different(0.005, 1.05),
        share_different(0.05, 1.05),
        share_different(0.02, 1.0),
    )
    print(
        f"5 % slower: found in {quiet:.1%} at 0.5 % noise, {loud:.1%} at 5 %; none: {nothing:.1%}"
    )
    assert quiet >= 0.95
    assert loud <= 0.15
    assert nothing <= 0.05


def test_the_detectable_ratio_is_found_in_about_eight_of_ten() -> None:
    floor, std = 0.01, 0.01
    # 0, 0, 0 and twice the std: the standard deviation of these four is the std.
    typical = [1.0, 1.0, 1.0, math.exp(2 * std)]
    known = compare_cost(typical, typical, floor)
    assert known.std == pytest.approx(std)
    assert known.detectable is not None
    logs = np.random.default_rng(6).normal(0, std, (2000, 2, 4))
    logs[:, 1] += math.log(known.detectable)
    verdicts = [compare_cost(a, b, floor).verdict for a, b in np.exp(logs).tolist()]
    found = verdicts.count("different") / len(verdicts)
    print(f"{known.detectable - 1:.1%} found in {found:.1%}")
    assert found == pytest.approx(0.8, abs=0.04)
