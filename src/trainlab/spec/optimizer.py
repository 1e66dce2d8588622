"""The optimizers by name: what torch's optimizer of that name starts from and which options it knows."""

from dataclasses import dataclass
from typing import Literal

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


_EVERYWHERE = ("cpu", "cuda", "mps")
_ADAM_OPTIONS = ("beta1", "beta2", "eps", "amsgrad")

OPTIMIZERS: dict[OptimizerName, OptimizerRules] = {
    "adadelta": OptimizerRules("Adadelta", 1.0, ("rho", "eps")),
    "sgd": OptimizerRules("SGD", 1e-3, ("dampening", "nesterov"), _EVERYWHERE, takes_momentum=True),
    "adam": OptimizerRules("Adam", 1e-3, _ADAM_OPTIONS, _EVERYWHERE),
    "adamw": OptimizerRules("AdamW", 1e-3, _ADAM_OPTIONS, _EVERYWHERE),
    "rmsprop": OptimizerRules("RMSprop", 1e-2, ("alpha", "eps", "centered"), takes_momentum=True),
    "adagrad": OptimizerRules(
        "Adagrad", 1e-2, ("lr_decay", "eps", "initial_accumulator_value"), fused_on=("cpu",)
    ),
}
