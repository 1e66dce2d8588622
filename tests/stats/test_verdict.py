import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trainlab.errors import SpecError
from trainlab.stats import paired
from trainlab.stats.paired import fewest_pairs, p_different, p_equivalent, p_flip
from trainlab.stats.power import detectable, seeds_for
from trainlab.stats.verdict import Comparison, compare, compare_all, decide, holm

values = st.lists(st.integers(-1000, 1000).map(float), min_size=2, max_size=10)
shares = st.lists(st.floats(0, 1), max_size=12)


def against_zero(differences: Sequence[float], margin: float | None = None) -> Comparison:
    return compare(
        dict.fromkeys(range(len(differences)), 0.0), dict(enumerate(differences)), margin
    )


def test_sign_flip_on_hand_worked_numbers() -> None:
    # 1, 2, 4: of the 8 sums 7, 5, 3, 1, -1, -3, -5, -7 two are at least 7 away: 2/8.
    assert float(p_flip(np.array([1.0, 2.0, 4.0]))) == 0.25
    # -1, 2, 4: the sum is 5; 7, 5, -5, -7 are at least as far: 4/8.
    assert float(p_flip(np.array([-1.0, 2.0, 4.0]))) == 0.5
    assert float(p_flip(np.array([1.0] * 6))) == 2 / 64


def test_p_is_the_larger_of_the_two_tests() -> None:
    # All of one sign, one far out: the flip says 2/64, Student's t says more.
    far = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 50.0])
    assert float(p_different(far)) == pytest.approx(stats.ttest_1samp(far, 0).pvalue)
    near = np.array([1.0, 1.1, 0.9, 1.0, 1.05, 0.95])
    assert float(p_different(near)) == 2 / 64


def test_equivalence_on_hand_worked_numbers() -> None:
    # No difference at all in 5 seeds, margin 1: one pattern of 2^5 is as far out. 4 seeds: 1/16.
    assert float(p_equivalent(np.zeros(5), 1.0)) == 1 / 32
    assert float(p_equivalent(np.zeros(4), 1.0)) == 1 / 16
    # 90 % t interval of 0.1 +- 0.2 spread: equivalent exactly if it lies within the margin.
    d = np.array([0.3, -0.1, 0.2, 0.0, 0.1, 0.3, -0.1, 0.1])
    reach = stats.t.ppf(0.95, 7) * d.std(ddof=1) / math.sqrt(8)
    assert float(p_equivalent(d, float(d.mean() + reach) * 1.01)) < 0.05
    assert float(p_equivalent(d, float(d.mean() + reach) * 0.99)) > 0.05


def test_patterns_drawn_beyond_sixteen_pairs_agree_with_student() -> None:
    d = np.random.default_rng(3).normal(0.4, 1, (20, 40))
    assert p_flip(d) == pytest.approx(stats.ttest_1samp(d, 0, axis=1).pvalue, abs=0.02)
    assert float(p_flip(np.ones(40))) == 2**-15


def test_holm_on_hand_worked_numbers() -> None:
    # Sorted 0.01, 0.02, 0.03, times 3, 2, 1: 0.03, 0.04, then 0.03 lifted to 0.04.
    assert holm([0.03, 0.01, None, 0.02]) == pytest.approx([0.04, 0.03, None, 0.04])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@settings(deadline=None)
@given(shares)
def test_holm_keeps_the_order_and_never_lowers_p(raw: list[float]) -> None:
    adjusted = [p for p in holm(raw) if p is not None]
    assert len(adjusted) == len(raw)
    assert all(p <= q <= 1 for p, q in zip(raw, adjusted, strict=True))
    assert [q for _, q in sorted(zip(raw, adjusted, strict=True))] == sorted(adjusted)


@settings(deadline=None)
@given(values, st.integers(-1000, 1000), st.floats(0.01, 100))
def test_p_ignores_the_order_of_cells_their_level_and_their_unit(
    drawn: list[float], shift: int, factor: float
) -> None:
    seeds = range(len(drawn))
    a, b = {s: float(s * s % 7) for s in seeds}, dict(zip(seeds, drawn, strict=True))
    plain, swapped = compare(a, b, 50.0), compare(b, a, 50.0)
    moved_a, moved_b = ({s: v * factor + shift for s, v in x.items()} for x in (a, b))
    moved = compare(moved_a, moved_b, 50.0 * factor)
    assert (swapped.p, swapped.p_equivalent) == pytest.approx((plain.p, plain.p_equivalent))
    assert (moved.p, moved.p_equivalent) == pytest.approx((plain.p, plain.p_equivalent), abs=1e-6)
    assert plain.difference is not None
    assert swapped.difference is not None
    assert swapped.difference.value == pytest.approx(-plain.difference.value)
    assert swapped.verdict == plain.verdict


