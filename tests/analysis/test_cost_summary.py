"""What processes recorded, put together: hand-worked steps, layers and cold starts."""

import math
import random
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fabricate import QUIET, Fabricated, made_cost, made_study, made_turns
from trainlab.analysis.cold_start import cold_start
from trainlab.analysis.evidence import gather
from trainlab.analysis.layers import layer_times
from trainlab.analysis.measurement import (
    CostSummary,
    Estimate,
    process_noise,
    process_steps_ms,
    repeat_interval,
    summarise,
)
from trainlab.analysis.method import method_section, round_ratios
from trainlab.analysis.overview import data_of
from trainlab.record.cost_record import ColdStep, CostRecord, LayerRow, LayersRecord
from trainlab.spec import CostSpec
from trainlab.words import Words


def record(step_ms: list[float], **changes: Any) -> CostRecord:
    values = {"num_samples": 1000, "steps_per_epoch": 20, "warmup_ms": [900.0, 12.0]}
    values |= {"phases_ms": {"forward": [6.0] * 4, "other": [5.0] * 4}, "round_steps": 4}
    usual = made_cost("train", 50, 10.0, {})
    return usual.model_copy(update={**values, "step_ms": step_ms, **changes})


def summed(records: list[CostRecord]) -> CostSummary:
    """Of processes that ran by themselves."""
    return summarise(records, [statistics.median(one.step_ms) for one in records])


def test_units_on_hand_worked_numbers() -> None:
    found = summed([record([10.0] * 8), record([10.0] * 8)])
    assert found.step_ms.value == pytest.approx(10)
    assert found.sample_us.value == pytest.approx(200)
    assert found.epoch_s.value == pytest.approx(0.2)
    assert found.samples_per_s.value == pytest.approx(5000)
    # Marked steps took 6 + 5 ms where bare ones took 10.
    assert found.phases_ms == pytest.approx({"forward": 60 / 11, "other": 50 / 11})
    assert found.first_step_ms == 900
    assert (found.num_steps, found.num_processes, found.num_warmup_steps) == (16, 2, 2)
    assert found.unstable is None
    # A sample is a process, not a step.
    few, many = (summed([record([10.0] * n), record([12.0] * n)]).step_ms for n in (8, 800))
    assert few == many
    assert few.value == pytest.approx(math.sqrt(120))
    alone = summed([record([10.0, 12.0, 11.0])])
    assert alone.step_ms == Estimate(pytest.approx(11.0))
    assert (alone.epoch_s.low, alone.samples_per_s.high, alone.unstable) == (None, None, None)


def test_a_time_that_is_not_known_well_says_by_how_much_and_why() -> None:
    words = Words("en")
    others, stolen = (
        QUIET.model_copy(update=load) for load in ({"others_cores": 1.5}, {"stolen_cores": 0.4})
    )
    drift, back = ({"step_ms": [10.0] * 10 + [ms] * 20} for ms in (11.2, 8.8))
    for told, changes in (
        ("processes differ by 22%", {}),
        ("steps drift by +12%", drift),
        ("used 1.5 cores", {"load": others}),
        ("took 0.4 cores", {"load": stolen}),
    ):
        records = [record([10.0] * 9).model_copy(update=changes) for _ in range(3)]
        unstable = summarise(records, [10.0, 11.0, 12.2]).unstable
        assert unstable is not None
        # Logs differ by 0.0953 and 0.1035; their deviation is 0.0994, and t(0.975, 2) = 4.3027.
        off_by = math.expm1(4.3027 * 0.0994 * math.sqrt(2 / 3))
        assert unstable.off_by == pytest.approx(off_by, rel=1e-3)
        assert told in words.warning(unstable.reason, unstable.value)
    # What only some processes do no warm-up mends.
    records = [record([10.0] * 9).model_copy(update=change) for change in (drift, back, {})]
    unstable = summarise(records, [10.0, 11.0, 12.2]).unstable
    assert unstable is not None
    assert "speed changes by 12%" in words.warning(unstable.reason, unstable.value)
    # Symptoms alone are no reason to doubt a time that is known well.
    noisy = [record([10.0, 20.0, 10.0] * 5, load=others) for _ in range(3)]
    assert summarise(noisy, [10.0, 10.1, 10.2]).unstable is None


