"""Bytes counted by hand against bytes measured; nothing here is a matter of noise."""

import dataclasses
import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from training import HomedSetup, MakeSetup
from trainlab.data.dataset import Dataset, Split
from trainlab.errors import DeviceError
from trainlab.measure.memory import measure_memory
from trainlab.record.cost_record import MemoryRecord, Mode
from trainlab.spec import CostSpec
from trainlab.train.callbacks import Moments
from trainlab.train.engines.eager import make_training_step
from trainlab.train.seeds import data_order, seeded
from trainlab.workloads.find import find_workload
from trainlab.workloads.workload import Workload

TRAIN, INFERENCE = CostSpec(), CostSpec(mode="inference")
MIB = 2**20

WEIGHTS = 4 * (8 * 3 + 3)
"""Bytes of Linear(8, 3)."""


def workload_of(tiny: Workload, model: Callable[..., nn.Module]) -> Workload:
    return dataclasses.replace(tiny, model=model)


def linear(tiny: Workload) -> Workload:
    return workload_of(tiny, lambda: nn.Linear(8, 3))


def without(record: MemoryRecord, kinds: str) -> int:
    """The peak's remainder if all of these kinds were alive at it."""
    sizes: list[int] = [getattr(record, f"{kind}_bytes") for kind in kinds.split()]
    return record.peak_bytes - sum(sizes)


def images(tiny: Workload, model: Callable[..., nn.Module]) -> Workload:
    """64 images of 1 x 16 x 16 in 3 classes."""
    draw = torch.Generator().manual_seed(0)
    split = Split(torch.randn(64, 1, 16, 16, generator=draw), torch.arange(64) % 3)
    return dataclasses.replace(tiny, model=model, data=lambda choice: Dataset("i", split, split))


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ({"optimizer": "adam"}, 2 * WEIGHTS + 2 * 4),  # and a step number for either parameter
        ({"optimizer": "sgd", "momentum": 0.9}, WEIGHTS),
        ({"optimizer": "sgd"}, 0),
        ({"optimizer": "adam", "optimizer_code": "loop"}, 2 * WEIGHTS + 2 * 4),
    ],
)
def test_a_linear_model_is_counted_as_by_hand(
    settings: dict[str, object], state: int, make_setup: MakeSetup, tiny: Workload
) -> None:
    record = measure_memory(make_setup(workload=linear(tiny), batch_size=10, **settings), TRAIN)
    assert record.parameter_bytes == record.gradient_bytes == WEIGHTS
    assert record.optimizer_bytes == state
    assert record.buffer_bytes == 0
    assert record.input_bytes == 10 * 8 * 4 + 10 * 8  # numbers and class labels
    # log_softmax keeps its result, the loss the weight of the batch.
    assert record.activation_bytes == 10 * 3 * 4 + 4
    assert record.data_bytes == (103 + 31) * (8 * 4 + 8)
    assert (record.source, record.batch_size, record.mode) == ("profiler", 10, "train")


