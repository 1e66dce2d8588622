import math
import random
import statistics
from typing import Any

import pytest
from scipy import stats

from trainlab.analyse.cost.summary import repeat_interval, summarise
from trainlab.record.cost import CostRecord, LoadRecord
from trainlab.stats.median import median_interval
from trainlab.words import Words

QUIET = LoadRecord(
    load_before=0, others_cores=0, stolen_cores=0, cpu_mhz=None, governor=None, affinity=None
)


def record(step_ms: list[float], **changes: Any) -> CostRecord:
    values: dict[str, Any] = {
        "mode": "train",
        "batch_size": 50,
        "num_samples": 1000,
        "steps_per_epoch": 20,
        "warmup_ms": [900.0, 12.0],
        "cold": [],
        "settled": [],
        "round_steps": 4,
        "step_ms": step_ms,
        "phases_ms": {"forward": [6.0] * 4, "other": [5.0] * 4},
        "stopped": "budget",
        "load": QUIET,
    }
    return CostRecord(**(values | changes))


def test_units_on_hand_worked_numbers() -> None:
    found = summarise([record([10.0] * 8), record([10.0] * 8)])
    assert found.step_ms.value == pytest.approx(10)
    assert found.sample_us.value == pytest.approx(200)
    assert found.epoch_s.value == pytest.approx(0.2)
    assert found.samples_per_s.value == pytest.approx(5000)
    # Marked steps took 6 + 5 ms where bare ones took 10.
    assert found.phases_ms == pytest.approx({"forward": 60 / 11, "other": 50 / 11})
    assert found.first_step_ms == 900
    assert (found.num_steps, found.num_processes, found.num_warmup_steps) == (16, 2, 2)
    assert found.warnings == ()


def test_a_sample_is_a_process_not_a_step() -> None:
    few = summarise([record([10.0] * 8), record([12.0] * 8)]).step_ms
    many = summarise([record([10.0] * 800), record([12.0] * 800)]).step_ms
    assert few == many
    assert few.value == pytest.approx(math.sqrt(120))


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([record([10.0] * 9), record([12.0] * 9)], "processes differ by 20 %"),
        ([record([10.0, 20.0, 10.0, 20.0] * 5)], "steps of one process spread by"),
        ([record([10.0] * 10 + [11.2] * 20)], "steps drift by"),
        (
            [record([10.0] * 9, load=QUIET.model_copy(update={"others_cores": 1.5}))],
            "used 1.5 cores",
        ),
        (
            [record([10.0] * 9, load=QUIET.model_copy(update={"stolen_cores": 0.4}))],
            "took 0.4 cores",
        ),
    ],
)
def test_an_unstable_measurement_says_why(records: list[CostRecord], told: str) -> None:
    words = Words("en")
    warnings = summarise(records).warnings
    assert any(told in words.warning(one.code, one.value) for one in warnings)


@pytest.mark.parametrize("count", [3, 5, 10])
def test_a_repeated_measurement_falls_inside_the_interval_at_the_stated_rate(count: int) -> None:
    draw, inside, trials = random.Random(count), 0, 4000
    for _ in range(trials):
        first, second = ([math.exp(draw.gauss(0, 0.1)) for _ in range(count)] for _ in range(2))
        interval = repeat_interval(first)
        repeated = math.exp(statistics.fmean(map(math.log, second)))
        inside += interval.low <= repeated <= interval.high
    assert inside / trials == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 20, 101, 999, 1000, 5000])
def test_the_interval_of_a_median_covers_at_95_per_cent_by_the_binomial_law(count: int) -> None:
    _, low, high = median_interval(range(count))
    below = int(low)
    assert high == count - 1 - below
    if count < 6:  # not even the whole range covers at 95 %
        assert below == 0
    else:
        assert 1 - 2 * stats.binom.cdf(below, count, 0.5) >= 0.949
        assert 1 - 2 * stats.binom.cdf(below + 1, count, 0.5) < 0.951
