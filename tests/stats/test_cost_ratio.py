"""Ratios of costs on drawn benches, and one-sided bounds; `benchmarks.cost_power` has many more."""

import math

import numpy as np
import pytest
from scipy import stats

from trainlab.errors import SpecError
from trainlab.stats.contrasts import Floats, estimate
from trainlab.stats.cost_ratio import (
    Change,
    CostComparison,
    Levels,
    assumed,
    compare_costs,
    excess_variance,
    levels,
    ratio_twice,
    welch,
)

PAIRS = [(0, 1), (0, 2)]
TWICE = [(0, 3), (2, 4)]
"""Three cells, the first and the last of them measured twice."""


def study(rng: np.random.Generator, n: int, std: float, slower: float = 1.0) -> Floats:
    """Benches differ far more than the processes of one bench; the second cell is slower."""
    figures = std * rng.standard_normal((5, n)) + 0.3 * rng.standard_normal(n)
    figures[1] += math.log(slower)
    return figures


def test_ratio_is_that_within_benches() -> None:
    # The second cell takes 1.2, 1.3 and 1.25 times as long; the benches themselves double.
    first = np.log([1.0, 2.0, 4.0])
    second = first + np.log([1.2, 1.3, 1.25])
    (found,) = compare_costs(np.array([first, second, first]), [(0, 1)], [(0, 2)])
    assert found.ratio.value == pytest.approx((1.2 * 1.3 * 1.25) ** (1 / 3))
    assert (found.n, found.family) == (3, 1)


def test_what_a_cell_differs_from_itself_beyond_its_error_widens_every_interval() -> None:
    figures = study(np.random.default_rng(2), 4, 0.01)
    quiet = compare_costs(figures, PAIRS, TWICE)
    figures[3] += 0.1
    loud = compare_costs(figures, PAIRS, TWICE)
    found = estimate(figures, np.array([[-1.0, 0, 0, 1, 0], [0, 0, -1.0, 0, 1]]))
    expected = float(np.mean(found.value**2 - found.error**2))
    assert excess_variance(figures, TWICE) == pytest.approx(expected)
    assert expected == pytest.approx(0.005, rel=0.3)
    for before, after in zip(quiet, loud, strict=True):
        assert (after.half_width or 0) > 3 * (before.half_width or 1)


def test_the_ratio_of_a_cell_with_itself_is_told_as_a_ratio_above_one() -> None:
    figures = np.log([[1.0, 1.0], [2.0, 2.0], [1.0, 1.0], [0.98, 0.98]])
    assert ratio_twice(figures, [(0, 2), (0, 3)]) == pytest.approx(1 / 0.98)
    assert ratio_twice(figures, []) is None


def test_interval_and_verdict_never_contradict() -> None:
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(100):
        figures = study(rng, int(rng.integers(2, 6)), 0.02, float(rng.uniform(0.97, 1.06)))
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
    figures = study(np.random.default_rng(6), 6, 0.005)[:3]
    verdicts = [only(figures, margin).verdict for margin in (0.05, 0.002, None)]
    assert verdicts == ["equivalent", "cannot tell", "cannot tell"]
    with pytest.raises(SpecError, match=r"margin: got 0, must be above 0"):
        compare_costs(figures, [], [], margin=0)


def test_little_to_compare_is_compared_exactly_or_not_decided() -> None:
    same = np.log([[64.0] * 3, [64.0] * 3, [64.0] * 3])
    assert only(same, 0.01).verdict == "equivalent", "what never varies"
    assert only(np.log([[64.0] * 3, [80.0] * 3, [64.0] * 3])).verdict == "different"
    figures = np.log([[100.0, 101, 102], [200, 201, 203], [100, 101, 102]])
    (found,) = compare_costs(figures, [(0, 1)], [], 0.05)
    assert found.verdict == "cannot tell", "no cell was measured twice"
    assert found.ratio.interval is not None
    found = only(np.log([[100.0], [200.0], [100.0]]), 0.05)
    assert found.ratio.value == pytest.approx(2.0)
    assert (found.ratio.interval, found.equivalence, found.p, found.half_width) == (None,) * 4
    assert (found.verdict, found.processes_needed, found.detectable) == ("cannot tell", None, None)


def test_a_process_that_is_missing_leaves_its_bench_out() -> None:
    figures = study(np.random.default_rng(8), 5, 0.01, 1.3)
    figures[1, 2] = math.nan
    first, second = compare_costs(figures, PAIRS, TWICE)
    assert (first.n, second.n) == (4, 5)
    assert first.verdict == "different"
    assert first.ratio.value == pytest.approx(1.3, rel=0.03)


def test_a_ratio_is_formed_within_rounds() -> None:
    # The machine is twice as slow from the third round on; the second takes 1.5 times as long.
    first = {1: 10.0, 2: 10.0, 3: 20.0, 4: 20.0, 5: 20.0}
    a, b = levels([first, {number: 1.5 * time for number, time in first.items()}])
    assert (a, b - a) == pytest.approx((math.log(20.0), math.log(1.5)))
    rng, errors = np.random.default_rng(3), []
    for _ in range(200):
        drift = np.cumsum(rng.normal(0, 0.15, 25))
        logs = drift + rng.normal(0, 0.03, (3, 25)) + np.log([[1.0], [4.0], [2.0]])
        a, b, _ = levels([dict(enumerate(row)) for row in np.exp(logs).tolist()])
        errors.append(b - a - math.log(4.0))
    assert abs(np.mean(errors)) < 0.003
    assert np.sqrt(np.mean(np.square(errors))) < 0.015
    # Disturbed turns move nothing.
    first = dict.fromkeys(range(1, 8), 10.0)
    second, third = dict.fromkeys(first, 20.0), dict.fromkeys(first, 30.0)
    second[3] = 500.0
    assert levels([first, second, third]) == pytest.approx([math.log(t) for t in (10, 20, 30)])


