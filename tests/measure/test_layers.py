"""That every call is found, named, wired, counted and timed as what it is. Models: models.py."""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from models import ZOO, Raising, is_unwatched, mean_of_logits
from training import HomedSetup, MakeSetup
from trainlab.measure.layer_profile import profile_layers
from trainlab.measure.steps import stepping
from trainlab.record.cost_record import LayerRow, LayersRecord
from trainlab.spec import CostSpec
from trainlab.workloads.find import find_workload
from trainlab.workloads.workload import Workload

TRAIN = CostSpec(warmup_steps=1, active_steps=2)
INFERENCE = TRAIN.model_copy(update={"mode": "inference"})
MODES = pytest.mark.parametrize("spec", [TRAIN, INFERENCE], ids=["train", "inference"])
BATCH = 10


@pytest.fixture
def zoo_setup(make_setup: MakeSetup, tiny: Workload) -> MakeSetup:
    """A setup of the tiny workload with another model, and what else is to be replaced."""

    def make(model: Callable[..., nn.Module], **replaced: Any) -> HomedSetup:
        if getattr(model, "__name__", "") == "Structured":
            replaced.setdefault("loss", mean_of_logits)
        return make_setup(workload=dataclasses.replace(tiny, model=model, **replaced))

    return make


@pytest.fixture
def cnn(make_setup: MakeSetup) -> MakeSetup:
    """A setup of mnist-cnn."""

    workload = find_workload("mnist-cnn")
    return partial(make_setup, workload=workload, data="bundled", batch_size=4)


def named(record: LayersRecord) -> dict[str, LayerRow]:
    """The rows by name, later calls as `name/2`."""
    return {row.name + (f"/{row.call}" if row.call > 1 else ""): row for row in record.rows}


def flops(record: LayersRecord) -> int:
    return sum(row.forward_flops + row.backward_flops for row in record.rows)


def sources(record: LayersRecord, name: str) -> set[str]:
    """The names of the rows a row takes from; the batch is `batch`."""
    names = [*named(record), "batch"]
    return {names[index] for index in named(record)[name].inputs}


CNN_FLOPS = {"conv1": 389_376, "conv2": 21_233_664, "fc1": 2_359_296, "fc2": 2_560}
CNN_ROWS = [
    *("conv1", "relu", "conv2", "relu/2", "max_pool2d", "dropout1", "flatten"),
    *("fc1", "relu/3", "dropout2", "fc2", "log_softmax", "nll_loss"),
]


@MODES
def test_rows_are_the_calls_of_the_model_in_the_order_written(
    spec: CostSpec, cnn: MakeSetup
) -> None:
    record = profile_layers(cnn(), spec)
    assert list(named(record)) == CNN_ROWS
    assert record.calls_are_equal
    assert [row.inputs for row in record.rows] == [[-1], *([i] for i in range(11)), [-1, 11]]
    assert {row.name for row in record.rows if row.kind == "module"} == {
        *("conv1", "conv2", "dropout1", "dropout2", "fc1", "fc2")
    }
    assert [row.name for row in record.rows if row.phase == "loss"] == ["nll_loss"]
    rows = named(record)
    assert (rows["conv1"].type, rows["relu/2"].type) == ("Conv2d", "relu")
    assert rows["max_pool2d"].output_shapes == [[4, 64, 12, 12]]


