import numpy as np
import pytest

from trainlab.errors import SpecError
from trainlab.stats.batch_line import TimeNoise, fit_batches, noise_of

EXACT = TimeNoise(0.0, 6)
"""Times that would be the same again."""


def test_a_line_is_found_on_hand_worked_numbers() -> None:
    # 2 ms and 0.5 ms a sample: 2.5, 4, 10, 34.
    fit = fit_batches({1: 2.5, 4: 4.0, 16: 10.0, 64: 34.0})
    assert fit.fixed.value == pytest.approx(2)
    assert fit.per_sample.value == pytest.approx(0.5)
    # From 16 to 32 a sample takes 18/32 = 0.5625 instead of 10/16 = 0.625: exactly a tenth less.
    assert fit.enough == pytest.approx(4 * 2 / 0.5)
    assert fit.predict(100).value == pytest.approx(52)
    assert [one.error for one in fit.left_out] == pytest.approx([0, 0, 0, 0], abs=1e-9)
    assert fit.verdict == "fits"


def test_errors_are_relative_so_small_batches_count() -> None:
    # Absolute errors would let 1 ms at batch 1024 outweigh 100% at batch 1.
    fit = fit_batches({1: 1.0, 2: 1.0, 512: 52.0, 1024: 104.0})
    assert fit.fixed.value == pytest.approx(0.85, abs=0.1)


def test_neither_part_goes_below_zero() -> None:
    faster_than_linear = fit_batches({1: 1.0, 10: 12.0, 100: 140.0})
    assert faster_than_linear.fixed.value == 0
    assert faster_than_linear.enough == 0
    assert faster_than_linear.fixed.interval is not None
    assert faster_than_linear.fixed.interval.low == 0
    flat = fit_batches({1: 5.0, 2: 4.9, 4: 4.8})
    assert flat.per_sample.value == 0
    assert flat.enough is None
    assert flat.enough_interval is not None
    assert flat.enough_interval.high == np.inf


def test_two_sizes_give_a_line_but_no_interval_and_no_verdict() -> None:
    fit = fit_batches({1: 3.0, 11: 13.0})
    assert (fit.fixed.value, fit.per_sample.value) == pytest.approx((2, 1))
    assert (fit.fixed.interval, fit.per_sample.interval) == (None, None)
    assert (fit.predict(5).interval, fit.enough_interval) == (None, None)
    assert (fit.left_out, fit.verdict) == ((), "cannot tell")
    # Measured in several processes they have one.
    fit = fit_batches({1: 3.0, 11: 13.0}, TimeNoise(0.01, 4))
    assert fit.fixed.interval is not None
    assert fit.fixed.interval.contains(2)
    assert fit.verdict == "cannot tell"


def test_what_noise_explains_is_not_called_a_misfit() -> None:
    # Each size is predicted from the others: through (1, 1) and (4, 4) it is 2, where 4 was measured.
    fit = fit_batches({1: 1.0, 2: 4.0, 4: 4.0}, EXACT)
    assert fit.left_out[1].error == pytest.approx(-0.5)
    assert fit.verdict == "does not fit"
    bend = {1: 1.0, 8: 1.7, 64: 7.3, 512: 400.0}
    assert [fit_batches(bend, TimeNoise(error, 6)).verdict for error in (0.0, 0.02)] == [
        "does not fit"
    ] * 2
    for few in ({}, {4: 1.0}, {1: 1.0, 2: 0.0}, {0: 1.0, 2: 1.0}):
        with pytest.raises(SpecError, match=r"batch sizes: got .* two or more with positive times"):
            fit_batches(few)
    times = {1: 1.0, 2: 1.5, 4: 1.0}
    assert fit_batches(times, TimeNoise(0.01, 6)).verdict == "does not fit"
    assert fit_batches(times, TimeNoise(0.3, 6)).verdict == "cannot tell"
    assert fit_batches(times).verdict == "cannot tell", "without repeats noise is not known"
    assert fit_batches({1: 1.0, 2: 1.5, 4: 2.5}).verdict == "fits"


def test_noise_is_that_of_the_mean_of_repeats_pooled_over_sizes() -> None:
    # Logs 0 and 0.2, 1 and 1.4: variances 0.02 and 0.08, means of two.
    noise = noise_of([np.exp([0.0, 0.2]).tolist(), np.exp([1.0, 1.4]).tolist()])
    assert noise is not None
    assert (noise.error, noise.degrees_of_freedom) == (pytest.approx(np.sqrt(0.05 / 2)), 2)
    assert noise_of([[1.0], [2.0]]) is None


def test_a_true_line_is_rarely_said_not_to_fit_and_its_intervals_hold() -> None:
    """Three sizes in three processes each, as the lab has them; `benchmarks.verdicts` has more."""
    sizes, studies, level = (1, 16, 64), 600, 0.3
    misfits, held, truths = 0, [], (2, 0.05, 160)
    for draws in np.random.default_rng(5).standard_normal((studies, 3, 3)):
        logs = np.log([2 + 0.05 * size for size in sizes])[:, None] + level * draws
        times = dict(zip(sizes, np.exp(logs.mean(axis=1)).tolist(), strict=True))
        fit = fit_batches(times, noise_of(np.exp(logs).tolist()))
        misfits += fit.verdict == "does not fit"
        intervals = (fit.fixed.interval, fit.per_sample.interval, fit.enough_interval)
        pairs = zip(intervals, truths, strict=True)
        held.append([one is not None and one.contains(true) for one, true in pairs])
    assert misfits / studies <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / studies)
    assert (np.mean(held, axis=0) >= 0.93).all()
