import copy
import inspect
from typing import Any

import pytest
import torch
from torch import nn

from trainlab.errors import DeviceError
from trainlab.spec import TrainSpec, checked
from trainlab.spec.optimizers import OPTIMIZERS
from trainlab.train.updates import make_optimizer, make_schedule, optimizer_code

CPU = torch.device("cpu")

CASES: tuple[tuple[dict[str, Any], type[torch.optim.Optimizer], dict[str, Any]], ...] = (
    ({"optimizer": "adadelta"}, torch.optim.Adadelta, {}),
    (
        {"optimizer": "adadelta", "optimizer_options": {"rho": 0.8}},
        torch.optim.Adadelta,
        {"rho": 0.8},
    ),
    ({"optimizer": "sgd", "momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    ({"optimizer": "adam", "lr": 0.01}, torch.optim.Adam, {"lr": 0.01}),
    ({"optimizer_options": {"beta1": 0.8}}, torch.optim.Adam, {"betas": (0.8, 0.999)}),
    ({"optimizer": "adamw", "weight_decay": 0.1}, torch.optim.AdamW, {"weight_decay": 0.1}),
    (
        {"optimizer": "rmsprop", "optimizer_options": {"alpha": 0.9}},
        torch.optim.RMSprop,
        {"alpha": 0.9},
    ),
    ({"optimizer": "adagrad"}, torch.optim.Adagrad, {}),
)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    inputs = torch.linspace(-1, 1, 24).view(6, 4)
    for _ in range(5):
        optimizer.zero_grad()
        model(inputs).square().sum().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def test_updates_equal_torchs_own() -> None:
    for asked, kind, options in CASES:
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        twin = copy.deepcopy(model)
        settings = checked(TrainSpec, {"optimizer": "adam", **asked})
        ours = trained(model, make_optimizer(settings, model, CPU))
        theirs = trained(twin, kind(twin.parameters(), **options))  # type: ignore[call-arg]
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_the_default_learning_rates_are_torchs() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    for asked, kind, _ in CASES:
        default = kind([parameter]).param_groups[0]["lr"]  # type: ignore[call-arg]
        assert OPTIMIZERS[asked.get("optimizer", "adam")].lr == default


def test_the_implementation_asked_for_is_the_one_used() -> None:
    model = nn.Linear(2, 2)
    for code, expected in (
        ("fused", (True, None)),
        ("foreach", (None, True)),
        ("loop", (None, False)),
    ):
        settings = checked(TrainSpec, {"optimizer": "adam", "optimizer_code": code})
        group = make_optimizer(settings, model, CPU).param_groups[0]
        assert (group["fused"], group["foreach"]) == expected
    assert optimizer_code(checked(TrainSpec, {"optimizer": "adam"}), model, CPU) == "fused"
    assert optimizer_code(checked(TrainSpec, {"optimizer": "adadelta"}), model, CPU) == "loop"


def test_a_fused_update_the_device_lacks_is_refused() -> None:
    settings = checked(TrainSpec, {"optimizer": "adagrad", "optimizer_code": "fused"})
    with pytest.raises(DeviceError, match="no fused adagrad on cuda"):
        make_optimizer(settings, nn.Linear(1, 1), torch.device("cuda"))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"schedule": "none"}, [1.0, 1.0, 1.0, 1.0]),
        ({"schedule": "step", "lr_gamma": 0.7}, [1.0, 0.7, 0.49, 0.343]),
        ({"schedule": "step", "lr_gamma": 0.5, "lr_step_epochs": 2}, [1.0, 1.0, 0.5, 0.5]),
        ({"schedule": "cosine"}, [1.0, 0.853553, 0.5, 0.146447]),
    ],
)
def test_learning_rate_per_epoch(asked: dict[str, Any], expected: list[float]) -> None:
    settings = checked(TrainSpec, {"optimizer": "sgd", "lr": 1.0, "epochs": 4, **asked})
    optimizer = make_optimizer(settings, nn.Linear(1, 1), CPU)
    schedule = make_schedule(settings, optimizer, settings.epochs)
    rates = []
    for _ in range(4):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if schedule is not None:
            schedule.step()
    assert rates == pytest.approx(expected, abs=1e-6)


def test_an_optimizers_rules_are_those_of_torch() -> None:
    for rules in OPTIMIZERS.values():
        takes = inspect.signature(getattr(torch.optim, rules.torch_class)).parameters
        assert takes["lr"].default == rules.lr
        assert rules.takes_momentum is ("momentum" in takes)
        options = {"betas" if option in ("beta1", "beta2") else option for option in rules.options}
        assert options <= set(takes)
        assert bool(rules.fused_on) is ("fused" in takes)
