"""What engines must keep on a GPU, where steps are captured; skipped where there is none."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from test_lanes import MIXED, SUITED, UNSUITED, losses, mixed, trained, workload_of
from torch import nn

from training import ON_A_GPU, HomedSetup, MakeSetup
from trainlab.spec import TrainSpec
from trainlab.train.engines.engine import Unsuited
from trainlab.train.engines.lane_updates import LaneUpdate, update_key
from trainlab.workloads.find import find_workload

pytestmark = ON_A_GPU
OPTIMIZERS: tuple[dict[str, Any], ...] = (
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "momentum": 0.9, "optimizer_options": {"dampening": 0.3}},
    {"optimizer": "sgd", "momentum": 0.9, "optimizer_options": {"nesterov": True}},
    {"optimizer": "adam"},
    {"optimizer": "adam", "optimizer_options": {"amsgrad": True, "beta1": 0.5}},
    {"optimizer": "adamw"},
    {"optimizer": "adadelta", "optimizer_options": {"rho": 0.5}},
    {"optimizer": "rmsprop", "momentum": 0.5, "optimizer_options": {"centered": True}},
    {"optimizer": "adagrad", "optimizer_options": {"lr_decay": 0.1}},
)


@pytest.fixture(autouse=True)
def _full_precision() -> Iterator[None]:
    """Without TF32, whose rounding alone is 1e-3."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("decay", [None, 0.1])
@pytest.mark.parametrize("given", OPTIMIZERS, ids=str)
def test_one_kernel_makes_the_update_that_many_operations_make(
    given: dict[str, Any], decay: float | None
) -> None:
    specs = [TrainSpec(lr=lr, weight_decay=decay, **given) for lr in (0.1, 0.01, 0.001)]
    draw = torch.Generator().manual_seed(1)
    start = torch.randn(3, 1000, generator=draw).cuda()
    gradients = torch.randn(40, 3, 1000, generator=draw).cuda()
    by_kernel, by_operations = start.clone(), start.double()
    updates = LaneUpdate(specs, by_kernel), LaneUpdate(specs, by_operations)
    assert updates[0]._parts[0]._kernel is not None
    assert updates[1]._parts[0]._kernel is None
    for gradient in gradients:
        updates[0].step(gradient.clone())
        updates[1].step(gradient.double())
    assert torch.allclose(by_kernel.double(), by_operations, rtol=1e-4, atol=2e-5)


def on_gpu(make_setup: MakeSetup, chosen: Sequence[dict[str, Any]] = MIXED) -> list[HomedSetup]:
    return mixed(make_setup, [one | {"device": "cuda"} for one in chosen])


def test_every_lane_learns_what_it_learns_by_itself(make_setup: MakeSetup) -> None:
    together = trained("lanes", on_gpu(make_setup))
    for progress, setup in zip(together, on_gpu(make_setup), strict=True):
        (alone,) = trained("eager", [setup])
        assert progress.final == pytest.approx(alone.final, rel=5e-3, abs=1e-4), setup.settings


def test_neighbours_change_a_lane_by_rounding_at_most(make_setup: MakeSetup) -> None:
    setups = on_gpu(make_setup)
    together = losses("lanes", setups, 10)
    for first in range(0, len(setups), 3):
        part = sorted(on_gpu(make_setup)[first : first + 3], key=lambda s: update_key(s.settings))
        assert torch.allclose(losses("lanes", part, 10), together[first : first + 3], rtol=1e-5)


@pytest.mark.parametrize("name", ["fashion-mlp", "mnist-cnn"])
@pytest.mark.parametrize("engine", ["graphed", "lanes"])
def test_the_first_50_losses_of_both_labs_are_those_of_eager(
    engine: str, name: str, make_setup: MakeSetup
) -> None:
    """At a learning rate at which rounding does not grow: Adadelta's 1.0 doubles it every few updates, and
    eager then differs from itself."""
    given = {"lr": 0.01, "batch_size": 64} if name == "mnist-cnn" else {"batch_size": 32}

    def setup(seed: int) -> HomedSetup:
        workload = find_workload(name)
        return make_setup(workload=workload, data="bundled", device="cuda", seed=seed, **given)

    seeds = (3, 4, 5) if engine == "lanes" else (3,)
    ours = losses(engine, [setup(seed) for seed in seeds], 50)
    for row, seed in zip(ours, seeds, strict=True):
        assert torch.allclose(row, losses("eager", [setup(seed)], 50)[0], rtol=1e-4)


@pytest.mark.parametrize("engine", ["graphed", "lanes"])
@pytest.mark.parametrize("name", SUITED)
def test_models_nobody_tuned_for(name: str, engine: str, make_setup: MakeSetup) -> None:
    workload = workload_of(SUITED[name])
    seeds = (1, 2, 3) if engine == "lanes" else (1,)

    def setups() -> list[HomedSetup]:
        return [make_setup(workload=workload, seed=s, epochs=3, device="cuda") for s in seeds]

    for progress, setup in zip(trained(engine, setups()), setups(), strict=True):
        (alone,) = trained("eager", [setup])
        assert progress.final == pytest.approx(alone.final, rel=1e-2, abs=1e-3)


NOT_SO_ON_A_GPU = "mirrored weights"
"""Moving a model to a GPU gives each of its tensors a memory of its own."""


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("graphed", "decisions"),
        *(("lanes", name) for name in UNSUITED if name != NOT_SO_ON_A_GPU),
    ],
)
def test_what_cannot_be_captured_is_refused_and_eager_still_runs(
    engine: str, name: str, make_setup: MakeSetup
) -> None:
    setup = make_setup(workload=workload_of(UNSUITED[name][0]), device="cuda")
    with pytest.raises(Unsuited):
        trained(engine, [setup])
    (progress,) = trained("eager", [setup])
    assert progress.state == "done"


def test_noise_in_a_captured_step_is_drawn_anew_each_time(make_setup: MakeSetup) -> None:
    workload = workload_of(UNSUITED["noise"][0])
    one, other = (make_setup(workload=workload, device="cuda", epochs=3) for _ in range(2))
    (program,), (eager,) = trained("graphed", [one]), trained("eager", [other])
    assert program.final == pytest.approx(eager.final, rel=1e-3)


def test_a_group_too_wide_for_the_memory_is_told_as_such(make_setup: MakeSetup) -> None:
    workload = workload_of(lambda: nn.Sequential(nn.Linear(8, 50_000), nn.Linear(50_000, 3)))
    torch.cuda.set_per_process_memory_fraction(0.002)
    try:
        with pytest.raises((torch.OutOfMemoryError, Unsuited)):
            trained(
                "lanes", [make_setup(workload=workload, seed=s, device="cuda") for s in range(40)]
            )
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
