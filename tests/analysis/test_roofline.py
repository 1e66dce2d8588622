from pathlib import Path
from typing import Any

import pytest
from test_cost_summary import LAYERS, record, row

from fabricate import Fabricated, made_study
from trainlab.analysis.evidence import gather
from trainlab.analysis.layers import layer_table
from trainlab.analysis.measurement import Measurement, summarise
from trainlab.analysis.roofline import limiting_precision, peak_note, roofline, step_roofline
from trainlab.errors import RecordError
from trainlab.record.cost_record import LayerRow, LimitsRecord, WorkRecord
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import CostSpec
from trainlab.words import Words


def machine_of(**flops_per_s: float) -> LimitsRecord:
    """A machine of 100 bytes/s."""
    return LimitsRecord(
        device_name="d", threads=1, torch="2", measured="", flops_per_s=flops_per_s, bytes_per_s=100
    )


A_CPU = machine_of(fp32=1000, bf16=4000)
A_GPU = machine_of(fp32=1000, tf32=2000, bf16=4000)


def test_shares_are_those_of_the_peaks_by_hand() -> None:
    found = roofline({"fp32": 3000}, num_bytes=80, time_s=4, limits=A_CPU)
    assert (found.flops_per_s, found.bytes_per_s) == (750, 20)
    assert (found.compute_share, found.memory_share) == (0.75, 0.2)
    assert (found.near, found.precision) == ("compute", "fp32")
    # Work of two precisions is held against the time that both need at least.
    found = roofline({"fp32": 500, "tf32": 200}, 0, 2, A_GPU)
    assert found.compute_share == pytest.approx((500 / 1000 + 200 / 2000) / 2)
    assert (found.precision, found.flops_per_s) == ("fp32+tf32", 350)
    with pytest.raises(RecordError, match=r"limits.json: has no tf32, only fp32, bf16"):
        roofline({"tf32": 1}, 1, 1, A_CPU)


def test_the_limit_with_the_larger_share_is_near_and_far_below_both_neither_is() -> None:
    for flops, num_bytes, near in (
        *((900, 10, "compute"), (150, 14, "compute"), (500, 50, "compute")),
        *((900, 95, "memory"), (0, 15, "memory")),
        *((149, 14, "neither"), (0, 0, "neither")),
    ):
        assert roofline({"fp32": flops}, num_bytes, 1, A_CPU).near == near, (flops, num_bytes)


ONLY_CONVOLUTIONS = {"matmul": False, "convolution": True}
ONLY_PRODUCTS = {"matmul": True, "convolution": False}


def test_the_peak_is_that_of_the_precision_the_work_may_run_in() -> None:
    for kind, precision, tf32, machine, expected in (
        ("matmul", "bf16", {"matmul": True, "convolution": True}, A_GPU, "bf16"),
        ("convolution", "fp32", ONLY_CONVOLUTIONS, A_GPU, "tf32"),
        ("recurrent", "fp32", ONLY_CONVOLUTIONS, A_GPU, "tf32"),
        ("matmul", "fp32", ONLY_CONVOLUTIONS, A_GPU, "fp32"),
        ("matmul", "fp32", ONLY_PRODUCTS, A_GPU, "tf32"),
        ("convolution", "fp32", ONLY_PRODUCTS, A_GPU, "fp32"),
        ("convolution", "fp32", ONLY_CONVOLUTIONS, A_CPU, "fp32"),
        ("convolution", "fp32", None, A_GPU, "fp32"),
    ):
        assert limiting_precision(kind, precision, tf32, machine) == expected, (kind, tf32)


def gpu_step(*rows: LayerRow, **more: Any) -> Measurement:
    """A training step of one second on a GPU where only convolutions may run as TF32."""
    asked = {"id": "t", "kind": "cost", "workload": "w", "seed": 1}
    trial = TrialRecord(**asked, settings={"precision": "fp32"}, state="done")
    layers = LAYERS.model_copy(update={"rows": list(rows), **more})
    costs = (record([1000.0], phases_ms={"forward": [1000.0]}, round_steps=1),)
    trial = trial.model_copy(update={"resolved": {"tf32": ONLY_CONVOLUTIONS}})
    times = {"costs": costs, "process_ms": (1000.0,), "summary": summarise(costs, (1000.0,))}
    seen = {"operators": None, "layers": layers, "memory": None, "limits": A_GPU}
    return Measurement(trial=trial, processes=("t",), **times, **seen)


LINEAR = row("fc", type="Linear", forward_flops=100, backward_flops=200)
CONV = row("conv", type="Conv2d", forward_flops=100, backward_flops=100)


def test_a_linear_layer_is_held_against_fp32_where_only_convolutions_may_use_tf32() -> None:
    for layer, kinds, precision, share in (
        (LINEAR, {}, "fp32", 0.3),
        (LINEAR, {"matmul": 300}, "fp32", 0.3),
        (CONV, {}, "tf32", 0.1),
        (CONV, {"convolution": 200}, "tf32", 0.1),
    ):
        step = step_roofline(gpu_step(layer.model_copy(update={"flops_by_kind": kinds})))
        assert step is not None
        assert (step.precision, step.compute_share) == (precision, pytest.approx(share))
    both = step_roofline(gpu_step(LINEAR, CONV))
    assert both is not None
    assert both.compute_share == pytest.approx(0.3 + 0.1)
    # The optimizer's work is part of the step: three quarters of the memory's speed are not "neither".
    work = WorkRecord(num_bytes=70), WorkRecord(num_bytes=5)
    found = step_roofline(gpu_step(LINEAR, optimizer=work[0], between=work[1]))
    assert found is not None
    assert (found.memory_share, found.near) == (pytest.approx(0.75), "memory")


def test_layers_share_the_bare_step_and_the_last_row_is_what_none_accounts_for() -> None:
    table = layer_table(gpu_step(LINEAR), Words("en"))
    texts = {row.entries[0].text: [entry.text for entry in row.entries[1:]] for row in table.rows}
    # 40 of 100 µs of the forward pass, which takes a second where it is not watched.
    assert texts["fc"] == ["Linear", "2x3", "", "0.0001", "400", "0", "40.0%", "compute 75%"]
    assert list(texts.values())[-1] == ["", "", "", "", "600", "0", "60.0%", ""]


def test_every_step_is_held_against_the_best_peaks_and_busy_ones_say_so(tmp_path: Path) -> None:
    words, of = Words("en"), {"vary": {"batch_size": (1, 4, 16)}, "learn": False}
    folder = Fabricated().write(tmp_path / "run", made_study(**of, cost=CostSpec()))
    homes = [home for one in folder.trials() if (home := folder.trial(one.id)).limits.exists()]
    for number, home in enumerate(homes, 1):
        peaks = {"flops_per_s": {"fp32": 100.0 - number}, "bytes_per_s": number, "busy": True}
        home.limits.write(home.limits.read().model_copy(update=peaks))
    seen = [one.limits for one in gather(folder).measured if one.limits is not None]
    found = [(one.flops_per_s["fp32"], one.bytes_per_s, one.busy) for one in seen]
    assert found == [(99.0, len(homes), True)] * len(homes)
    low, quiet = (roofline({}, 400, 1, A_CPU.model_copy(update={"busy": b})) for b in (True, False))
    assert "peaks were measured: they are perhaps too low" in peak_note([quiet, low], words)
    assert "caches may have served" in peak_note([quiet, None], words)
    homes[1].limits.write(homes[1].limits.read().model_copy(update={"busy": False}))
    assert not any(one.limits and one.limits.busy for one in gather(folder).measured)