@settings(deadline=None)
@given(values)
def test_different_alone_means_that_the_interval_excludes_zero(drawn: list[float]) -> None:
    found = against_zero(drawn)
    assert found.difference is not None
    assert found.difference.interval is not None
    if found.verdict == "different":
        assert not found.difference.interval.contains(0.0)


def test_three_verdicts() -> None:
    assert against_zero([1.0, 1.1, 0.9, 1.0, 1.2, 0.8]).verdict == "different"
    assert against_zero([0.1, -0.1, 0.0, 0.1, -0.1, 0.0], margin=1.0).verdict == "equivalent"
    assert against_zero([0.1, -0.1, 0.0, 0.1, -0.1, 0.0]).verdict == "cannot tell"
    assert against_zero([9.0, -8.0, 7.0, 1.0, -3.0, 0.0], margin=1.0).verdict == "cannot tell"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
def test_too_few_seeds_never_tell_however_large_the_effect(count: int) -> None:
    found = against_zero([100.0 + seed for seed in range(count)])
    assert (found.verdict, found.n, found.fewest_seeds, found.detectable) == (
        "cannot tell",
        count,
        6,
        None,
    )
    assert found.seeds_needed == (6 if count > 1 else None)
    assert (found.p is None) == (count < 2)


def test_a_larger_family_needs_more_seeds() -> None:
    # 2^(1-n) <= 0.05 / m: 1/32 at 6 for one, 1/128 at 8 for four, 1/512 at 10 for twenty.
    assert [fewest_pairs(0.05 / size) for size in (1, 2, 4, 20)] == [6, 7, 8, 10]
    clear = against_zero([1.0, 1.1, 0.9, 1.0, 1.2, 0.8])
    assert clear.verdict == "different"
    family = decide([clear] * 4)
    assert {(c.verdict, c.family, c.fewest_seeds, c.seeds_needed) for c in family} == {
        ("cannot tell", 4, 8, 8)
    }
    assert family[0].p_holm == pytest.approx(4 * 2 / 64)
    assert decide(family[:1]) == (clear,)


@pytest.mark.parametrize("differences", [[0.0] * 8, [2.0] * 8, [0.1] * 3, [0.0, 0.0, 1.0]])
def test_ties_zeros_and_constants_do_not_crash(differences: list[float]) -> None:
    found = against_zero(differences, margin=0.5)
    assert found.p is not None
    assert 0 < found.p <= 1
    expected = {0.0: "equivalent", 2.0: "different"} if len(differences) == 8 else {}
    assert found.verdict == expected.get(differences[0], "cannot tell")


def test_rounding_alone_is_neither_a_difference_nor_less_than_the_margin() -> None:
    assert 0.1 + 0.2 > 0.3
    equal = compare(dict.fromkeys(range(8), 0.3), dict.fromkeys(range(8), 0.1 + 0.2))
    assert (equal.p, equal.verdict) == (1, "cannot tell")
    assert 0.3 - 0.2 < 0.1
    at_margin = np.full(8, 0.3 - 0.2)
    assert float(p_equivalent(at_margin, 0.1)) > 0.4


def test_missing_and_diverged_seeds_are_counted_not_imputed() -> None:
    a = dict.fromkeys(range(8), 0.0)
    b = {seed: 1.0 + seed / 100 for seed in range(1, 9)} | {3: math.nan, 4: math.inf}
    found = compare(a, b)
    assert (found.n, found.num_dropped, found.num_diverged) == (5, 2, 2)
    assert found.verdict == "cannot tell"
    assert found.mean_a == 0


def test_a_difference_of_nothing_cannot_say_how_many_seeds() -> None:
    found = against_zero([1.0, -1.0, 2.0, -2.0, 3.0, -3.0])
    assert (found.verdict, found.seeds_needed) == ("cannot tell", None)
    within = against_zero([1.0, -1.0, 2.0, -2.0, 3.0, -3.0], margin=1.5)
    assert within.verdict == "cannot tell"
    # Both sides with power 0.9, one-sided 5 %: about ((1.645 + 1.282) / (1.5 / 2.366))^2 = 21.3, and a
    # few more because the spread is not known.
    assert within.seeds_needed == pytest.approx(23, abs=1)


