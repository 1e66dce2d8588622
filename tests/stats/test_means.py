import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainlab.stats.means import SHARES, mean_of, new_run_interval

finite = st.floats(-1e6, 1e6)


def test_mean_and_interval_on_hand_worked_numbers() -> None:
    # 1, 2, 3: mean 2, std 1; t(0.975, 2) = 4.302653, over sqrt(3) = 2.484138.
    found = mean_of([1.0, 2.0, 3.0])
    assert found is not None
    assert (found.value, found.std, found.n) == (2, 1, 3)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(2 - 2.484138, abs=1e-6)
    assert found.interval.high == pytest.approx(2 + 2.484138, abs=1e-6)


def test_a_new_run_may_fall_further_out_than_the_mean() -> None:
    # The same numbers: 4.302653 * 1 * sqrt(1 + 1/3) = 4.968275.
    interval = new_run_interval([1.0, 2.0, 3.0])
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((2 - 4.968275, 2 + 4.968275), abs=1e-6)
    assert interval.contains(6.9)
    assert not interval.contains(7.0)


def test_a_single_run_has_no_interval_and_no_run_no_mean() -> None:
    one = mean_of([5.0])
    assert one is not None
    assert (one.value, one.interval, one.std, one.n) == (5, None, None, 1)
    assert new_run_interval([5.0]) is None
    assert mean_of([]) is None
    assert new_run_interval([]) is None
    assert mean_of([math.nan, math.inf]) is None


def test_diverged_runs_are_left_out_and_counted() -> None:
    found = mean_of([1.0, math.nan, 3.0, math.inf])
    assert found is not None
    assert (found.value, found.n, found.num_diverged) == (2, 2, 2)


def test_the_interval_of_an_accuracy_stays_within_what_an_accuracy_can_be() -> None:
    free, cut = mean_of([0.9, 1.0, 0.98]), mean_of([0.9, 1.0, 0.98], SHARES)
    assert free is not None
    assert cut is not None
    assert free.interval is not None
    assert cut.interval is not None
    assert free.interval.high > 1
    assert (cut.interval.low, cut.interval.high) == (free.interval.low, 1.0)


@settings(deadline=None)
@given(st.lists(finite, min_size=2, max_size=9), finite, st.floats(1e-3, 1e3))
def test_an_interval_moves_and_stretches_with_the_values(
    values: list[float], shift: float, factor: float
) -> None:
    plain, moved = mean_of(values), mean_of([value * factor + shift for value in values])
    assert plain is not None
    assert moved is not None
    assert plain.interval is not None
    assert moved.interval is not None
    size = 1e-6 * (1 + abs(shift) + factor * max(map(abs, values)))
    assert moved.interval.low == pytest.approx(plain.interval.low * factor + shift, abs=size)
    assert moved.interval.high == pytest.approx(plain.interval.high * factor + shift, abs=size)


@pytest.mark.parametrize("count", [3, 8])
def test_intervals_cover_at_the_stated_rate(count: int) -> None:
    studies = 5000
    drawn = np.random.default_rng(count).standard_normal((studies, count + 1)).tolist()
    mean = run = 0
    for *values, new in drawn:
        known, one = mean_of(values), new_run_interval(values)
        assert known is not None
        assert known.interval is not None
        assert one is not None
        mean += known.interval.contains(0.0)
        run += one.contains(new)
    print(f"{count} seeds: mean {mean / studies:.2%}, new run {run / studies:.2%}")
    assert mean / studies == pytest.approx(0.95, abs=0.01)
    assert run / studies == pytest.approx(0.95, abs=0.01)
