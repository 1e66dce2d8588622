"""An update of many trials as one CUDA kernel: one pass over the numbers instead of a dozen.

The kernels (`updates.cu`) are compiled by NVRTC, which comes with torch, when they are first needed.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from trainlab.spec import TrainSpec
from trainlab.train.optimizers import optimizer_settings

HYPERS = {
    "sgd": ("weight_decay", "momentum", "dampening"),
    "adam": ("weight_decay", "beta1", "beta2", "eps"),
    "adamw": ("weight_decay", "beta1", "beta2", "eps"),
    "adadelta": ("weight_decay", "rho", "eps"),
    "rmsprop": ("weight_decay", "alpha", "eps", "momentum"),
    "adagrad": ("weight_decay", "lr_decay", "eps"),
}
"""The settings of each optimizer in the order in which its kernel reads them."""
STATE = {
    "sgd": ("momentum",),
    "adam": ("mean", "square", "largest"),
    "adamw": ("mean", "square", "largest"),
    "adadelta": ("square", "delta"),
    "rmsprop": ("square", "mean", "momentum"),
    "adagrad": ("sum",),
}
"""What each keeps for every number, in the order of its kernel, and of the compiled code on a CPU."""
FLAGS = {"amsgrad": 1, "nesterov": 2, "centered": 4, "momentum": 8, "decoupled": 16}
THREADS = 256
NUMBERS_PER_THREAD = 4

Kernel = Callable[..., None]


@cache
def kernel_of(optimizer: str, device: torch.device) -> Kernel | None:
    """The optimizer's kernel; None where there is none: then the update is made of torch's operations."""
    compile_kernel: Any = getattr(torch.cuda, "_compile_kernel", None)
    if device.type != "cuda" or torch.version.hip is not None or compile_kernel is None:
        return None
    source = files("trainlab.train.engines").joinpath("updates.cu").read_text()
    name = "adam" if optimizer == "adamw" else optimizer
    try:
        with torch.cuda.device(device):
            kernel: Kernel = compile_kernel(source, name)
    except (RuntimeError, OSError):  # no NVRTC that fits the driver
        return None
    return kernel


class FusedUpdate:
    """One kernel, its settings laid out as it reads them."""

    def __init__(
        self,
        kernel: Kernel,
        optimizer: str,
        exact: dict[str, Tensor],
        state: dict[str, Tensor],
        flags: Set[str],
    ) -> None:
        """`exact` are the optimizer's settings as columns of float64; `flags` what the update has."""
        self._kernel = kernel
        self._hypers = torch.cat([exact[name] for name in HYPERS[optimizer]], dim=1).contiguous()
        unused = next(iter(state.values())) if state else self._hypers
        kept = [state.get(name, unused) for name in STATE[optimizer]]
        self._state = [*kept, *[unused] * (3 - len(kept))]
        self._flags = sum(bit for name, bit in FLAGS.items() if name in flags)

    def step(self, parameters: Tensor, gradients: Tensor, rates: Tensor, steps: Tensor) -> None:
        """One update of every row; all tensors must lie whole in memory."""
        num_rows, num_numbers = parameters.shape
        blocks = -(-num_numbers // (THREADS * NUMBERS_PER_THREAD))
        self._kernel(
            grid=(blocks, num_rows, 1),
            block=(THREADS, 1, 1),
            args=[
                parameters,
                gradients,
                *self._state,
                self._hypers,
                self._hypers.shape[1],
                rates,
                steps,
                num_numbers,
                self._flags,
            ],
        )


# The optimizers' updates for many trials at once, step for step as `torch.optim` makes them.


def update_key(settings: TrainSpec) -> tuple[Any, ...]:
    """Trials with the same key are updated by the same operations; sorting by it puts them together."""
    return settings.optimizer, tuple(sorted(_flags_of(settings)))


class LaneUpdate:
    """The update of all trials; rows of one optimizer and kind lie together (`update_key`)."""

    def __init__(self, settings: Sequence[TrainSpec], parameters: Tensor) -> None:
        """`parameters` (trials x numbers) are updated in place."""
        self._parts: list[_Part] = []
        first = 0
        for _, group in groupby(settings, update_key):
            members = list(group)
            rows = slice(first, first + len(members))
            self._parts.append(_Part(members, rows, parameters[rows]))
            first += len(members)

    @property
    def tensors(self) -> list[Tensor]:
        """All state that a step changes, besides the parameters."""
        return [tensor for part in self._parts for tensor in (part.steps, *part.state.values())]

    def set_rates(self, rates: Sequence[float]) -> None:
        """The learning rates from the next step on."""
        for part in self._parts:
            values = torch.tensor(rates[part.rows], dtype=torch.float64).unsqueeze(1)
            part.rates.copy_(values)

    def step(self, gradients: Tensor) -> None:
        """One update of every trial; `gradients` may be used up."""
        for part in self._parts:
            part.step(gradients[part.rows])


class _Part:
    """Trials that are updated by the same operations."""

    def __init__(self, settings: Sequence[TrainSpec], rows: slice, parameters: Tensor) -> None:
        self.rows, self._parameters = rows, parameters
        name = settings[0].optimizer
        device, dtype = parameters.device, parameters.dtype
        # Small columns are float64: powers of a decay near 1 must not lose digits.
        self.rates = torch.tensor(
            [[one.start_lr] for one in settings], dtype=torch.float64, device=device
        )
        self.steps = torch.zeros(len(settings), 1, dtype=torch.float64, device=device)
        columns = [optimizer_settings(one) for one in settings]
        self._exact = {
            option: torch.tensor(
                [[one[option]] for one in columns], dtype=torch.float64, device=device
            )
            for option in columns[0]
        }
        self._hypers = {option: column.to(dtype) for option, column in self._exact.items()}
        self._hypers |= {
            f"1-{option}": (1 - column).to(dtype) for option, column in self._exact.items()
        }
        self._flags = _flags_of(settings[0])
        self._rule = _RULES[name]
        self.state = {kind: torch.zeros_like(parameters) for kind in _state_of(name, self._flags)}
        if name == "adagrad":
            self.state["sum"] += self._hypers["initial_accumulator_value"]
        # One pass over the numbers for the whole update, where there is code for that.
        kernel = kernel_of(name, device) if dtype == torch.float32 else None
        self.code: FusedUpdate | None = None
        if kernel is not None:
            self.code = FusedUpdate(kernel, name, self._exact, self.state, self._flags)

    def step(self, gradients: Tensor) -> None:
        self.steps.add_(1)
        if self.code is not None:
            self.code.step(self._parameters, gradients, self.rates, self.steps)
            return
        if self.has("weight_decay") and not self.has("decoupled"):
            gradients.addcmul_(self._parameters, self._hypers["weight_decay"])
        self._rule(self, self._parameters, gradients)

    def column(self, values: Tensor) -> Tensor:
        """A column of the parameters' type."""
        return values.to(self._parameters.dtype)

    def hyper(self, name: str) -> Tensor:
        """A setting as a column of the parameters' type; `1-beta1` is what is left to 1."""
        return self._hypers[name]

    def exact(self, name: str) -> Tensor:
        """A setting as a column of float64."""
        return self._exact[name]

    def has(self, flag: str) -> bool:
        """Whether the update has this part: see `_flags_of`."""
        return flag in self._flags


def _flags_of(settings: TrainSpec) -> frozenset[str]:
    """The parts that the trial's update has and another's may not have."""
    options = optimizer_settings(settings)
    parts = ("amsgrad", "nesterov", "centered", "momentum", "weight_decay")
    on = {name for name in parts if options.get(name)}
    return frozenset(on | ({"decoupled"} if settings.optimizer == "adamw" else set()))


def _state_of(name: str, flags: Set[str]) -> list[str]:
    """The names of the tensors an optimizer keeps for every parameter."""
    momentum = ["momentum"] if "momentum" in flags else []
    if name == "sgd":
        return momentum
    if name in ("adam", "adamw"):
        return ["mean", "square", *(["largest"] if "amsgrad" in flags else [])]
    if name == "adadelta":
        return ["square", "delta"]
    if name == "adagrad":
        return ["sum"]
    return ["square", *(["mean"] if "centered" in flags else []), *momentum]


def _sgd(part: _Part, parameters: Tensor, gradients: Tensor) -> None:
    rate = part.column(part.rates)
    if part.has("momentum"):
        momentum = part.state["momentum"]
        # The first step takes the gradient whole, whatever the dampening.
        share = torch.where(part.steps == 1, 1.0, 1 - part.exact("dampening"))
        momentum.mul_(part.hyper("momentum")).addcmul_(gradients, part.column(share))
        if part.has("nesterov"):
            gradients.addcmul_(momentum, part.hyper("momentum"))
        else:
            gradients = momentum
    parameters.addcmul_(gradients, -rate)


def _adam(part: _Part, parameters: Tensor, gradients: Tensor) -> None:
    mean, square = part.state["mean"], part.state["square"]
    mean.lerp_(gradients, part.hyper("1-beta1").expand_as(mean))
    square.mul_(part.hyper("beta2")).addcmul_(gradients.mul(part.hyper("1-beta2")), gradients)
    if part.has("amsgrad"):
        square = torch.maximum(part.state["largest"], square, out=part.state["largest"])
    first = 1 - part.exact("beta1") ** part.steps
    second = (1 - part.exact("beta2") ** part.steps).sqrt()
    scaled = torch.addcmul(part.hyper("eps"), square.sqrt(), part.column(1 / second))
    parameters.addcmul_(mean.div(scaled), part.column(-part.rates / first))


def _adamw(part: _Part, parameters: Tensor, gradients: Tensor) -> None:
    parameters.mul_(part.column(1 - part.rates * part.exact("weight_decay")))
    _adam(part, parameters, gradients)


def _adadelta(part: _Part, parameters: Tensor, gradients: Tensor) -> None:
    square, delta, eps = part.state["square"], part.state["delta"], part.hyper("eps")
    rho, rest = part.hyper("rho"), part.hyper("1-rho")
    square.mul_(rho).addcmul_(gradients.mul(rest), gradients)
    change = (delta + eps).div_(square + eps).sqrt_().mul_(gradients)
    delta.mul_(rho).addcmul_(change.mul(rest), change)
    parameters.addcmul_(change, part.column(-part.rates))


def _rmsprop(part: _Part, parameters: Tensor, gradients: Tensor) -> None:
    square, rate = part.state["square"], part.column(-part.rates)
    square.mul_(part.hyper("alpha")).addcmul_(gradients.mul(part.hyper("1-alpha")), gradients)
    if part.has("centered"):
        mean = part.state["mean"]
        mean.lerp_(gradients, part.hyper("1-alpha").expand_as(mean))
        root = torch.addcmul(square, mean, mean, value=-1).sqrt_()
    else:
        root = square.sqrt()
    change = gradients.div_(root.add_(part.hyper("eps")))
    if part.has("momentum"):
        momentum = part.state["momentum"]
        change = momentum.mul_(part.hyper("momentum")).add_(change)
    parameters.addcmul_(change, rate)


def _adagrad(part: _Part, parameters: Tensor, gradients: Tensor) -> None:
    total = part.state["sum"].addcmul_(gradients, gradients)
    rates = -part.rates / (1 + (part.steps - 1) * part.exact("lr_decay"))
    parameters.addcmul_(gradients.div_(total.sqrt().add_(part.hyper("eps"))), part.column(rates))


_RULES: Mapping[str, Callable[[_Part, Tensor, Tensor], None]] = {
    "sgd": _sgd,
    "adam": _adam,
    "adamw": _adamw,
    "adadelta": _adadelta,
    "rmsprop": _rmsprop,
    "adagrad": _adagrad,
}
