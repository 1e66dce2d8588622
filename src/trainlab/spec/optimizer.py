"""The optimizers by name: what torch's optimizer of that name starts from and which options it knows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

OptimizerName = Literal["adadelta", "sgd", "adam", "adamw", "rmsprop", "adagrad"]


@dataclass(frozen=True)
class NumberOption:
    """An option that is a number, and where torch wants it to lie."""

    below: float | None = None
    """It must be less than this; None: no such bound."""
    most: float | None = None
    """It must be at most this; None: no such bound."""

    def rule_broken_by(self, value: float) -> str | None:
        """What the value must be and is not."""
        if isinstance(value, bool):
            return "must be a number"
        if self.below is not None and not 0 <= value < self.below:
            return f"must be at least 0 and less than {self.below:g}"
        if self.most is not None and not 0 <= value <= self.most:
            return f"must be from 0 to {self.most:g}"
        return None if value >= 0 else "must be at least 0"


@dataclass(frozen=True)
class FlagOption:
    """An option that is true or false."""

    def rule_broken_by(self, value: float) -> str | None:
        """What the value must be and is not."""
        return None if isinstance(value, bool) else "must be true or false"


Option = NumberOption | FlagOption


@dataclass(frozen=True)
class OptimizerRules:
    """One of torch's optimizers."""

    torch_class: str
    """Its name in `torch.optim`."""
    lr: float
    options: Mapping[str, Option]
    fused_on: tuple[str, ...] = ()
    """Kinds of device for which torch has the whole update as one kernel."""
    takes_momentum: bool = False


_EVERYWHERE = ("cpu", "cuda", "mps")
_SHARE = NumberOption(below=1)
_ADAM: Mapping[str, Option] = {
    "beta1": _SHARE,
    "beta2": _SHARE,
    "eps": NumberOption(),
    "amsgrad": FlagOption(),
}
_ADADELTA: Mapping[str, Option] = {"rho": NumberOption(most=1), "eps": NumberOption()}
_SGD: Mapping[str, Option] = {"dampening": NumberOption(), "nesterov": FlagOption()}
_RMSPROP: Mapping[str, Option] = {
    "alpha": NumberOption(),
    "eps": NumberOption(),
    "centered": FlagOption(),
}
_ADAGRAD: Mapping[str, Option] = {
    "lr_decay": NumberOption(),
    "eps": NumberOption(),
    "initial_accumulator_value": NumberOption(),
}

OPTIMIZERS: dict[OptimizerName, OptimizerRules] = {
    "adadelta": OptimizerRules("Adadelta", 1.0, _ADADELTA),
    "sgd": OptimizerRules("SGD", 1e-3, _SGD, _EVERYWHERE, takes_momentum=True),
    "adam": OptimizerRules("Adam", 1e-3, _ADAM, _EVERYWHERE),
    "adamw": OptimizerRules("AdamW", 1e-3, _ADAM, _EVERYWHERE),
    "rmsprop": OptimizerRules("RMSprop", 1e-2, _RMSPROP, takes_momentum=True),
    "adagrad": OptimizerRules("Adagrad", 1e-2, _ADAGRAD, fused_on=("cpu",)),
}