def test_work_is_what_hand_counting_gives_and_steps_are_recorded_in_turns(cnn: MakeSetup) -> None:
    record = profile_layers(cnn(), TRAIN.model_copy(update={"active_steps": 4}))
    assert not record.uncounted
    assert sum(row.num_parameters for row in record.rows) == 1_199_882
    found = {row.name: row.forward_flops // 4 for row in record.rows if row.forward_flops}
    assert found == CNN_FLOPS, "two per multiply-add"
    rows = named(record)
    # Backwards twice as much, and once where the input needs no gradient.
    ratio = {name: rows[name].backward_flops / rows[name].forward_flops for name in CNN_FLOPS}
    assert ratio == {"conv1": 1, "conv2": 2, "fc1": 2, "fc2": 2}
    image, hidden, weights = 4 * 28 * 28 * 4, 4 * 32 * 26 * 26 * 4, 320 * 4
    assert rows["conv1"].forward_bytes == image + weights + hidden
    assert rows["conv1"].output_bytes == hidden
    assert rows["conv1"].saved_bytes == 0, "its input is the batch, its weights are parameters"
    assert rows["relu"].saved_bytes == hidden
    assert rows["conv2"].saved_bytes == 0, "its input is kept by the ReLU before"
    assert rows["max_pool2d"].saved_bytes == 8 * 4 * 64 * 12 * 12, "which inputs were the largest"
    flat = rows["flatten"]
    assert (flat.forward_bytes, flat.output_bytes, flat.saved_bytes) == (0, 0, 0)
    assert record.num_steps == len(record.bare_ms) == len(record.watched_ms) == 4
    steps = {name: len(us) for name, us in record.phases_us.items()}
    assert steps == {"forward": 4, "loss": 4, "backward": 4}
    for row in record.rows:
        assert len(row.forward_us) == len(row.backward_us) == 4
        assert row.first_forward_us is not None
    for step, ms in enumerate(record.watched_ms):
        assert sum(us[step] for us in record.phases_us.values()) < ms * 1e3


FUSED = ("Recurrent", "Encoding", "ScaledDotProduct", "Convolving")
"""Operators that torch's own counter leaves out or, for groups, counts wrongly: see the hand counts."""
_WEIGHT = "last.parametrizations.weight.0"


@pytest.mark.parametrize("spec", [TRAIN, pytest.param(INFERENCE, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ZOO)
def test_any_model_is_watched_counted_as_by_torch_and_left_as_it_is(
    name: str, spec: CostSpec, zoo_setup: MakeSetup, tiny: Workload
) -> None:
    losses: list[float] = []
    loss_of = mean_of_logits if name == "Structured" else tiny.loss

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        found = loss_of(outputs, targets)
        losses.append(float(found))
        return found

    setup = zoo_setup(ZOO[name], loss=loss)
    record = profile_layers(setup, spec)
    assert is_unwatched()
    unused = {"OwnParameter": 5, "Careless": 18}.get(name, 0)
    total = sum(parameter.numel() for parameter in setup.model.parameters())
    assert sum(row.num_parameters for row in record.rows) == total - unused
    assert record.calls_are_equal == (name != "Branching")
    assert not record.uncounted
    assert all(-1 <= source < at for at, row in enumerate(record.rows) for source in row.inputs)
    assert all(row.inputs for row in record.rows if row.name not in ("T", "zeros", _WEIGHT))
    watched, losses = losses, []
    with stepping(zoo_setup(ZOO[name], loss=loss), spec.mode) as steps:
        for batch in itertools.islice(steps.endless, len(watched) - 1):
            steps.bare(batch)
        with FlopCounterMode(display=False) as counter:
            steps.bare(next(steps.endless))
    assert len(watched) >= 1 + 1 + 2 * 2 + 1
    assert watched == losses
    # In inference attention is one operator, for which torch's counter has no formula.
    if name not in FUSED and (name, spec.mode) != ("Attending", "inference"):
        assert flops(record) == counter.get_total_flops() > 0


def test_batches_of_one_update_are_calls_of_their_own_and_each_is_counted_once(
    make_setup: MakeSetup,
) -> None:
    once, twice = (profile_layers(make_setup(accumulate=number), TRAIN) for number in (1, 2))
    assert [row.call for row in twice.rows] == [1] * len(once.rows) + [2] * len(once.rows)
    assert {row.phase for row in twice.rows if row.name != "cross_entropy"} == {"forward"}
    assert flops(twice) == 2 * flops(once)
    assert len({len(row.forward_us) for row in twice.rows}) == 1


def test_flops_of_convolutions_in_groups_are_counted_by_hand(zoo_setup: MakeSetup) -> None:
    rows = named(profile_layers(zoo_setup(ZOO["Convolving"]), TRAIN))
    by_hand = {
        "into": 2 * BATCH * 8 * (4 * 1 * 3),
        "grouped": 2 * BATCH * 6 * (8 * 1 * 3),
        "back": 2 * BATCH * 6 * (8 * 4 * 3),
    }
    assert {name: rows[name].forward_flops for name in by_hand} == by_hand
    assert rows["grouped"].backward_flops == 2 * by_hand["grouped"]
    assert rows["back"].backward_flops == 2 * by_hand["back"]


def test_operators_nobody_can_count_are_named(zoo_setup: MakeSetup) -> None:
    class Distances(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return -torch.cdist(inputs, self.weight, p=1.0)

    record = profile_layers(zoo_setup(lambda: Distances(8, 3)), TRAIN)
    assert record.uncounted == ["aten._cdist_backward", "aten._cdist_forward"]


def test_calls_are_wired_as_they_use_each_others_results(zoo_setup: MakeSetup) -> None:
    record = profile_layers(zoo_setup(ZOO["Shared"]), TRAIN)
    assert list(named(record)) == ["shared", "shared/2", "last", "cross_entropy"]
    assert [row.num_parameters for row in record.rows] == [72, 0, 27, 0], "its parameters once"
    assert [row.inputs for row in record.rows] == [[-1], [0], [1], [-1, 2]]
    record = profile_layers(zoo_setup(ZOO["InPlace"]), TRAIN)
    expected = ["first", "view", "relu", "mul", "setitem", "flatten", "last", "cross_entropy"]
    assert list(named(record)) == expected
    # What changes memory in place is the source of what it changed.
    for name, source in (("relu", "first"), ("last", "flatten"), ("flatten", "setitem")):
        assert sources(record, name) == {source}
    assert named(record)["relu"].output_bytes == 0
    record = profile_layers(zoo_setup(ZOO["Attending"]), TRAIN)
    assert list(named(record)) == ["view", "attention", "flatten", "last", "cross_entropy"]
    assert sources(record, "attention") == {"view"}, "though it is called with keywords"
    record = profile_layers(zoo_setup(ZOO["Encoding"]), TRAIN)
    assert named(record)["encoder.self_attn"].num_parameters == 80
    assert sources(record, "encoder.add") == {"view", "encoder.dropout1"}
    assert "encoder" not in named(record)


def test_steps_that_differ_are_merged_and_said_to_differ(zoo_setup: MakeSetup) -> None:
    spec = TRAIN.model_copy(update={"active_steps": 4})
    record = profile_layers(zoo_setup(ZOO["Branching"]), spec)
    assert not record.calls_are_equal
    rows = named(record)
    assert (len(rows["shared"].forward_us), len(rows["tanh"].forward_us)) == (4, 0)
    assert rows["tanh"].first_forward_us is not None
    assert sources(record, "last") == {"shared/2", "tanh"}


# The first step is timed, the second warms up, the third is bare, the sixth and last is counted.
@MODES
def test_a_model_that_fails_leaves_nothing_behind(spec: CostSpec, zoo_setup: MakeSetup) -> None:
    for at in (1, 3, 4, 7):
        with pytest.raises(ArithmeticError, match="planted"):
            profile_layers(zoo_setup(lambda at=at: Raising(at)), spec)
        assert is_unwatched()
        assert torch.zeros(2, requires_grad=True).exp().grad_fn is not None


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@MODES
def test_layers_of_a_gpu_step_are_the_same_and_add_up(spec: CostSpec, cnn: MakeSetup) -> None:
    record = profile_layers(cnn(batch_size=1000, device="cuda"), spec)
    assert list(named(record)) == CNN_ROWS
    found = {row.name: row.forward_flops // 1000 for row in record.rows if row.forward_flops}
    assert found == CNN_FLOPS
    for step in range(record.num_steps):
        forward = sum(row.forward_us[step] for row in record.rows if row.phase == "forward")
        assert forward <= record.phases_us["forward"][step] * 1.001