def test_an_epoch_is_what_its_steps_add_up_to() -> None:
    # 21 batches of 50 and one of 25 samples; the step that is shown is the median, 10 ms.
    steps = [10.0, 10.0, 19.0]
    whole = record(steps, num_samples=1075, steps_per_epoch=22, last_ms=[8.0, 7.0, 9.0])
    assert summed([whole]).epoch_s.value == pytest.approx((21 * 10 + 8) / 1e3)
    # From before the last batch was measured: in proportion.
    old = whole.model_copy(update={"last_ms": []})
    assert summed([old]).epoch_s.value == pytest.approx(21.5 * 10 / 1e3)
    even = record(steps, num_samples=1050, steps_per_epoch=21)
    assert summed([even]).epoch_s.value == pytest.approx(21 * 10 / 1e3)


def test_turns_beside_which_something_else_ran_are_set_aside_and_counted() -> None:
    turns = made_turns(7)
    turns[1] = turns[1].model_copy(update={"stolen_cores": 0.5})
    turns[4] = turns[4].model_copy(update={"others_cores": 0.9})
    found = record([10.0, 90.0, 11.0, 12.0, 80.0, 13.0, 14.0], turns=turns, bench="b")
    assert found.quiet_medians_ms() == {1: 10.0, 3: 11.0, 4: 12.0, 6: 13.0, 7: 14.0}
    summary = summarise([found], [12.0])
    assert (summary.num_turns, summary.num_set_aside) == (7, 2)
    assert summary.epoch_s.value == pytest.approx(20 * 12.0 / 1e3)
    # Where most are disturbed all count.
    loud = [turn.model_copy(update={"others_cores": 1.0}) for turn in made_turns(7)]
    found = record([10.0] * 7, turns=loud, bench="b")
    assert len(found.quiet_medians_ms()) == 7
    assert summarise([found], [10.0]).num_set_aside == 0


def test_processes_of_a_bench_are_seen_within_its_rounds() -> None:
    # The machine slows down fourfold after the second round, when the first process has gone.
    slowed = [10.0, 10.0, 40.0, 40.0, 40.0]
    a = record(slowed, turns=made_turns(5), bench="b")
    b = record([20.0, 20.0], turns=made_turns(2), bench="b")
    alone = record([20.0, 20.0], turns=made_turns(2))
    found = process_steps_ms({"a": a, "b": b, "alone": alone})
    assert found["b"] / found["a"] == pytest.approx(2.0)
    assert found["alone"] == pytest.approx(20.0)


def test_a_repeated_measurement_falls_inside_the_interval_at_the_stated_rate() -> None:
    draw, inside = random.Random(3), 0
    for _ in range(2000):
        first, second = ([math.exp(draw.gauss(0, 0.1)) for _ in range(3)] for _ in range(2))
        interval = repeat_interval(first)
        inside += interval.low <= statistics.geometric_mean(second) <= interval.high
    assert inside / 2000 == pytest.approx(0.95, abs=0.016)


def test_three_processes_that_agree_by_luck_have_the_noise_of_the_settings_beside_them() -> None:
    # Deviations of 0.1 in one setting, of 0.001 in the other.
    loose, lucky = ([10 * math.exp(size * z) for z in (-1, 0, 1)] for size in (0.1, 0.001))
    alone = process_noise([lucky])[0]
    assert alone == (pytest.approx(1e-6), pytest.approx(2))
    first, second = process_noise([loose, lucky])
    assert first == (pytest.approx(0.01), pytest.approx(2)), "it varies more and keeps its own"
    variance, freedom = second
    assert variance == pytest.approx((0.01 + 1e-6) / 2)
    assert 2 <= freedom < 4
    # However much a bench does to all settings alike.
    rng = np.random.default_rng(5)
    for of_bench in (0.0, 1.0, 3.0):
        inside = 0
        for _ in range(1000):
            first_time, again = (
                np.exp(0.01 * (rng.standard_normal((4, 3)) + of_bench * rng.standard_normal(3)))
                for _ in range(2)
            )
            found = repeat_interval(first_time[0].tolist(), process_noise(first_time.tolist())[0])
            assert found.low is not None
            assert found.high is not None
            inside += found.low <= statistics.geometric_mean(again[0]) <= found.high
        assert inside / 1000 == pytest.approx(0.96, abs=0.03)


