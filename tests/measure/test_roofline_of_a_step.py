"""A step of known work, held against what the machine can do."""

import dataclasses
import statistics

import pytest
import torch
from torch import nn

from training import HomedSetup, MakeSetup
from trainlab.analysis.measurement import Measurement, summarise
from trainlab.analysis.roofline import step_roofline
from trainlab.data.dataset import Dataset, Split
from trainlab.measure.layer_profile import profile_layers
from trainlab.measure.limits import measured_limits
from trainlab.measure.timing import measure
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import CostSpec
from trainlab.workloads.workload import Workload


def measured(setup: HomedSetup, spec: CostSpec) -> Measurement:
    costs = (measure(setup, spec),)
    process_ms = (statistics.median(costs[0].step_ms),)
    asked = setup.trial.model_dump(mode="json")
    return Measurement(
        trial=TrialRecord(**asked).model_copy(update={"resolved": setup.resolved()}),
        processes=("t",),
        costs=costs,
        process_ms=process_ms,
        summary=summarise(costs, process_ms),
        operators=None,
        layers=profile_layers(setup, spec),
        memory=None,
        limits=measured_limits(setup.device),
    )


def products(tiny: Workload, width: int, rows: int) -> Workload:
    """Two square products and next to nothing else."""
    split = Split(torch.randn(rows, width), torch.zeros(rows, dtype=torch.long))
    return dataclasses.replace(
        tiny,
        model=lambda: nn.Sequential(nn.Linear(width, width), nn.Linear(width, width)),
        data=lambda choice: Dataset("wide", split, split),
        defaults={"optimizer": "sgd", "batch_size": rows},
    )


def test_the_work_of_a_step_is_counted_by_hand(make_setup: MakeSetup, tiny: Workload) -> None:
    spec = CostSpec(turns_s=0.3, warmup_steps=1, active_steps=2, mode="inference")
    measurement = measured(make_setup(workload=products(tiny, 256, 128)), spec)
    found = step_roofline(measurement)
    assert found is not None
    by_hand = 2 * 2 * 128 * 256**2
    step_s = measurement.summary.step_ms.value / 1e3
    assert found.flops_per_s * step_s == pytest.approx(by_hand, rel=1e-9)
    best = measurement.limits.flops_per_s["fp32"]  # type: ignore[union-attr]
    assert found.compute_share == pytest.approx(by_hand / step_s / best, rel=1e-9)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("mode", ["train", "inference"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_known_work_on_a_gpu_is_never_reported_above_the_peak(
    mode: str, precision: str, make_setup: MakeSetup, tiny: Workload
) -> None:
    workload = products(tiny, 8192, 8192)
    setup = make_setup(workload=workload, device="cuda", precision=precision)
    spec = CostSpec(turns_s=1.5, mode=mode, active_steps=3)
    found = step_roofline(measured(setup, spec))
    assert found is not None
    print(f"\n{mode} {precision}: {found.compute_share:.1%} of {found.precision}")
    # A step timed before it is done would be far above; fp32 is held against TF32, which it does not use.
    assert 0.05 < found.compute_share <= 1.0
