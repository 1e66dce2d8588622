"""Updates of many trials at once against torch.optim, step for step in float64."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trainlab.machine.cache import CACHE_VARIABLE
from trainlab.spec import TrainSpec
from trainlab.train.optimizers import make_optimizer, make_schedule
from trainlab.train.program import updates
from trainlab.train.program.native import WORTH_COMPILING, is_compiled
from trainlab.train.program.step import Gradients
from trainlab.train.program.updates import LaneUpdate, update_key
from trainlab.train.tuned.library import find_compiler

NUM_STEPS, NUM_NUMBERS = 25, 7
share = st.floats(0.05, 0.99)
small = st.floats(1e-10, 1e-2)
by_both = pytest.mark.parametrize(
    "is_compiled",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
        ),
    ],
)


def lane_update(specs: list[TrainSpec], parameters: torch.Tensor, is_compiled: bool) -> LaneUpdate:
    with patch.object(updates, "is_compiled", lambda *given: is_compiled):
        return LaneUpdate(specs, parameters)


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
    optimizer = make_optimizer(spec, [parameter], torch.device("cpu"))
    schedule = make_schedule(spec, optimizer, spec.epochs)
    for number, gradient in enumerate(gradients, start=1):
        parameter.grad = gradient.clone()
        optimizer.step()
        if number % 5 == 0 and schedule is not None:
            schedule.step()
    return parameter.detach()


def rates(spec: TrainSpec) -> list[float]:
    """The learning rate of each of five epochs, as torch's schedule gives it."""
    optimizer = make_optimizer(spec, [nn.Parameter(torch.zeros(1))], torch.device("cpu"))
    schedule, found = make_schedule(spec, optimizer, spec.epochs), []
    for _ in range(5):
        found.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return found


@settings(max_examples=120, deadline=None)
@given(specs=st.lists(trials(), min_size=1, max_size=6), seed=st.integers(0, 999))
@by_both
@pytest.mark.slow
def test_every_optimizer_and_option_moves_as_torch_does(
    specs: list[TrainSpec], seed: int, is_compiled: bool
) -> None:
    specs = sorted(specs, key=update_key)
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    start, gradients = drawn(len(specs), NUM_NUMBERS), drawn(NUM_STEPS, len(specs), NUM_NUMBERS)
    parameters = start.clone()
    update = lane_update(specs, parameters, is_compiled)
    by_epoch = list(zip(*map(rates, specs), strict=True))
    for number in range(NUM_STEPS):
        update.set_rates(by_epoch[number // 5])
        update.step(gradients[number].clone())
    for lane, spec in enumerate(specs):
        expected = reference(spec, start[lane], gradients[:, lane])
        assert torch.allclose(parameters[lane], expected, rtol=1e-6, atol=1e-9), spec


@by_both
@pytest.mark.parametrize("size", [50, 150_000])
def test_a_trial_is_updated_the_same_whatever_stands_beside_it(
    is_compiled: bool, size: int
) -> None:
    """Whether a thread has many trials or many threads have one."""
    specs = [TrainSpec(optimizer="adam", lr=lr) for lr in (0.1, 0.01, 0.001)]
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(3, size, generator=generator)
    gradients = torch.randn(10, 3, size, generator=generator)
    gradients[5, 0] = torch.nan

    def moved(lanes: list[int]) -> torch.Tensor:
        parameters = start[lanes].clone()
        update = lane_update([specs[lane] for lane in lanes], parameters, is_compiled)
        for gradient in gradients:
            update.step(gradient[lanes].clone())
        return parameters

    together = moved([0, 1, 2])
    assert torch.equal(together[1:], torch.cat([moved([1]), moved([2])]))
    assert together[0].isnan().all()
    assert together[1:].isfinite().all()


@pytest.mark.parametrize("flag", [True, False])
def test_trials_of_other_kinds_are_updated_apart(flag: bool) -> None:
    one = TrainSpec(optimizer="adam", optimizer_options={"amsgrad": flag})
    assert (update_key(one) == update_key(TrainSpec(optimizer="adam"))) is not flag


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
def test_the_first_training_decides_what_code_updates_all_of_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two round differently: the same trial must give the same losses again."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    rows = torch.zeros(2, 1000)
    long = int(WORTH_COMPILING / 1000)
    assert not is_compiled("adam", long - 1, rows), (
        "compiled for a training too short to pay for it"
    )
    assert is_compiled("adam", long, rows)
    assert not is_compiled("adam", long - 1, rows), "decided anew"
    assert is_compiled("adam", long, rows[:1]), "decided by how many are trained together"
    assert is_compiled("sgd", 1, rows), "the code is there"
    assert not is_compiled("adam", long, rows.half())


@pytest.mark.parametrize("resets", [True, False])
def test_gradients_stay_to_be_shown_whatever_code_made_the_update(resets: bool) -> None:
    """A compiled update reads them where they are shown, and leaves them as they are."""
    rows = torch.randn(2, 8)
    of_step = torch.randn(2, 8)
    setups: Any = [SimpleNamespace(settings=SimpleNamespace(zero_grad=resets))] * 2
    for are_used_up in (True, False):
        gradients = Gradients(setups, rows, are_used_up=are_used_up)
        for step in (1, 2):
            place = gradients.place
            assert (place is None) == (are_used_up or not resets)
            given = of_step.clone() if place is None else place.copy_(of_step)
            taken = gradients.taken_in(given)
            assert torch.equal(taken, of_step if resets else step * of_step)
            if are_used_up:
                taken.zero_()
            assert torch.equal(gradients.rows, of_step if resets else step * of_step)