@pytest.mark.parametrize(("hidden", "batch_size"), [(16, 10), (500, 3), (500, 100)])
def test_what_an_mlp_saves_is_counted_as_by_hand(
    hidden: int, batch_size: int, make_setup: MakeSetup, tiny: Workload
) -> None:
    def model() -> nn.Module:
        return nn.Sequential(
            nn.Linear(8, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.Sigmoid(),
            nn.Linear(hidden, 3),
        )

    record = measure_memory(
        make_setup(workload=workload_of(tiny, model), batch_size=batch_size), TRAIN
    )
    # Each activation function keeps its result, which the next layer keeps too.
    assert record.activation_bytes == 2 * batch_size * hidden * 4 + batch_size * 3 * 4 + 4


def test_the_peak_of_sgd_is_where_hand_counting_finds_it(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    class Widened(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.layer(x)
            return logits + torch.exp(x.new_zeros(len(x), 3, 1000)).mean(dim=2)

    record = measure_memory(
        make_setup(workload=workload_of(tiny, Widened), optimizer="sgd", batch_size=10), TRAIN
    )
    wide = 10 * 3 * 1000 * 4
    logits = 10 * 3 * 4
    # The zeros and their exponentials, beside the logits; no gradients yet.
    assert without(record, "parameter input") == 2 * wide + logits
    assert record.other_bytes == 2 * wide + logits
    assert record.gradient_bytes == WEIGHTS


@pytest.mark.parametrize("mode", ["train", "inference"])
@pytest.mark.parametrize("name", ["mnist-cnn", "fashion-mlp"])
def test_a_builtin_workload_holds_at_least_what_must_be_alive_at_once(
    name: str, mode: Mode, make_setup: MakeSetup
) -> None:
    setup = make_setup(workload=find_workload(name), data="bundled", batch_size=16)
    record = measure_memory(setup, CostSpec(mode=mode))
    assert without(record, "parameter buffer optimizer input activation") >= 0
    assert without(record, "parameter buffer optimizer input gradient") >= 0
    assert record.other_bytes >= 0
    assert record.peak_bytes < 100 * MIB
    assert record.data_bytes == 7000 * (784 + 8)
    assert record.input_bytes == 16 * 784 * 4 + (16 * 8 if mode == "train" else 0)
    assert record.process_peak_bytes is not None
    assert record.process_peak_bytes > record.peak_bytes + record.data_bytes


def test_the_saved_activations_of_mnist_cnn_are_counted_as_by_hand(make_setup: MakeSetup) -> None:
    setup = make_setup(workload=find_workload("mnist-cnn"), data="bundled", batch_size=16)
    record = measure_memory(setup, TRAIN)
    relus = 32 * 26 * 26 * 4 + 64 * 24 * 24 * 4 + 128 * 4
    pooled = 64 * 12 * 12
    # The pool keeps 8-byte positions; each dropout its factors and what the next layer takes.
    sample = relus + pooled * 8 + 2 * pooled * 4 + 2 * 128 * 4 + 10 * 4
    assert record.activation_bytes == 16 * sample + 4


def test_inference_keeps_nothing_for_a_backward_pass(make_setup: MakeSetup) -> None:
    record = measure_memory(make_setup(), INFERENCE)
    assert record.gradient_bytes == record.optimizer_bytes == record.activation_bytes == 0
    assert record.parameter_bytes > 0
    assert record.input_bytes == 0  # views of the data set, which is counted by itself
    assert record.peak_bytes == record.parameter_bytes + record.other_bytes


def test_the_peak_of_a_convolution_grows_in_proportion_to_the_batch(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 3))

    workload = images(tiny, model)
    peaks = [
        measure_memory(make_setup(workload=workload, batch_size=size), INFERENCE).peak_bytes
        for size in (16, 32, 64)
    ]
    assert peaks[2] - peaks[1] == pytest.approx(2 * (peaks[1] - peaks[0]), rel=0.02)
    assert peaks[1] - peaks[0] >= 16 * 8 * 14 * 14 * 4


class Careless(nn.Module):
    """A linear layer that takes and drops memory it does not need."""

    def __init__(self, num_bytes: int = 0) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)
        self.num_bytes = num_bytes

    def forward(self, x: Tensor) -> Tensor:
        torch.empty(self.num_bytes, dtype=torch.uint8, device=x.device)
        logits: Tensor = self.layer(x)
        return logits


@pytest.mark.parametrize("spec", [TRAIN, INFERENCE], ids=["train", "inference"])
def test_a_planted_temporary_raises_the_peak_by_its_size(
    spec: CostSpec, make_setup: MakeSetup, tiny: Workload
) -> None:
    workload = workload_of(tiny, Careless)
    lean = measure_memory(make_setup(workload=workload), spec)
    waste = measure_memory(make_setup(workload=workload, model={"num_bytes": 64 * MIB}), spec)
    assert waste.peak_bytes - lean.peak_bytes == pytest.approx(64 * MIB, rel=1e-4)
    assert waste.other_bytes == pytest.approx(64 * MIB, rel=1e-4)
    assert waste.activation_bytes == lean.activation_bytes


def test_what_a_model_hoards_from_step_to_step_is_part_of_the_peak(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    class Hoarding(Careless):
        def forward(self, x: Tensor) -> Tensor:
            # The old one is still there when the new one is made.
            self.hoard = torch.empty(self.num_bytes, dtype=torch.uint8)
            return super().forward(x)

    workload = workload_of(tiny, Hoarding)
    record = measure_memory(make_setup(workload=workload, model={"num_bytes": MIB}), TRAIN)
    assert record.other_bytes == pytest.approx(2 * MIB, rel=0.01)


def test_shared_frozen_and_half_width_parameters_are_counted_once_as_they_are(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.square = nn.Linear(8, 8, bias=False)
            self.again = nn.Linear(8, 8, bias=False)
            self.again.weight = self.square.weight
            self.narrow = nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
            self.frozen = nn.Parameter(torch.ones(1000, 8), requires_grad=False)
            self.last = nn.Linear(8, 3, bias=False)
            self.register_buffer("scale", torch.ones(5))

        def forward(self, x: Tensor) -> Tensor:
            x = self.again(torch.tanh(self.square(x))) * self.narrow + self.frozen[0]
            logits: Tensor = self.last(x)
            return logits

    record = measure_memory(make_setup(workload=workload_of(tiny, Odd), optimizer="adam"), TRAIN)
    trained = 8 * 8 * 4 + 8 * 2 + 8 * 3 * 4
    assert record.parameter_bytes == trained + 8000 * 4
    assert record.gradient_bytes == trained
    assert record.optimizer_bytes == 2 * trained + 3 * 4
    assert record.buffer_bytes == 5 * 4


def test_half_precision_halves_what_is_saved(make_setup: MakeSetup) -> None:
    full, half = (
        measure_memory(
            make_setup(model={"hidden": 1000, "dropout": 0.0}, batch_size=100, precision=precision),
            TRAIN,
        )
        for precision in ("fp32", "bf16")
    )
    loss = 100 * 3 * 4 + 4  # in full precision in either case
    assert full.activation_bytes == 100 * 1000 * 4 + loss
    # The casts of the batch, and of the weights that a gradient passes through, are kept as well.
    casts = 2 * (100 * 8 + 1000 * 3)
    assert half.activation_bytes == 100 * 1000 * 2 + casts + loss
    assert half.parameter_bytes == full.parameter_bytes


def test_accumulated_gradients_are_not_allocated_again(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    record = measure_memory(make_setup(workload=linear(tiny), zero_grad=False), TRAIN)
    assert record.gradient_bytes == WEIGHTS
    assert without(record, "parameter optimizer gradient input activation") >= 0


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_losses_are_the_same_with_and_without(mode: Mode, make_setup: MakeSetup) -> None:
    def losses(setup: HomedSetup) -> list[float]:
        step = make_training_step(setup, Moments([]))
        with seeded(1, "after"):
            return [
                step(rows)[0].item() for rows in setup.train_batches.rows(data_order(1, 1, 103))
            ]

    watched, plain = make_setup(), make_setup()
    measure_memory(watched, CostSpec(mode=mode))
    if mode == "train":
        bare_steps(plain, 5)
    watched.model.train()
    assert losses(watched) == losses(plain)


def bare_steps(setup: HomedSetup, count: int) -> None:
    """The first steps of a cost trial, nobody watching."""
    from trainlab.measure.steps import stepping

    with stepping(setup, "train") as steps:
        for _ in range(count):
            steps.bare(next(steps.endless))


def test_a_device_that_tells_nothing_is_refused(make_setup: MakeSetup) -> None:
    setup = dataclasses.replace(make_setup(), device=torch.device("mps"))
    with pytest.raises(DeviceError, match="memory is measured on cpu and cuda, not yet on mps"):
        measure_memory(setup, TRAIN)


def test_the_process_peak_is_in_bytes(make_setup: MakeSetup) -> None:
    here = measure_memory(make_setup(), INFERENCE).process_peak_bytes
    assert here is not None
    assert 50 * MIB < here < 64 * 1024 * MIB


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_the_peak_of_a_gpu_is_the_allocators(make_setup: MakeSetup) -> None:
    workload = find_workload("mnist-cnn")
    gc.collect()  # what other tests left behind
    torch.cuda.empty_cache()
    setup = make_setup(workload=workload, device="cuda", data="bundled", batch_size=256)
    record = measure_memory(setup, TRAIN)
    step = make_training_step(setup, Moments([]))
    rows = setup.train_batches.rows(data_order(1, 1, 6000))
    torch.cuda.reset_peak_memory_stats()
    step(rows[0])
    by_hand = torch.cuda.max_memory_allocated()
    assert record.source == "allocator"
    assert record.peak_bytes + record.data_bytes == pytest.approx(by_hand, rel=0.01)
    assert record.data_bytes == 7000 * (784 + 8)
    assert record.parameter_bytes == record.gradient_bytes == 1_199_882 * 4
    assert record.other_bytes >= 0


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_planted_temporary_raises_the_peak_of_a_gpu_by_its_size(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    workload = workload_of(tiny, Careless)
    lean, waste = (
        measure_memory(
            make_setup(workload=workload, device="cuda", model={"num_bytes": size}), INFERENCE
        )
        for size in (0, 64 * MIB)
    )
    assert waste.peak_bytes - lean.peak_bytes == pytest.approx(64 * MIB, rel=0.01)
    assert lean.data_bytes == (103 + 31) * (8 * 4 + 8)
    assert lean.other_bytes >= 0


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_both_devices_count_the_same_kinds(make_setup: MakeSetup) -> None:
    on_cpu, on_gpu = (
        measure_memory(make_setup(device=device, optimizer="adam"), TRAIN)
        for device in ("cpu", "cuda")
    )
    for kind in ("parameter", "gradient", "optimizer", "input"):
        assert getattr(on_gpu, f"{kind}_bytes") == getattr(on_cpu, f"{kind}_bytes"), kind
    assert on_gpu.activation_bytes == pytest.approx(on_cpu.activation_bytes, rel=0.3)
