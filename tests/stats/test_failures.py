import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trainlab.stats.verdict import Failures, fisher


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_fisher_agrees_with_scipy(num_a: int, rest_a: int, num_b: int, rest_b: int) -> None:
    if num_a + rest_a == 0 or num_b + rest_b == 0:
        return
    expected = stats.fisher_exact([[num_a, rest_a], [num_b, rest_b]]).pvalue
    assert fisher(num_a, num_a + rest_a, num_b, num_b + rest_b) == pytest.approx(expected)


def test_failures_are_counted_by_cell() -> None:
    found = Failures.of({1: 0.5, 2: math.nan, 3: 0.5}, {1: math.inf, 2: 0.5, 3: 0.5, 4: math.nan})
    assert (found.num_a, found.of_a, found.num_b, found.of_b) == (1, 3, 2, 4)
    assert found.num_left_out == 2
    assert found.differ
    assert found.p is not None
    assert not Failures.of({1: math.nan}, {1: math.nan}).differ
    assert Failures.of({1: 0.5}, {1: 0.5}).p is None


def test_all_against_none_is_shown_by_eight_seeds_not_by_three() -> None:
    assert fisher(8, 8, 0, 8) == pytest.approx(2 / math.comb(16, 8))
    assert fisher(3, 3, 0, 3) == pytest.approx(0.1)
