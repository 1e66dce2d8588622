import math

import numpy as np
import pytest
from scipy import stats

from trainlab.stats.means import censored_median, rank_p, superiority


def test_ranks_on_hand_worked_numbers() -> None:
    # 1, 2 against 3, 4: of the six ways to choose two, two are as far apart.
    assert rank_p([1, 2], [3, 4]) == pytest.approx(2 / 6)
    # All eight never got there, all eight of the others did: 2 of C(16, 8).
    assert rank_p([math.inf] * 8, [1, 2, 3, 4, 5, 6, 7, 8]) == pytest.approx(2 / math.comb(16, 8))
    assert rank_p([math.inf, math.inf], [math.inf]) is None
    assert rank_p([], [1.0]) is None


def test_ranks_agree_with_the_exact_test_where_there_are_no_ties() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        a, b = rng.normal(size=6), rng.normal(0.8, size=7)
        exact = stats.mannwhitneyu(a, b, method="exact").pvalue
        assert rank_p(a.tolist(), b.tolist()) == pytest.approx(exact)
    many = rank_p(rng.normal(size=30).tolist(), rng.normal(0.5, size=30).tolist())
    assert many is not None
    assert 0 < many < 1


def test_what_never_came_is_later_than_all_else() -> None:
    assert censored_median([1, 2, math.inf]) == 2
    assert censored_median([1, math.inf, math.inf]) is None
    assert censored_median([1, 2, 3, math.inf]) == 2.5
    assert censored_median([1, math.inf]) is None


def test_a_chance_has_an_interval_that_covers() -> None:
    assert superiority([1.0], [2.0, 3.0]) is None
    always = superiority([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert always is not None
    assert always.value == 1
    assert 0.2 < always.interval.low < 0.7
    assert always.interval.high == 1
    rng, held, studies = np.random.default_rng(6), 0, 800
    truth = float(stats.norm.cdf(1 / math.sqrt(2)))
    for _ in range(studies):
        found = superiority(rng.normal(size=8).tolist(), rng.normal(1.0, size=8).tolist())
        assert found is not None
        held += found.interval.contains(truth)
    print(f"covers {held / studies:.1%}")
    assert held / studies >= 0.92
