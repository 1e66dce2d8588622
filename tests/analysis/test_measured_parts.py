"""Ledger, cold start and layer times on hand-worked numbers."""

from typing import Any

import pytest

from trainlab.analysis.cold_start import cold_start
from trainlab.analysis.layers import layer_times
from trainlab.analysis.method import round_ratios
from trainlab.record.cost_record import ColdStep, CostRecord, LayerRow, LayersRecord, LoadRecord

QUIET = LoadRecord(
    load_before=0, others_cores=0, stolen_cores=0, cpu_mhz=None, governor=None, affinity=None
)


def step(forward: float, pages: int) -> ColdStep:
    return ColdStep(
        phases_ms={"forward": forward, "other": 1.0},
        page_faults=pages,
        modules_imported=0,
        libraries_loaded=None,
        device_allocations=None,
    )


def cost(**changes: Any) -> CostRecord:
    values: dict[str, Any] = {
        "mode": "train",
        "batch_size": 50,
        "num_samples": 1000,
        "steps_per_epoch": 20,
        "warmup_ms": [101.0],
        "cold": [step(100.0, 500), step(30.0, 0)],
        "settled": [step(9.0, 0), step(10.0, 2), step(11.0, 0)],
        "round_steps": 2,
        "step_ms": [10.0, 10.0, 20.0, 20.0],
        "phases_ms": {"forward": [8.0, 8.0, 16.0, 16.0], "other": [3.0, 3.0, 6.0, 6.0]},
        "stopped": "budget",
        "load": QUIET,
    }
    return CostRecord(**(values | changes))


def row(name: str, phase: str = "forward", **changes: Any) -> LayerRow:
    values: dict[str, Any] = {
        "name": name,
        "call": 1,
        "kind": "module",
        "type": "Linear",
        "phase": phase,
        "inputs": [-1],
        "output_shapes": [[2, 3]],
        "num_parameters": 0,
        "forward_flops": 0,
        "backward_flops": 0,
        "forward_bytes": 0,
        "backward_bytes": 0,
        "output_bytes": 0,
        "saved_bytes": 0,
        "first_forward_us": 5000.0,
        "first_backward_us": None,
        "forward_us": [30.0, 50.0],
        "backward_us": [100.0, 100.0],
    }
    return LayerRow(**(values | changes))


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


def test_a_machine_that_slows_down_does_not_pass_for_a_cost_of_marking() -> None:
    assert round_ratios(cost()) == [1.1, 1.1]


def test_the_first_step_is_laid_beside_settled_ones() -> None:
    found = cold_start([cost(), cost()], LAYERS)
    assert found is not None
    assert (found.step_ms.first, found.step_ms.settled) == (101.0, 11.0)
    assert [(p.name, p.first, p.settled) for p in found.phases_ms] == [
        ("forward", 100.0, 10.0),
        ("other", 1.0, 1.0),
    ]
    assert found.phases_ms[0].ratio == 10
    evidence = {pair.name: (pair.first, pair.settled) for pair in found.evidence}
    assert evidence["page_faults"] == (500, 0)
    assert "libraries" not in evidence
    assert [(p.name, p.first, p.settled) for p in found.layers_ms[:1]] == [("loss", 5.0, 0.005)]
    assert len(found.layers_ms) == 2


def test_a_process_without_warm_up_has_no_cold_start() -> None:
    assert cold_start([cost(cold=[], warmup_ms=[])], None) is None


def test_a_layer_gets_its_share_of_the_bare_phases() -> None:
    phases = {"forward": 10.0, "loss": 1.0, "backward": 8.0, "optimizer": 100.0}
    first, second, loss = layer_times(LAYERS, phases)
    assert (first.forward_ms, first.backward_ms) == pytest.approx((4.0, 4.0))
    # It ran in one of two steps only.
    assert (second.forward_ms, second.backward_ms) == pytest.approx((1.0, 0.0))
    assert loss.forward_ms == pytest.approx(0.5)
