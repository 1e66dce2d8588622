import math

from trainlab.analysis.learning import EpochValue, first_reached, time_to_target
from trainlab.spec.study import Target

ACCURATE = Target("test/accuracy", "at least", 0.9)


def trial(*values: float, epoch_s: float = 2.0) -> list[EpochValue]:
    return [EpochValue(epoch, epoch * epoch_s, value) for epoch, value in enumerate(values, 1)]


def test_the_first_epoch_that_meets_the_target_counts_even_if_a_later_one_falls_back() -> None:
    assert first_reached(trial(0.5, 0.9, 0.8, 0.95), ACCURATE) == EpochValue(2, 4.0, 0.9)


def test_loss_is_reached_from_above() -> None:
    low = Target("test/loss", "at most", 0.3)
    assert first_reached(trial(0.5, 0.31, 0.3), low) == EpochValue(3, 6.0, 0.3)


def test_what_never_gets_there_or_diverges_has_no_time() -> None:
    assert first_reached(trial(0.5, 0.89), ACCURATE) is None
    assert first_reached(trial(math.nan, math.inf), ACCURATE) is None
    assert first_reached(trial(-math.inf), Target("test/loss", "at most", 0.3)) is None
    assert first_reached([], ACCURATE) is None


def test_points_need_not_come_in_order() -> None:
    assert first_reached(trial(0.5, 0.9, 0.95)[::-1], ACCURATE) == EpochValue(2, 4.0, 0.9)


def test_a_cell_says_how_many_got_there_and_when() -> None:
    trials = [trial(0.9), trial(0.1, 0.9), trial(0.1, 0.1, 0.9, epoch_s=1.0), trial(0.1, 0.2), []]
    found = time_to_target(trials, ACCURATE)
    assert (found.num_reached, found.num_trials) == (3, 5)
    # Epochs 1, 2, 3 and 2, 4, 3 seconds, and two that never got there: they are later than all.
    assert (found.median_epoch, found.median_elapsed_s) == (3, 4)
    assert found.epochs == (1, 2, 3, math.inf, math.inf)
    assert time_to_target(trials[2:], ACCURATE).median_epoch is None


def test_a_cell_without_trials_has_no_median() -> None:
    empty = time_to_target([], ACCURATE)
    assert (empty.num_trials, empty.num_reached) == (0, 0)
    assert (empty.median_epoch, empty.median_elapsed_s) == (None, None)