def test_series_are_linked_by_the_one_that_has_all_rounds_or_stand_by_themselves() -> None:
    machine = {number: 1.0 + 0.3 * number for number in range(1, 11)}
    early = {number: 2.0 * machine[number] for number in range(1, 6)}
    late = {number: 3.0 * machine[number] for number in range(6, 11)}
    a, b, c = levels([machine, early, late])
    assert (b - a, c - a) == pytest.approx((math.log(2), math.log(3)))
    assert levels([{1: 2.0, 2: 2.0}, {7: 5.0}]) == pytest.approx([math.log(2.0), math.log(5.0)])
    assert levels([{0: 7.0}]) == pytest.approx([math.log(7.0)])


# One-sided bounds against a margin, for a gate.

ONE = Levels(0.05)
MARGIN = math.log1p(0.05)
NOISE = 0.03
"""Of the log time of a process: 3%."""


def changes(number: int, true: float, draws: int, *, baseline: int = 0) -> list[Change]:
    """Of so many pairs of samples, the second of which lies `true` above the first."""
    draw = np.random.default_rng(20261117)
    before = NOISE * draw.standard_normal((draws, baseline or number))
    after = true + NOISE * draw.standard_normal((draws, number))
    found = (welch(list(a), list(b)) for a, b in zip(before, after, strict=True))
    return [change for change in found if change is not None]


def share(found: list[Change], verdict: str, at: Levels = ONE) -> float:
    return float(np.mean([change.judged(MARGIN, at) == verdict for change in found]))


def test_the_bounds_are_those_of_welchs_test() -> None:
    before, after = [1.0, 1.2, 1.1, 0.9], [1.5, 1.2, 1.9, 1.4]
    change = welch(before, after)
    assert change is not None
    expected = stats.ttest_ind(after, before, equal_var=False, alternative="greater")
    assert change.value == pytest.approx(0.45)
    assert change.degrees_of_freedom == pytest.approx(expected.df)
    assert change.low(0.05) == pytest.approx(expected.confidence_interval(0.95).low)
    lower = stats.ttest_ind(after, before, equal_var=False, alternative="less")
    assert change.high(0.05) == pytest.approx(lower.confidence_interval(0.95).high)
    assert change.judged(0.1, ONE) == "worse"
    assert change.judged(0.4, ONE) == "cannot tell"
    assert change.judged(0.8, ONE) == "not worse"
    # A stricter level moves the lower bound alone.
    assert change.low(0.05) > 0.1 > change.low(0.005)
    assert change.judged(0.1, Levels(0.005)) == "cannot tell"
    assert change.judged(0.8, Levels(0.005)) == "not worse"


def test_one_value_has_no_noise_to_see_and_equal_ones_have_none() -> None:
    assert welch([1.0], [1.0, 1.1]) is None
    assert welch([1.0, 1.1], []) is None
    same = welch([1.0, 1.0], [1.1, 1.1])
    assert same is not None
    assert (same.low(0.05), same.high(0.05)) == (same.value, same.value)
    assert same.number_for(0.1, 0.05, ONE) == 2


def test_nothing_that_is_just_at_the_margin_is_called_worse_in_more_than_5_percent() -> None:
    for number in (2, 3, 8):
        found = changes(number, MARGIN, 2000)
        for verdict in ("worse", "not worse"):
            assert share(found, verdict) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000), number
    # A small sample beside a large one is not trusted too far.
    found = changes(12, MARGIN, 2000, baseline=2)
    assert share(found, "worse") < 0.05
    assert share(found, "worse", Levels(0.01)) < 0.01


def test_eight_processes_are_the_fewest_that_catch_10_percent_at_3_percent_noise() -> None:
    slowdown = math.log(1.10)
    assert assumed(NOISE).number_for(slowdown, MARGIN, ONE) == 8
    assert share(changes(8, slowdown, 3000), "worse") == pytest.approx(0.90, abs=0.015)
    assert share(changes(7, slowdown, 3000), "worse") == pytest.approx(0.855, abs=0.02)
    # What docs/gate.md says of the three processes that are the default.
    assert share(changes(3, slowdown, 3000), "worse") == pytest.approx(0.41, abs=0.025)


def test_the_number_that_is_said_to_decide_does_so_in_90_percent_of_cases() -> None:
    plan = assumed(NOISE)
    number = plan.number_for(0.0, MARGIN, Levels(0.025))
    assert number is not None
    assert 0.88 < share(changes(number, 0.0, 2000), "not worse", Levels(0.025)) < 0.95
    # More noise or less distance takes more, and at the margin no number does.
    numbers = [plan.number_for(math.log1p(true), MARGIN, ONE) for true in (0.2, 0.1, 0.08, 0.06)]
    assert numbers == sorted(filter(None, numbers))
    assert plan.number_for(MARGIN, MARGIN, ONE) is None
    assert assumed(1e-6).number_for(0.0, MARGIN, ONE) == 2
