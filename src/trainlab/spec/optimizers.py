"""The optimizers by name: what torch's optimizer of that name starts from and which options it knows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from trainlab.spec.base import did_you_mean

OptimizerName = Literal["adadelta", "sgd", "adam", "adamw", "rmsprop", "adagrad"]


@dataclass(frozen=True)
class OptimizerRules:
    """One of torch's optimizers."""

    torch_class: str
    """Its name in `torch.optim`."""
    lr: float
    options: tuple[str, ...]
    fused_on: tuple[str, ...] = ()
    """Kinds of device for which torch has the whole update as one kernel."""
    takes_momentum: bool = False


OPTION_RULES = {
    **dict.fromkeys(("amsgrad", "nesterov", "centered"), "true or false"),
    **dict.fromkeys(("beta1", "beta2"), "at least 0 and less than 1"),
    "rho": "from 0 to 1",
}
"""What torch wants an option to be; of all others, a number of at least 0."""

_EVERYWHERE = ("cpu", "cuda", "mps")
_ADAM = ("beta1", "beta2", "eps", "amsgrad")
_ADAGRAD = ("lr_decay", "eps", "initial_accumulator_value")

OPTIMIZERS: dict[OptimizerName, OptimizerRules] = {
    "adadelta": OptimizerRules("Adadelta", 1.0, ("rho", "eps")),
    "sgd": OptimizerRules("SGD", 1e-3, ("dampening", "nesterov"), _EVERYWHERE, True),
    "adam": OptimizerRules("Adam", 1e-3, _ADAM, _EVERYWHERE),
    "adamw": OptimizerRules("AdamW", 1e-3, _ADAM, _EVERYWHERE),
    "rmsprop": OptimizerRules("RMSprop", 1e-2, ("alpha", "eps", "centered"), (), True),
    "adagrad": OptimizerRules("Adagrad", 1e-2, _ADAGRAD, ("cpu",)),
}


def optimizer_problems(
    optimizer: OptimizerName,
    momentum: float | None,
    options: Mapping[str, bool | int | float],
    code: str,
) -> Iterator[str]:
    """What torch's optimizer of that name would not take."""
    rules = OPTIMIZERS[optimizer]
    known = rules.options
    if momentum is not None and not rules.takes_momentum:
        takers = ", ".join(name for name, other in OPTIMIZERS.items() if other.takes_momentum)
        yield f"momentum: {optimizer} takes none; optimizers that do: {takers}"
    for name, value in options.items():
        if name not in known:
            has = f"it has {', '.join(sorted(known))}{did_you_mean(name, known)}"
            yield f"optimizer_options.{name}: {optimizer} has no such option; {has}"
            continue
        rule, is_flag = OPTION_RULES.get(name, "at least 0"), isinstance(value, bool)
        most = {"from 0 to 1": value <= 1, "at least 0 and less than 1": value < 1}
        if is_flag != (rule == "true or false"):
            yield f"optimizer_options.{name}: got {value!r}, must be {'a number' if is_flag else rule}"
        elif value < 0 or not most.get(rule, True):
            yield f"optimizer_options.{name}: got {value!r}, must be {rule}"
    if options.get("nesterov") and not momentum:
        yield "optimizer_options.nesterov: needs momentum; add momentum, as 0.9"
    elif options.get("nesterov") and options.get("dampening"):
        yield "optimizer_options.nesterov: needs dampening 0; leave dampening out"
    if code == "fused" and not rules.fused_on:
        yield f"optimizer_code: torch has no fused {optimizer}; use auto"
