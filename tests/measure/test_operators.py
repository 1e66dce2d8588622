import gzip
import json
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType

from training import HomedSetup, MakeSetup
from trainlab.analysis.operators import held_up, outside_us, ranked
from trainlab.measure.operator_profile import (
    MAX_PASS_STEPS,
    SUMS,
    Tally,
    add_chunk,
    profile_operators,
)
from trainlab.record.cost_record import OperatorsRecord
from trainlab.record.schema import note
from trainlab.spec import CostSpec
from trainlab.workloads.find import find_workload

INFERENCE = CostSpec(mode="inference", warmup_steps=2)
TRAINING = CostSpec(warmup_steps=2, active_steps=6)


def profiled(setup: HomedSetup, spec: CostSpec) -> OperatorsRecord:
    return profile_operators(setup, spec, setup.folder.trace_file)


def calls(record: OperatorsRecord) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in record.rows:
        if row.kind == "operator":
            found[row.name.removeprefix("aten::")] += round(row.calls * record.whole)
    return found


@pytest.mark.slow
def test_calls_of_an_inference_pass_are_exact(make_setup: MakeSetup) -> None:
    """From them follow the published counts: 20,000 convolutions of 10,000 images, one at a time."""
    for size in (1, 7, 64, 300):
        setup = make_setup(workload=find_workload("mnist-cnn"), data="bundled", batch_size=size)
        record = profiled(setup, INFERENCE)
        found, batches = calls(record), -(-1000 // size)
        assert record.num_steps == min(MAX_PASS_STEPS, batches)
        assert record.calls_are_equal
        expected = {"conv2d": 2, "addmm": 2, "relu": 3, "max_pool2d": 1}
        assert {name: found[name] / batches for name in expected} == expected


def test_operators_belong_to_the_phase_they_ran_in_and_to_who_called_them(
    make_setup: MakeSetup,
) -> None:
    workload = find_workload("mnist-cnn")
    setup = make_setup(workload=workload, data="bundled", batch_size=8)
    record = profiled(setup, TRAINING)
    for name, phase in (
        *(("conv2d", "forward"), ("convolution_backward", "backward"), ("index_select", "data")),
        *(("nll_loss_forward", "loss"), ("addcmul_", "optimizer")),
    ):
        assert {row.phase for row in record.rows if row.name == f"aten::{name}"} == {phase}, name
    assert calls(record)["conv2d"] == 2 * 6
    assert record.calls_are_equal
    forward = {row.name: row for row in record.rows if row.phase == "forward"}
    for name in ("aten::conv2d", "aten::linear", "aten::max_pool2d"):
        assert forward[name].outermost_calls == forward[name].calls, name
    for name in ("aten::convolution", "aten::_convolution", "aten::addmm"):
        assert forward[name].outermost_calls == 0, name
    inside = sum(row.self_cpu_us for row in record.rows) / record.num_steps
    assert 0 < inside < record.profiled_step_us
    assert inside + outside_us(record) == pytest.approx(record.profiled_step_us, rel=0.05)
    # The range around the update has what the operators of its phase have, so they are of one phase.
    whole = {row.name: row.total_cpu_us for row in record.rows if row.phase == "optimizer"}
    (update,) = (us for name, us in whole.items() if name.startswith("Optimizer.step#"))
    own = sum(row.self_cpu_us for row in record.rows if row.phase == "optimizer")
    assert own == pytest.approx(update, rel=0.5)


def test_a_step_that_was_held_up_does_not_change_the_times_of_operators() -> None:
    """Ten steps of 100 µs, of which one waits 9,000 µs in the second of its two multiplications."""
    tally, events = Tally(by_shape=False), []

    def event(name: str, start: float, us: float, self_us: float) -> None:
        span = SimpleNamespace(start=start, end=start + us)
        times = {"self_cpu_time_total": self_us, "cpu_time_total": us}
        none = dict.fromkeys({*SUMS.values()} - {*times}, 0)
        told = {"name": name, "time_range": span, "device_type": DeviceType.CPU}
        parent = {"cpu_parent": None, "input_shapes": []}
        events.append(SimpleNamespace(**told, **times, **none, **parent))

    start = 0.0
    for step in range(10):
        waits = 9000.0 if step == 7 else 0.0
        event("trainlab::step", start, 100 + waits, 0)
        event("aten::mul", start + 1, 20, 20)
        event("aten::mul", start + 30, 30 + waits, 30 + waits)
        event("trainlab::end of optimizer", start + 90 + waits, 0, 0)
        start += 200 + waits
    add_chunk(tally, events)
    record = tally.record(mode="train", batch_size=1, bare_ms=[0.1] * 10)
    (mul,) = ranked(record)
    assert (mul.calls, mul.calls_per_step, mul.self_us, mul.total_us) == (20, 2.0, 50.0, 50.0)
    assert (mul.share, outside_us(record)) == (0.5, 50.0)
    assert record.profiled_ms[7] == pytest.approx(9.1)
    assert held_up(record) == 1


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_kernels_are_kept_apart_from_operators_on_a_gpu(make_setup: MakeSetup) -> None:
    setup = make_setup(workload=find_workload("mnist-cnn"), data="bundled", device="cuda")
    record = profiled(setup, TRAINING)
    kernels = [row for row in record.rows if row.kind == "kernel"]
    assert sum(row.self_device_us for row in kernels) > 0
    assert all(row.calls % record.num_steps == 0 for row in kernels if "conv" in row.name.lower())
    own = sum(row.self_device_us for row in record.rows if row.kind == "operator")
    assert own == pytest.approx(sum(row.self_device_us for row in kernels), rel=0.1)
    assert calls(record)["conv2d"] == 2 * record.num_steps


def test_shapes_tell_calls_apart_and_add_up(make_setup: MakeSetup) -> None:
    setup = make_setup(workload=find_workload("mnist-cnn"), data="bundled", batch_size=8)
    spec = TRAINING.model_copy(update={"by_shape": True, "trace_mb": 0})
    record = profiled(setup, spec)
    shapes = {r.shapes: r.calls for r in record.rows if r.name == "aten::conv2d"}
    assert shapes == {"8x1x28x28, 32x1x3x3, 32": 6, "8x32x26x26, 64x32x3x3, 64": 6}
    assert not setup.folder.trace_file.exists()


def test_the_trace_opens_and_keeps_its_budget(make_setup: MakeSetup) -> None:
    generous, strict = make_setup(), make_setup()
    whole = profiled(generous, TRAINING)
    assert whole.trace_steps == TRAINING.active_steps
    with gzip.open(generous.folder.trace_file, "rt") as file:
        events = json.load(file)["traceEvents"]
    # One step that is not counted comes first and has no range of its own.
    assert sum(event.get("name") == "trainlab::step" for event in events) == whole.trace_steps
    size = generous.folder.trace_file.stat().st_size
    budget_mb = size / 2 / 1e6
    short = profiled(strict, TRAINING.model_copy(update={"trace_mb": budget_mb}))
    assert 0 < short.trace_steps < whole.trace_steps
    assert strict.folder.trace_file.stat().st_size <= budget_mb * 1e6
    assert short.num_steps == whole.num_steps
    assert calls(short) == calls(whole)
    none = make_setup()  # not one step fits
    assert profiled(none, TRAINING.model_copy(update={"trace_mb": 1e-4})).trace_steps == 0
    assert not none.folder.trace_file.exists()
    assert none.notes == [note("trace_too_large", budget=1e-4)]