def test_a_margin_must_be_positive() -> None:
    with pytest.raises(SpecError, match=r"margin: got 0, must be above 0"):
        compare({}, {}, margin=0)


def test_seeds_for_an_effect_and_the_effect_of_seeds_agree() -> None:
    # The textbook's 34 pairs for half a standard deviation, two-sided 5 %, power 0.8.
    assert seeds_for(0.5, 0.05) == 34
    assert detectable(34, 0.05) == pytest.approx(0.495, abs=0.005)
    assert seeds_for(100.0, 0.05) == 6
    assert seeds_for(0.0, 0.05) is None
    assert seeds_for(1e-4, 0.05) is None
    assert detectable(5, 0.05) is None


@pytest.mark.parametrize(("count", "family"), [(6, 1), (9, 1), (8, 4), (12, 4)])
def test_the_detectable_effect_is_found_in_eight_of_ten_studies(count: int, family: int) -> None:
    effect = detectable(count, 0.05 / family)
    assert effect is not None
    drawn = np.random.default_rng(100 + count).standard_normal((4000, count)) + effect
    found = float((p_different(drawn) <= 0.05 / family).mean())
    print(f"{count} seeds, family of {family}: {effect:.2f} std found in {found:.1%}")
    assert found == pytest.approx(0.8, abs=0.025)


def drawn_noise(name: str, shape: tuple[int, ...]) -> np.ndarray:
    draw = np.random.default_rng(7)
    if name == "skewed":
        return np.exp(draw.standard_normal(shape))
    if name == "heavy-tailed":
        return draw.standard_t(2, shape)
    return draw.standard_normal(shape)


@pytest.mark.parametrize("name", ["normal", "skewed", "heavy-tailed"])
@pytest.mark.parametrize("count", [3, 5, 6, 8, 10])
def test_studies_without_a_difference_are_called_different_in_at_most_one_of_twenty(
    name: str, count: int
) -> None:
    studies, family = 10_000, 3
    cells = drawn_noise(name, (studies, family + 1, count))
    p = p_different(cells[:, 1:] - cells[:, :1])
    false = sum(min(q for q in holm(row) if q is not None) <= 0.05 for row in p.tolist())
    print(f"{name}, {count} seeds, {family} comparisons: {false / studies:.2%}")
    assert false / studies <= 0.05


def test_verdicts_of_whole_comparisons_hold_the_rate_too() -> None:
    studies, false = 1000, 0
    cells = np.random.default_rng(11).standard_normal((studies, 3, 9)).tolist()
    for base, one, other in cells:
        a, b, c = (dict(enumerate(cell)) for cell in (base, one, other))
        family = decide([compare(a, b), compare(a, c)])
        false += any(comparison.verdict == "different" for comparison in family)
    print(f"9 seeds, 2 comparisons: {false / studies:.2%}")
    assert false / studies <= 0.05


@pytest.mark.parametrize("count", [5, 8, 10])
def test_a_difference_as_large_as_the_margin_is_seldom_called_equivalent(count: int) -> None:
    drawn = np.random.default_rng(count).standard_normal((10_000, count)) + 1
    false = float((p_equivalent(drawn, 1.0) <= 0.05).mean())
    print(f"{count} seeds: {false:.2%}")
    assert false <= 0.05


def test_comparisons_made_together_are_those_made_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paired, "SUMS_AT_ONCE", 2**17)  # a few at a time
    noise = np.random.default_rng(5).normal(size=(60, 2, 18)).tolist()
    sizes = [0, 1, 2, 3, 8, 16, 18] * 8
    cells = [
        (dict(enumerate(a[:size])), dict(enumerate(b[:size])))
        for (a, b), size in zip(noise, sizes, strict=False)
    ]
    alone = [compare(a, b, margin=0.5) for a, b in cells]
    for one, other in zip(compare_all(cells, margin=0.5), decide(alone), strict=True):
        assert (one.n, one.difference, one.family) == (other.n, other.difference, other.family)
        assert (one.p_holm, one.p_equivalent_holm) == pytest.approx(
            (other.p_holm, other.p_equivalent_holm)
        )
        assert one.verdict == other.verdict
    assert compare_all([]) == ()
