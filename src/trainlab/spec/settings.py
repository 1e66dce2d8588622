"""TrainSpec: the settings of one training trial, and how a workload's defaults fill them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from trainlab.spec.base import Spec, Unit, checked

OptimizerName = Literal["adadelta", "sgd", "adam", "adamw", "rmsprop", "adagrad"]
Scalar = bool | int | float | str


@dataclass(frozen=True)
class OptimizerRules:
    """What torch's optimizer of that name starts from and which options it knows."""

    lr: float
    options: frozenset[str]
    takes_momentum: bool = False


OPTIMIZERS: dict[str, OptimizerRules] = {
    "adadelta": OptimizerRules(1.0, frozenset({"rho", "eps"})),
    "sgd": OptimizerRules(1e-3, frozenset({"dampening", "nesterov"}), takes_momentum=True),
    "adam": OptimizerRules(1e-3, frozenset({"beta1", "beta2", "eps", "amsgrad"})),
    "adamw": OptimizerRules(1e-3, frozenset({"beta1", "beta2", "eps", "amsgrad"})),
    "rmsprop": OptimizerRules(1e-2, frozenset({"alpha", "eps", "centered"}), takes_momentum=True),
    "adagrad": OptimizerRules(1e-2, frozenset({"lr_decay", "eps", "initial_accumulator_value"})),
}


FUSED = {
    "cpu": {"adam", "adamw", "sgd", "adagrad"},
    "cuda": {"adam", "adamw", "sgd"},
    "mps": {"adam", "adamw", "sgd"},
}
"""Where torch has the whole update as one kernel."""


def pairs_of(value: object) -> Any:
    """`hidden=64,bias=true` as a mapping, so that flags and files say the same thing."""
    if not isinstance(value, str):
        return value
    pairs: dict[str, Scalar] = {}
    for part in filter(None, (p.strip() for p in value.split(","))):
        name, equals, text = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"got {part!r}, must be name=value pairs, as in hidden=64,bias=true")
        pairs[name.strip()] = scalar_of(text.strip())
    return pairs


def _numbers(value: object) -> object:
    """Pairs whose values are numbers or true and false."""
    pairs = pairs_of(value)
    if isinstance(pairs, dict):
        for name, number in pairs.items():
            if not isinstance(number, bool | int | float):
                raise ValueError(f"{name}: got {number!r}, must be a number, true or false")
    return pairs


def scalar_of(text: str) -> Scalar:
    """A word of a command line as true or false, a number, or itself."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class TrainSpec(Spec):
    """How one trial trains. Every field is a setting, and later a factor that can be varied."""

    epochs: Annotated[PositiveInt, Unit("epochs")] = 1
    """Passes over the training set."""
    batch_size: Annotated[PositiveInt, Unit("samples")] = 64
    """Training samples per update."""
    test_batch_size: Annotated[PositiveInt, Unit("samples")] = 1000
    """Test samples per forward pass; does not change the result."""
    optimizer: OptimizerName = "adam"
    """The update rule."""
    lr: Annotated[PositiveFloat | None, Unit("rate")] = None
    """Learning rate at the start; not given: the optimizer's own default."""
    momentum: Annotated[NonNegativeFloat | None, Field(lt=1), Unit("factor")] = None
    """Momentum, for sgd and rmsprop."""
    weight_decay: Annotated[NonNegativeFloat | None, Unit("factor")] = None
    """L2 penalty (decoupled for adamw); not given: the optimizer's own default."""
    optimizer_options: Annotated[
        dict[str, bool | int | float], BeforeValidator(_numbers), Unit("name=value")
    ] = {}
    """Further options of the optimizer, as rho=0.9,eps=1e-6."""
    optimizer_code: Literal["auto", "fused", "foreach", "loop"] = "auto"
    """Which of torch's implementations of the same update; auto: fused where there is one."""
    schedule: Literal["none", "step", "cosine"] = "none"
    """How the learning rate changes after each epoch; cosine falls to 0 over all epochs."""
    lr_gamma: Annotated[float, Field(gt=0, le=1), Unit("factor")] = 0.1
    """Step schedule: the learning rate is multiplied by this."""
    lr_step_epochs: Annotated[PositiveInt, Unit("epochs")] = 1
    """Step schedule: how many epochs lie between two multiplications."""
    zero_grad: Annotated[bool, Unit("true|false")] = True
    """Reset gradients before each update; false lets them pile up (it then fails to learn)."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = "auto"
    """auto, cpu, cuda, cuda:N or mps; auto picks the accelerator if there is one."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 is autocast with fp32 weights."""
    threads: Annotated[PositiveInt | None, Unit("threads")] = None
    """Threads for torch on the CPU; not given: torch's choice. It changes rounding: keep it equal."""
    allocator: Literal["keep", "system"] = "keep"
    """keep: freed CPU memory stays with the process (on Linux; steps are up to 3 times faster)."""
    denormals: Literal["flush", "keep"] = "flush"
    """flush: numbers below 1e-38 count as 0 on the CPU (Adadelta gets there and becomes 3 times slower)."""
    log_every_steps: Annotated[PositiveInt | None, Unit("updates")] = None
    """Updates between two points of the training curve; not given: about 50 points an epoch."""
    data: Annotated[str, Unit("which")] = "auto"
    """full, bundled (a subset), a folder, or auto: full if it can be had, else bundled."""
    model: Annotated[dict[str, Scalar], BeforeValidator(pairs_of), Unit("name=value")] = {}
    """Parameters of the workload's model, as hidden=256."""

    @model_validator(mode="after")
    def _fits_its_optimizer(self) -> "TrainSpec":
        rules, problems = OPTIMIZERS[self.optimizer], []
        if self.momentum is not None and not rules.takes_momentum:
            takers = ", ".join(name for name, other in OPTIMIZERS.items() if other.takes_momentum)
            problems.append(f"momentum: {self.optimizer} takes none; optimizers that do: {takers}")
        problems += [
            f"optimizer_options.{name}: {self.optimizer} has no such option; "
            f"it has {', '.join(sorted(rules.options))}"
            for name in self.optimizer_options
            if name not in rules.options
        ]
        if self.optimizer_code == "fused" and self.optimizer not in FUSED["cpu"]:
            problems.append(f"optimizer_code: torch has no fused {self.optimizer}; use auto")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def start_lr(self) -> float:
        """The learning rate of the first epoch."""
        return OPTIMIZERS[self.optimizer].lr if self.lr is None else self.lr


OPTIMIZER_SETTINGS = ("lr", "momentum", "weight_decay", "optimizer_options", "optimizer_code")


def settings_for(
    defaults: Mapping[str, Any], asked: Mapping[str, Any], where: str = ""
) -> TrainSpec:
    """A workload's defaults overridden by what was asked, checked as one.

    Asking for another optimizer drops the defaults tuned for the workload's own: Adadelta's
    learning rate of 1.0 would wreck Adam.
    """
    kept = dict(defaults)
    own = kept.get("optimizer", TrainSpec.model_fields["optimizer"].default)
    if asked.get("optimizer", own) != own:
        for name in OPTIMIZER_SETTINGS:
            kept.pop(name, None)
    return checked(TrainSpec, {**kept, **asked}, where)