def test_a_machine_that_slows_down_does_not_pass_for_a_cost_of_marking() -> None:
    marked = {"forward": [8.0, 8.0, 16.0, 16.0], "other": [3.0, 3.0, 6.0, 6.0]}
    slowed = record([10.0, 10.0, 20.0, 20.0], phases_ms=marked, round_steps=2)
    assert round_ratios(slowed) == [1.1, 1.1]


NONE_OF = ("num_parameters", "output_bytes", "saved_bytes")


def row(name: str, phase: str = "forward", **changes: Any) -> LayerRow:
    values: dict[str, Any] = dict.fromkeys(NONE_OF, 0)
    values |= {f"{way}_{what}": 0 for way in ("forward", "backward") for what in ("flops", "bytes")}
    values |= {"kind": "module", "type": "Linear", "inputs": [-1], "output_shapes": [[2, 3]]}
    values |= {"first_forward_us": 5000.0, "forward_us": [30.0, 50.0], "backward_us": [100.0] * 2}
    return LayerRow(name=name, call=1, phase=phase, **(values | changes))


LAYERS = LayersRecord(
    mode="train",
    batch_size=2,
    num_steps=2,
    calls_are_equal=False,
    rows=[
        row("a"),
        row("b", forward_us=[20.0], backward_us=[], first_forward_us=None),
        row("loss", phase="loss", forward_us=[5.0, 5.0], backward_us=[0.0, 0.0]),
    ],
    uncounted=[],
    phases_us={"forward": [90.0, 110.0], "loss": [10.0, 10.0], "backward": [200.0, 200.0]},
    bare_ms=[1.0, 2.0],
    watched_ms=[2.0, 4.0],
)


def test_a_layer_gets_its_share_of_the_bare_phases() -> None:
    phases = {"forward": 10.0, "loss": 1.0, "backward": 8.0, "optimizer": 100.0}
    first, second, loss = layer_times(LAYERS, phases)
    assert first == pytest.approx((4.0, 4.0))
    # It ran in one of two steps only.
    assert second == pytest.approx((1.0, 0.0))
    assert loss[0] == pytest.approx(0.5)


def test_the_first_step_is_laid_beside_settled_ones() -> None:
    def step(forward: float, pages: int) -> ColdStep:
        unknown = {"libraries_loaded": None, "device_allocations": None}
        phases_ms = {"forward": forward, "other": 1.0}
        return ColdStep(phases_ms=phases_ms, page_faults=pages, modules_imported=0, **unknown)

    cold, settled = [step(100.0, 500), step(30.0, 0)], [step(9.0, 0), step(10.0, 2), step(11.0, 0)]
    found = cold_start([record([10.0], cold=cold, settled=settled)] * 2, LAYERS)
    assert found is not None
    assert (found.step_ms.first, found.step_ms.settled) == (101.0, 11.0)
    phases = [(p.name, p.first, p.settled) for p in found.phases_ms]
    assert phases == [("forward", 100.0, 10.0), ("other", 1.0, 1.0)]
    assert found.phases_ms[0].ratio == 10
    evidence = {pair.name: (pair.first, pair.settled) for pair in found.evidence}
    assert evidence["page_faults"] == (500, 0)
    assert "libraries" not in evidence
    assert [(p.name, p.first, p.settled) for p in found.layers_ms[:1]] == [("loss", 5.0, 0.005)]
    assert len(found.layers_ms) == 2
    assert cold_start([record([10.0])], None) is None, "without a warm-up"


def test_the_method_gives_the_warm_up_steps_of_all_processes(tmp_path: Path) -> None:
    folder = Fabricated().write(tmp_path / "run", made_study(learn=False, cost=CostSpec()))
    for number, trial in enumerate(one for one in folder.trials() if one.watch == "steps"):
        file = folder.trial(trial.id).cost
        warmup_ms = [3.0] * (10 + number)
        file.write(file.read().model_copy(update={"warmup_ms": warmup_ms}))
    data = data_of(gather(folder))
    (first, *_) = method_section(data, Words("en")).blocks
    num_processes = len(data.evidence.measured[0].costs)
    assert f" 10 to {9 + num_processes} warm-up steps each" in getattr(first, "text", "")
