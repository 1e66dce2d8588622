"""Two cells over the same seeds: different, equivalent, identical, or cannot tell."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trainlab.errors import SpecError
from trainlab.stats.verdict import Comparison, Failures, compare_all

NOISE = np.random.default_rng(2).normal(0, 1, (7, 8)).tolist()


def by_seed(numbers: Sequence[float]) -> dict[int, float]:
    return dict(enumerate(numbers, 1))


def compare(
    a: Mapping[int, float], b: Mapping[int, float], margin: float | None = None
) -> Comparison:
    """Two cells, a family of their own."""
    return compare_all({"a": a, "b": b}, [("a", "b")], margin)[0]


def study(*cells: Sequence[float], margin: float | None = None) -> tuple[Comparison, ...]:
    """Every cell against the first."""
    table = {f"c{index}": by_seed(cell) for index, cell in enumerate(cells)}
    return compare_all(table, [("c0", name) for name in list(table)[1:]], margin)


def ends(found: Comparison) -> tuple[float, float]:
    assert found.interval is not None
    return found.interval.low, found.interval.high


def shifted(cell: Sequence[float], shift: float) -> list[float]:
    return [value + shift for value in cell]


def test_three_seeds_show_a_large_difference_and_not_a_small_one() -> None:
    noise = [cell[:3] for cell in NOISE[:3]]
    large, small = study(noise[0], shifted(noise[1], 20), shifted(noise[2], 0.5))
    assert (large.verdict, small.verdict, large.n) == ("different", "cannot tell", 3)
    assert ends(large)[0] > 0
    # Forty points in six seeds are no noise.
    sgd, adam = [0.40, 0.45, 0.38, 0.52, 0.47, 0.30], [0.88, 0.87, 0.89, 0.88, 0.86, 0.89]
    found = compare(by_seed(sgd), by_seed(adam))
    assert found.verdict == "different"
    assert ends(found)[0] > 0


def test_one_seed_tells_nothing_and_none_even_less() -> None:
    one = compare({1: 0.1}, {1: 0.9}, 0.5)
    assert (one.verdict, one.n, one.difference) == ("cannot tell", 1, pytest.approx(0.8))
    assert (one.interval, one.p, one.detectable, one.seeds_needed) == (None, None, None, None)
    none = compare({1: 0.1}, {2: 0.9}, 0.5)
    assert (none.verdict, none.n, none.difference) == ("cannot tell", 0, None)
    assert none.num_dropped == 2
    assert compare_all({}, []) == ()
    # An open comparison says what it would take; an interval stays within what a difference can be.
    (found,) = study([0.0, 1.0, 2.0], [2.0, 1.5, 2.5])
    assert found.verdict == "cannot tell"
    assert (found.detectable or 0) > abs(found.difference or 0)
    assert (found.seeds_needed or 0) > 3
    table = {"a": {1: 0.1, 2: 0.9}, "b": {1: 0.9, 2: 0.95}}
    (made,) = compare_all(table, [("a", "b")], resolution=0.01, most=1.0)
    assert ends(made) == (-1.0, 1.0)


def test_values_equal_in_every_seed_are_identical() -> None:
    found = compare(by_seed([0.3, 0.5, 0.4]), by_seed([0.1 + 0.2, 0.5, 0.4]), 0.01)
    assert (found.verdict, found.difference) == ("identical", 0)
    assert (found.interval, found.p) == (None, None)
    assert compare({1: 0.5}, {1: 0.5}).verdict == "cannot tell", "one seed is no evidence"
    one_differs = compare(by_seed([0.3, 0.5, 0.4]), by_seed([0.3, 0.5, 0.41]))
    assert one_differs.verdict == "cannot tell"


def test_equivalence_is_shown_by_its_own_interval() -> None:
    close = [shifted(NOISE[0], 0.0), shifted(NOISE[0], 0.001)]
    close[1][0] += 0.05
    (found,) = study(*close, margin=5.0)
    assert (found.verdict, found.confidence) == ("equivalent", 0.90)
    assert -5 < ends(found)[0] < ends(found)[1] < 5
    (no_margin,) = study(*close)
    assert (no_margin.verdict, no_margin.confidence) == ("cannot tell", 0.95)
    with pytest.raises(SpecError, match=r"margin: got 0, must be above 0"):
        study(*close, margin=0)


def test_cells_of_which_one_diverges_more_often_are_never_equivalent_nor_identical() -> None:
    calm = [0.90, 0.91, 0.90, 0.91, 0.90, 0.91, 0.90, 0.91]
    with_failures = [math.nan, math.inf, *calm[2:]]
    found = compare(by_seed(calm), by_seed(with_failures), 0.05)
    assert found.verdict == "cannot tell"
    assert (found.n, found.num_diverged, found.failures.num_a, found.failures.num_b) == (6, 2, 0, 2)
    both = compare(by_seed(with_failures), by_seed(shifted(with_failures, 0.0001)), 0.05)
    assert both.verdict == "equivalent"
    # More seeds never promise an equivalence that failures bar.
    many = [0.5 + 0.001 * (seed % 5) for seed in range(40)]
    found = compare(by_seed(many), by_seed([math.nan, *many[:-1]]), 0.5)
    assert found.verdict == "cannot tell"
    assert found.seeds_needed is None or found.seeds_needed > 40


def test_an_interval_beside_a_withheld_verdict_holds_zero() -> None:
    """That of 90%, which decides, may leave it out."""
    first = [0.900 + 0.002 * (seed % 2) for seed in range(8)]
    second = [value + 0.0016 + 0.0018 * (seed % 3 - 1) for seed, value in enumerate(first)]
    (alike,) = study(first[:6], second[:6], margin=0.03)
    assert alike.verdict == "equivalent"
    assert not ends(alike)[0] <= 0 <= ends(alike)[1]
    (found,) = study(first, [*second[:-2], math.nan, math.nan], margin=0.03)
    assert (found.verdict, found.is_withheld, found.confidence) == ("cannot tell", True, 0.95)
    assert ends(found)[0] <= 0 <= ends(found)[1]


def test_a_cell_that_explodes_leaves_the_noise_of_others_alone() -> None:
    *calm, exploded = study(
        *([0.50, 0.51, 0.52], [0.51, 0.50, 0.53], [0.49, 0.52, 0.51], [0.50, 0.52, 0.50]),
        *([0.53, 0.51, 0.50], [1e30, 2e30, 4e30]),
    )
    for found in calm:
        assert found.verdict == "cannot tell"
        assert 0.02 < ends(found)[1] - ends(found)[0] < 0.2
    assert ends(exploded)[1] > 1e30


def test_what_looks_cost_is_part_of_what_is_promised() -> None:
    table = {"a": by_seed(NOISE[0][:3]), "b": by_seed(shifted(NOISE[1][:3], 0.4))}
    (plain,) = compare_all(table, [("a", "b")])
    (looked,) = compare_all(table, [("a", "b")], looks=(3, 4, 6, 8, 12, 20))
    assert (looked.detectable or 0) > 1.5 * (plain.detectable or math.inf)
    assert (looked.detectable or 0) > (ends(looked)[1] - ends(looked)[0]) / 2


values = st.lists(st.integers(-1000, 1000).map(float), min_size=2, max_size=8)


@settings(deadline=None, max_examples=10)
@given(values, st.integers(-1000, 1000), st.floats(0.01, 100))
def test_verdicts_ignore_order_level_and_unit(
    drawn: list[float], shift: int, factor: float
) -> None:
    a, b = {s: float(s * s % 7) for s in range(len(drawn))}, dict(enumerate(drawn))
    plain, swapped = compare(a, b, 50.0), compare(b, a, 50.0)
    moved_a, moved_b = ({s: v * factor + shift for s, v in x.items()} for x in (a, b))
    moved = compare(moved_a, moved_b, 50.0 * factor)
    assert swapped.difference == pytest.approx(-(plain.difference or 0))
    assert swapped.verdict == plain.verdict
    if plain.p is not None and abs(plain.p - 0.05) > 0.001:
        assert moved.verdict == plain.verdict
        assert moved.p == pytest.approx(plain.p, abs=1e-3)


def test_an_interval_never_contradicts_its_verdict() -> None:
    rng, seen = np.random.default_rng(8), set()
    for number in range(8):
        cells = rng.integers(0, 40, (3, 3)) / 10 + rng.choice([0, 0, 8], (3, 1))
        if number % 2:
            cells = cells[:1] + 0.1 * cells
        for found in study(*cells.tolist(), margin=1.0):
            seen.add(found.verdict)
            if found.verdict == "equivalent":
                assert -1 < ends(found)[0] <= ends(found)[1] < 1
            elif found.verdict != "identical":
                assert (found.verdict == "cannot tell") == (ends(found)[0] <= 0 <= ends(found)[1])
    assert seen >= {"different", "equivalent", "cannot tell"}


def test_failures_are_counted_by_cell_and_missing_seeds_not_imputed() -> None:
    found = Failures.of({1: 0.5, 2: math.nan, 3: 0.5}, {1: math.inf, 2: 0.5, 3: 0.5, 4: math.nan})
    assert found == Failures(num_a=1, of_a=3, num_b=2, of_b=4, num_left_out=2)
    assert found.differ
    assert not Failures.of({1: math.nan}, {1: math.nan}).differ
    assert Failures.of({1: 0.5}, {1: 0.5}).p is None
    a = dict.fromkeys(range(8), 0.0)
    b = {seed: 1.0 + seed / 100 for seed in range(1, 9)} | {3: math.nan}
    one = compare(a, b)
    assert (one.n, one.num_dropped, one.num_diverged, one.mean_a) == (6, 2, 1, 0)


def test_fisher_agrees_with_scipy() -> None:
    for num_a, rest_a, num_b, rest_b in ((0, 8, 3, 5), (1, 9, 7, 2), (4, 4, 4, 4), (9, 0, 1, 9)):
        found = Failures(num_a, num_a + rest_a, num_b, num_b + rest_b, 0).p
        expected = stats.fisher_exact([[num_a, rest_a], [num_b, rest_b]]).pvalue
        assert found == pytest.approx(expected)
