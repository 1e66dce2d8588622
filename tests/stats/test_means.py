"""Means, medians and ranks of few values: by hand, against scipy, and how often they hold."""

import math

import numpy as np
import pytest
from scipy import stats

from trainlab.stats.means import (
    SHARES,
    UNLIMITED,
    Interval,
    Mean,
    censored_median,
    mean_of,
    median_interval,
    new_run_interval,
    rank_p,
)


def known(values: list[float], limits: Interval = UNLIMITED) -> Mean:
    """A mean that has an interval."""
    found = mean_of(values, limits)
    assert found is not None
    assert found.interval is not None
    return found


def test_mean_and_interval_on_hand_worked_numbers() -> None:
    # 1, 2, 3: mean 2, std 1; t(0.975, 2) = 4.302653, over sqrt(3) = 2.484138.
    found = known([1.0, 2.0, 3.0])
    assert (found.value, found.std, found.n) == (2, 1, 3)
    assert found.ends == pytest.approx((2 - 2.484138, 2 + 2.484138), abs=1e-6)
    # A new run may fall further out: 4.302653 * 1 * sqrt(1 + 1/3) = 4.968275.
    interval = new_run_interval([1.0, 2.0, 3.0])
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((2 - 4.968275, 2 + 4.968275), abs=1e-6)
    assert interval.contains(6.9)
    assert not interval.contains(7.0)


def test_a_single_run_has_no_interval_and_no_run_no_mean() -> None:
    assert mean_of([5.0]) == Mean(5.0, None, None, 1)
    assert [new_run_interval(values) for values in ([5.0], [])] == [None, None]
    assert [mean_of(values) for values in ([], [math.nan, math.inf])] == [None, None]
    # Diverged runs are left out and counted.
    found = known([1.0, math.nan, 3.0, math.inf])
    assert (found.value, found.n, found.num_diverged) == (2, 2, 2)
    # The interval of an accuracy stays within what an accuracy can be.
    free, cut = known([0.9, 1.0, 0.98]), known([0.9, 1.0, 0.98], SHARES)
    assert (free.ends[1] or 0) > 1
    assert cut.ends == (free.ends[0], 1.0)


def test_intervals_cover_at_the_stated_rate() -> None:
    count, studies = 3, 5000
    drawn = np.random.default_rng(count).standard_normal((studies, count + 1)).tolist()
    mean = run = 0
    for *values, new in drawn:
        of_mean, of_run = known(values).interval, new_run_interval(values)
        assert of_mean is not None
        assert of_run is not None
        mean += of_mean.contains(0.0)
        run += of_run.contains(new)
    assert mean / studies == pytest.approx(0.95, abs=0.01)
    assert run / studies == pytest.approx(0.95, abs=0.01)


def test_the_interval_of_a_median_leaves_off_as_many_values_as_the_binomial_allows() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0), "the whole range of a few"
    for count in (6, 7, 10, 100, 999, 4000):
        middle, low, high = median_interval([float(n) for n in range(count)])
        num_cut = int(low)
        assert (middle, high) == ((count - 1) / 2, count - 1 - num_cut)
        # One end is wrong where num_cut values or fewer lie below the median.
        assert stats.binom.cdf(num_cut, count, 0.5) <= 0.025
        assert stats.binom.cdf(num_cut + 1, count, 0.5) > 0.025


def test_ranks_on_hand_worked_numbers() -> None:
    # 1, 2 against 3, 4: of the six ways to choose two, two are as far apart.
    assert rank_p([1, 2], [3, 4]) == pytest.approx(2 / 6)
    # All eight never got there, all eight of the others did: 2 of C(16, 8).
    assert rank_p([math.inf] * 8, [1, 2, 3, 4, 5, 6, 7, 8]) == pytest.approx(2 / math.comb(16, 8))
    assert rank_p([math.inf, math.inf], [math.inf]) is None
    assert rank_p([], [1.0]) is None
    # They agree with the exact test where there are no ties.
    rng = np.random.default_rng(4)
    for _ in range(5):
        a, b = rng.normal(size=6), rng.normal(0.8, size=7)
        exact = stats.mannwhitneyu(a, b, method="exact").pvalue
        assert rank_p(a.tolist(), b.tolist()) == pytest.approx(exact)
    a, b = rng.normal(size=30), rng.normal(0.5, size=30)
    exact = stats.mannwhitneyu(a, b, method="exact").pvalue
    assert rank_p(a.tolist(), b.tolist()) == pytest.approx(exact, rel=0.1), "drawn"


def test_what_never_came_is_later_than_all_else() -> None:
    assert censored_median([1, 2, math.inf]) == 2
    assert censored_median([1, math.inf, math.inf]) is None
    assert censored_median([1, 2, 3, math.inf]) == 2.5
    assert censored_median([1, math.inf]) is None
