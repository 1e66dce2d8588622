import math

from trainlab.analysis.learning import first_reached
from trainlab.spec.study import Target
from trainlab.stats.means import censored_median

ACCURACY = Target("test/accuracy", "at least", 0.9)


def epochs(*values: float | None) -> list[dict[str, float | None]]:
    """Ten seconds an epoch."""
    return [
        {"epoch": number, "time_s": 10.0 * number, "test/accuracy": value}
        for number, value in enumerate(values, start=1)
    ]


def test_the_first_epoch_that_meets_the_target_counts_even_if_a_later_one_falls_back() -> None:
    assert first_reached(epochs(0.5, 0.92, 0.88), ACCURACY) == (2, 20.0)
    assert first_reached(epochs(0.5, 0.9)[::-1], ACCURACY) == (2, 20.0)


def test_a_trial_that_never_gets_there_is_later_than_all_others() -> None:
    for never in (epochs(0.5, None), epochs()):
        assert first_reached(never, ACCURACY) == (math.inf, math.inf)
    assert censored_median([2.0, 3.0, math.inf]) == 3.0
    assert censored_median([2.0, math.inf, math.inf]) is None
