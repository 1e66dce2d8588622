"""Updates of many trials at once against torch.optim, step for step in float64."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trainlab.spec import TrainSpec
from trainlab.train.engines.lane_updates import LaneUpdate, update_key
from trainlab.train.updates import Rates, make_optimizer, make_schedule

NUM_STEPS, NUM_NUMBERS = 25, 7
share = st.floats(0.05, 0.99)
small = st.floats(1e-10, 1e-2)


def _options(name: str) -> st.SearchStrategy[dict[str, Any]]:
    adam = {"beta1": share, "beta2": share, "eps": small, "amsgrad": st.booleans()}
    by_name = {
        "adam": adam,
        "adamw": adam,
        "adadelta": {"rho": share, "eps": small},
        "sgd": {"dampening": share},
        "rmsprop": {"alpha": share, "eps": small, "centered": st.booleans()},
        "adagrad": {"lr_decay": share, "eps": small, "initial_accumulator_value": share},
    }
    return st.fixed_dictionaries({}, optional=by_name[name])


@st.composite
def trials(draw: st.DrawFn) -> TrainSpec:
    name = draw(st.sampled_from(["adam", "adamw", "adadelta", "sgd", "rmsprop", "adagrad"]))
    given_: dict[str, Any] = {"optimizer": name, "optimizer_options": draw(_options(name))}
    given_["lr"] = draw(st.floats(1e-4, 0.5))
    if draw(st.booleans()):
        given_["weight_decay"] = draw(st.floats(1e-4, 0.3))
    if name in ("sgd", "rmsprop") and draw(st.booleans()):
        given_["momentum"] = draw(st.floats(0.1, 0.95))
        if name == "sgd" and draw(st.booleans()):
            given_["optimizer_options"] = {"nesterov": True}
    given_["schedule"] = draw(st.sampled_from(["none", "step", "cosine"]))
    return TrainSpec(epochs=5, **given_)


def reference(spec: TrainSpec, start: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """torch's own loop over one trial."""
    parameter = nn.Parameter(start.clone())
    spec = spec.model_copy(update={"optimizer_code": "loop"})
    optimizer = make_optimizer(spec, nn.ParameterList([parameter]), torch.device("cpu"))
    schedule = make_schedule(spec, optimizer, spec.epochs)
    for number, gradient in enumerate(gradients, start=1):
        parameter.grad = gradient.clone()
        optimizer.step()
        if number % 5 == 0 and schedule is not None:
            schedule.step()
    return parameter.detach()


@settings(max_examples=15, deadline=None)
@given(specs=st.lists(trials(), min_size=1, max_size=6), seed=st.integers(0, 999))
@pytest.mark.slow
def test_every_optimizer_and_option_moves_as_torch_does(specs: list[TrainSpec], seed: int) -> None:
    specs = sorted(specs, key=update_key)
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    start, gradients = drawn(len(specs), NUM_NUMBERS), drawn(NUM_STEPS, len(specs), NUM_NUMBERS)
    parameters = start.clone()
    update = LaneUpdate(specs, parameters)
    rates = [Rates(spec) for spec in specs]
    for number, gradient in enumerate(gradients, start=1):
        update.set_rates([one.current for one in rates])
        update.step(gradient.clone())
        if number % 5 == 0:
            for one in rates:
                one.change()
    for lane, spec in enumerate(specs):
        expected = reference(spec, start[lane], gradients[:, lane])
        assert torch.allclose(parameters[lane], expected, rtol=1e-6, atol=1e-9), spec


@pytest.mark.parametrize("size", [50, 150_000])
def test_a_trial_is_updated_the_same_whatever_stands_beside_it(size: int) -> None:
    specs = [TrainSpec(optimizer="adam", lr=lr) for lr in (0.1, 0.01, 0.001)]
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(3, size, generator=generator)
    gradients = torch.randn(10, 3, size, generator=generator)
    gradients[5, 0] = torch.nan

    def moved(lanes: list[int]) -> torch.Tensor:
        parameters = start[lanes].clone()
        update = LaneUpdate([specs[lane] for lane in lanes], parameters)
        for gradient in gradients:
            update.step(gradient[lanes].clone())
        return parameters

    together = moved([0, 1, 2])
    assert torch.equal(together[1:], torch.cat([moved([1]), moved([2])]))
    assert together[0].isnan().all()
    assert together[1:].isfinite().all()
