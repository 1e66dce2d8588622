"""What updates the weights: torch's own optimizer and schedule, made from the settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, ReduceLROnPlateau, StepLR

from trainlab.errors import DeviceError, SpecError, WorkloadError
from trainlab.spec import TrainSpec
from trainlab.spec.optimizers import OPTIMIZERS
from trainlab.workloads.user_code import OPTIMIZER


def optimizer_code(settings: TrainSpec, model: nn.Module, device: torch.device) -> str:
    """Which implementation will run: `auto` resolved to fused, foreach or loop."""
    if settings.optimizer_code != "auto":
        return settings.optimizer_code
    if device.type in OPTIMIZERS[settings.optimizer].fused_on and can_be_fused(model):
        return "fused"
    # What torch itself picks: passes over all parameters at once pay on a GPU only.
    return "foreach" if device.type == "cuda" else "loop"


def can_be_fused(model: nn.Module) -> bool:
    """Whether torch's fused updates take its parameters: not complex ones, nor sparse ones or gradients."""
    return all(
        parameter.is_floating_point() and parameter.layout == torch.strided
        for parameter in model.parameters()
    ) and not any(getattr(module, "sparse", False) is True for module in model.modules())


def make_optimizer(
    settings: TrainSpec,
    model: nn.Module,
    device: torch.device,
    class_for: Callable[[type[Optimizer]], type[Optimizer]] = lambda torch_class: torch_class,
) -> Optimizer:
    """torch's optimizer with the settings; options not given are left to torch. `class_for` names the class
    to take in place of torch's, which must take the same options."""
    options: dict[str, Any] = dict(settings.optimizer_options)
    betas = options.pop("beta1", 0.9), options.pop("beta2", 0.999)
    if {"beta1", "beta2"} & set(settings.optimizer_options):
        options["betas"] = betas
    for name in ("momentum", "weight_decay"):
        if (value := getattr(settings, name)) is not None:
            options[name] = value
    rules = OPTIMIZERS[settings.optimizer]
    code = optimizer_code(settings, model, device)
    if code == "fused" and device.type not in rules.fused_on:
        raise DeviceError(
            f"optimizer_code: torch has no fused {settings.optimizer} on {device.type}; use auto"
        )
    if code == "fused":
        options["fused"] = True
    else:
        options["foreach"] = code == "foreach"
    optimizer_class: Callable[..., Optimizer] = class_for(getattr(torch.optim, rules.torch_class))
    return optimizer_class(model.parameters(), lr=settings.start_lr, **options)


@dataclass(frozen=True)
class Optimizers:
    """Those of a trial by name, with the schedule of the user's own where there is one."""

    by_name: Mapping[str, Optimizer]
    schedule: Any = None
    changes_each: Literal["epoch", "step"] = "epoch"
    """When the schedule is asked for another learning rate."""


def own_optimizers(
    make: Callable[..., Any], model: nn.Module, settings: TrainSpec, *, may_be_several: bool
) -> Optimizers:
    """What the workload's `optimizer` gives; WorkloadError where that is none."""
    with OPTIMIZER:
        made = make(model, settings)
    given = (*made, "epoch") if isinstance(made, tuple) else (made, None, "epoch")
    made, schedule, each = given[:3]
    by_name = dict(made) if isinstance(made, Mapping) else {"optimizer": made}
    for one in by_name.values():
        if not isinstance(one, Optimizer):
            kind = type(one).__name__
            raise WorkloadError(f"optimizer: gave a {kind}, must give a torch optimizer")
        held = [parameter for group in one.param_groups for parameter in group["params"]]
        if not {id(parameter) for parameter in model.parameters()} & set(map(id, held)):
            raise WorkloadError(  # nothing would be learned
                f"optimizer: gave one over {len(held)} parameters, none of them the model's; take those of "
                "the model that it gets"
            )
    if len(by_name) != 1 and not (by_name and may_be_several):
        rule = "must give one; several are for a workload with its own update"
        raise WorkloadError(f"optimizer: gave {len(by_name) or 'none'}, {rule}")
    if schedule is not None and not (hasattr(schedule, "step") and hasattr(schedule, "state_dict")):
        kind = type(schedule).__name__
        raise WorkloadError(f"optimizer: its schedule is a {kind}, must be one of torch's")
    if isinstance(schedule, ReduceLROnPlateau):
        raise WorkloadError(
            "optimizer: its schedule is a ReduceLROnPlateau, which needs a metric at each step; must be "
            "one that needs none, as CosineAnnealingLR"
        )
    if each not in ("epoch", "step"):
        raise WorkloadError(f"optimizer: its schedule changes each {each!r}, must be epoch or step")
    return Optimizers(by_name, schedule, each)


def check_optimizer(settings: TrainSpec, device: torch.device) -> None:
    """Raises a SpecError where torch refuses the options, before anything runs."""
    try:
        make_optimizer(settings, nn.ParameterList([torch.zeros(1, device=device)]), device)
    except (TypeError, ValueError) as error:
        raise SpecError([f"settings: {settings.optimizer}: {error}"]) from None


def make_schedule(settings: TrainSpec, optimizer: Optimizer, num_epochs: int) -> LRScheduler | None:
    """The schedule, stepped once after each epoch; None where the learning rate stays."""
    if settings.schedule == "step":
        return StepLR(optimizer, settings.lr_step_epochs, settings.lr_gamma)
    if settings.schedule == "cosine":
        return CosineAnnealingLR(optimizer, T_max=num_epochs)
    return None


class Warmup:
    """Raises the learning rates of an optimizer in equal parts, from update to update, to what a schedule
    has set. The schedule never sees it: rates are lowered for an update and put back."""

    def __init__(self, optimizer: Optimizer, num_steps: int) -> None:
        self._optimizer, self._num_steps = optimizer, num_steps
        self._rates: list[Any] = []

    def begin(self, step: int) -> None:
        """For an update, counted from 1."""
        groups = self._optimizer.param_groups  # others once a state has been loaded
        self._rates = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = group["lr"] * min(1.0, step / self._num_steps)

    def end(self) -> None:
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate


def optimizer_settings(settings: TrainSpec) -> dict[str, float | bool]:
    """The options of the trial's optimizer as settings name them; torch's own where none is given."""
    options = dict(_stand_in(settings).param_groups[0])
    if "betas" in options:
        options["beta1"], options["beta2"] = options.pop("betas")
    known = {"momentum", "weight_decay", *OPTIMIZERS[settings.optimizer].options}
    return {name: value for name, value in options.items() if name in known}


def _stand_in(settings: TrainSpec) -> Optimizer:
    """The trial's optimizer over a single number."""
    settings = settings.model_copy(update={"optimizer_code": "loop"})
    return make_optimizer(settings, nn.ParameterList([torch.zeros(1)]), torch.device("cpu"))


class Rates:
    """The learning rates of a trial, epoch by epoch, as torch's schedule gives them."""

    def __init__(self, settings: TrainSpec) -> None:
        self._optimizer = _stand_in(settings)
        self._schedule = make_schedule(settings, self._optimizer, settings.epochs)

    @property
    def current(self) -> float:
        """That of the running epoch."""
        return float(self._optimizer.param_groups[0]["lr"])

    def change(self) -> None:
        self._optimizer.step()  # on nothing: torch's schedules count
        if self._schedule is not None:
            self._schedule.step()
