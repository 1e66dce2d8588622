"""Bytes counted by hand against bytes measured; nothing here is a matter of noise."""

import dataclasses
import gc
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from training import MakeSetup
from trainlab.errors import DeviceError
from trainlab.measure.memory import SizeChange, find_peak, measure_memory
from trainlab.spec import CostSpec
from trainlab.train.callbacks import Moments
from trainlab.train.engines.eager import make_training_step
from trainlab.workloads.find import find_workload
from trainlab.workloads.workload import Workload

TRAIN, INFERENCE = CostSpec(), CostSpec(mode="inference")
MIB = 2**20

WEIGHTS = 4 * (8 * 3 + 3)
"""Bytes of Linear(8, 3)."""


def test_a_linear_model_is_counted_as_by_hand(make_setup: MakeSetup, tiny: Workload) -> None:
    linear = dataclasses.replace(tiny, model=lambda: nn.Linear(8, 3))
    for settings, state in (
        ({"optimizer": "adam"}, 2 * WEIGHTS + 2 * 4),  # and a step number for either parameter
        ({"optimizer": "sgd", "momentum": 0.9}, WEIGHTS),
        ({"optimizer": "sgd"}, 0),
        ({"optimizer": "adam", "optimizer_code": "loop"}, 2 * WEIGHTS + 2 * 4),
    ):
        record = measure_memory(make_setup(workload=linear, batch_size=10, **settings), TRAIN)
        assert record.parameter_bytes == record.gradient_bytes == WEIGHTS
        assert record.optimizer_bytes == state
        assert record.buffer_bytes == 0
        assert record.input_bytes == 10 * 8 * 4 + 10 * 8  # numbers and class labels
        # log_softmax keeps its result, the loss the weight of the batch.
        assert record.activation_bytes == 10 * 3 * 4 + 4
        assert record.data_bytes == (103 + 31) * (8 * 4 + 8)
        assert (record.source, record.batch_size, record.mode) == ("profiler", 10, "train")


def test_what_an_mlp_saves_is_counted_as_by_hand(make_setup: MakeSetup, tiny: Workload) -> None:
    def model(hidden: int) -> nn.Module:
        first = nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, hidden)
        return nn.Sequential(*first, nn.Sigmoid(), nn.Linear(hidden, 3))

    for hidden, size in ((16, 10), (500, 3), (500, 100)):
        workload = dataclasses.replace(tiny, model=partial(model, hidden))
        record = measure_memory(make_setup(workload=workload, batch_size=size), TRAIN)
        # Each activation function keeps its result, which the next layer keeps too.
        assert record.activation_bytes == 2 * size * hidden * 4 + size * 3 * 4 + 4


def test_the_peak_of_sgd_is_where_hand_counting_finds_it(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    class Widened(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.exp(x.new_zeros(len(x), 3, 1000)).mean(dim=2)

    workload = dataclasses.replace(tiny, model=lambda: Widened(8, 3))
    setup = make_setup(workload=workload, optimizer="sgd", batch_size=10)
    record = measure_memory(setup, TRAIN)
    wide = 10 * 3 * 1000 * 4
    logits = 10 * 3 * 4
    # The zeros and their exponentials, beside the logits; no gradients yet.
    standing = record.parameter_bytes + record.input_bytes
    assert record.peak_bytes - standing == 2 * wide + logits
    assert record.other_bytes == 2 * wide + logits
    assert record.gradient_bytes == WEIGHTS


class Careless(nn.Linear):
    """Takes and drops memory it does not need."""

    def __init__(self, num_bytes: int = 0) -> None:
        super().__init__(8, 3)
        self.num_bytes = num_bytes

    def forward(self, x: Tensor) -> Tensor:
        torch.empty(self.num_bytes, dtype=torch.uint8, device=x.device)
        return super().forward(x)


@pytest.mark.parametrize("spec", [TRAIN, INFERENCE], ids=["train", "inference"])
def test_a_planted_temporary_raises_the_peak_by_its_size(
    spec: CostSpec, make_setup: MakeSetup, tiny: Workload
) -> None:
    workload = dataclasses.replace(tiny, model=Careless)
    lean = measure_memory(make_setup(workload=workload), spec)
    waste = measure_memory(make_setup(workload=workload, model={"num_bytes": 64 * MIB}), spec)
    assert waste.peak_bytes - lean.peak_bytes == pytest.approx(64 * MIB, rel=1e-4)
    assert waste.other_bytes == pytest.approx(64 * MIB, rel=1e-4)
    assert waste.activation_bytes == lean.activation_bytes


def test_a_device_that_tells_nothing_is_refused(make_setup: MakeSetup) -> None:
    setup = dataclasses.replace(make_setup(), device=torch.device("mps"))
    with pytest.raises(DeviceError, match="memory is measured on cpu and cuda, not yet on mps"):
        measure_memory(setup, TRAIN)


def changes(*rows: tuple[int, int, int]) -> list[SizeChange]:
    return [SizeChange(*row) for row in rows]


def test_a_block_is_told_from_a_later_one_at_the_same_address() -> None:
    peak = find_peak(
        before={1: 100, 2: 10},
        # Block 2 is the old gradient; 3 is saved, and later the new gradient at the same address.
        changes=changes(
            *((10, 2, -10), (20, 3, 50), (40, 3, -50)),
            *((50, 3, 40), (60, 4, 30), (70, 4, -30)),
        ),
        phase_ends=[(15, "zero_grad"), (30, "loss"), (55, "backward"), (80, "optimizer")],
        sightings=[
            *(("gradients", 0, {2: 10}), ("activations", 2, {3: 50})),
            *(("parameters", 6, {1: 100}), ("gradients", 6, {3: 40})),
        ],
    )
    assert (peak.num_bytes, peak.phase) == (170, "optimizer")
    assert peak.alive == {"parameters": 100, "gradients": 40, "activations": 0}


def test_gradients_of_the_step_before_are_gradients_at_a_peak_before_they_are_freed() -> None:
    peak = find_peak(
        before={1: 100, 2: 90},
        changes=changes((10, 3, 30), (20, 2, -90), (40, 2, 90), (50, 3, -30)),
        phase_ends=[(15, "data"), (30, "loss"), (60, "optimizer")],
        sightings=[("gradients", 0, {2: 90}), ("gradients", 4, {2: 90})],
    )
    assert (peak.num_bytes, peak.phase, peak.alive) == (220, "data", {"gradients": 90})


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_the_peak_of_a_gpu_is_the_allocators(make_setup: MakeSetup) -> None:
    workload = find_workload("mnist-cnn")
    gc.collect()  # what other tests left behind
    torch.cuda.empty_cache()
    setup = make_setup(workload=workload, device="cuda", data="bundled", batch_size=256)
    record = measure_memory(setup, TRAIN)
    step = make_training_step(setup, Moments([]))
    rows = setup.train_batches.epoch(1, 1)
    torch.cuda.reset_peak_memory_stats()
    step(rows[0])
    by_hand = torch.cuda.max_memory_allocated()
    assert record.source == "allocator"
    assert record.peak_bytes + record.data_bytes == pytest.approx(by_hand, rel=0.01)
    assert record.data_bytes == 7000 * (784 + 8)
    assert record.parameter_bytes == record.gradient_bytes == 1_199_882 * 4
    assert record.other_bytes >= 0
