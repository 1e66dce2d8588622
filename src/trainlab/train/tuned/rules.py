"""How each of torch's optimizers is asked of the compiled update: its number, options and states."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

Group = Mapping[str, Any]
StateNames = tuple[str | None, str | None, str | None]

DTYPES = (torch.float32, torch.float64)
LEFT_TO_TORCH = ("maximize", "differentiable", "capturable")
"""Options of a group that the compiled update does not know."""


class Options(ctypes.Structure):
    """`Options` in update.cpp."""

    _fields_ = (
        ("lr", ctypes.c_double),
        ("first", ctypes.c_double),
        ("second", ctypes.c_double),
        ("eps", ctypes.c_double),
        ("weight_decay", ctypes.c_double),
        ("extra", ctypes.c_double),
        ("flag", ctypes.c_int64),
    )


def options_in(group: Group) -> list[Any]:
    """All that a group of parameters has beside these."""
    return [value for name, value in group.items() if name != "params"]


def _stays(option: Any) -> bool:
    """Whether it cannot change without being replaced."""
    if isinstance(option, tuple):
        return all(map(_stays, option))
    return option is None or isinstance(option, float | int | str)


@dataclass(frozen=True)
class Rule:
    """How one of torch's optimizers is asked of the compiled update."""

    kind: int
    """Its number in update.cpp."""
    options: Callable[[Group], Mapping[str, float]]
    states: Callable[[Group], StateNames]
    """Their names, in the order of update.cpp; None for one that the group's options leave out."""
    counts_steps: bool = True
    decouples: bool = False
    """Whether it takes weight decay as AdamW does."""

    def options_of(self, group: Group) -> Options | None:
        """None where the group has options that are left to torch, or such as may change in place."""
        if any(group.get(name) for name in LEFT_TO_TORCH):
            return None
        if group.get("decoupled_weight_decay", self.decouples) != self.decouples:
            return None
        if not all(map(_stays, options_in(group))):
            return None
        rates = {"lr": group["lr"], "weight_decay": group["weight_decay"]}
        return Options(**rates, **self.options(group))

    def names(self, group: Group) -> tuple[str | None, ...]:
        """Of the states, and last of the step."""
        return *self.states(group), "step" if self.counts_steps else None


def _adam_options(group: Group) -> Mapping[str, float]:
    first, second = group["betas"]
    return {"first": first, "second": second, "eps": group["eps"], "flag": bool(group["amsgrad"])}


def _adam_states(group: Group) -> StateNames:
    return "exp_avg", "exp_avg_sq", "max_exp_avg_sq" if group["amsgrad"] else None


def _rmsprop_options(group: Group) -> Mapping[str, float]:
    first, second = group["alpha"], group["momentum"]
    return {"first": first, "second": second, "eps": group["eps"], "flag": bool(group["centered"])}


def _rmsprop_states(group: Group) -> StateNames:
    mean = "grad_avg" if group["centered"] else None
    return "square_avg", mean, "momentum_buffer" if group["momentum"] > 0 else None


RULES: Mapping[type[Optimizer], Rule] = {
    torch.optim.Adadelta: Rule(
        kind=0,
        options=lambda group: {"first": group["rho"], "eps": group["eps"]},
        states=lambda group: ("square_avg", "acc_delta", None),
    ),
    torch.optim.SGD: Rule(
        kind=1,
        options=lambda group: {
            "first": group["momentum"],
            "extra": group["dampening"],
            "flag": bool(group["nesterov"]),
        },
        states=lambda group: ("momentum_buffer" if group["momentum"] else None, None, None),
        counts_steps=False,
    ),
    torch.optim.Adam: Rule(kind=2, options=_adam_options, states=_adam_states),
    torch.optim.AdamW: Rule(kind=3, options=_adam_options, states=_adam_states, decouples=True),
    torch.optim.RMSprop: Rule(kind=4, options=_rmsprop_options, states=_rmsprop_states),
    torch.optim.Adagrad: Rule(
        kind=5,
        options=lambda group: {"first": group["lr_decay"], "eps": group["eps"]},
        states=lambda group: ("sum", None, None),
    ),
}
