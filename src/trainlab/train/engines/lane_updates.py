"""The update of many trials at once, step for step as `torch.optim` makes them.

On a GPU it is one pass over the numbers instead of a dozen: the kernels of `updates.cu`, compiled by
NVRTC, which comes with torch, when they are first needed. Where there are none, by torch's operations.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainlab.spec import TrainSpec
from trainlab.train.updates import optimizer_settings

FLAGS = {"amsgrad": 1, "nesterov": 2, "centered": 4, "momentum": 8, "decoupled": 16}
"""Parts that an update may have, as its kernel is told of them."""
THREADS, NUMBERS_PER_THREAD = 256, 4
KERNEL_STATES = 3


def update_key(settings: TrainSpec) -> tuple[Any, ...]:
    """Trials with the same key are updated by the same operations; sorting by it puts them together."""
    return settings.optimizer, tuple(sorted(_flags_of(settings)))


def _flags_of(settings: TrainSpec) -> frozenset[str]:
    """The parts that the trial's update has and another's may not have."""
    options = optimizer_settings(settings)
    parts = ("amsgrad", "nesterov", "centered", "momentum", "weight_decay")
    on = {name for name in parts if options.get(name)}
    return frozenset(on | ({"decoupled"} if settings.optimizer == "adamw" else set()))


class LaneUpdate:
    """The update of all trials; rows of one optimizer and kind lie together (`update_key`)."""

    def __init__(self, settings: Sequence[TrainSpec], parameters: Tensor) -> None:
        """`parameters` (trials x numbers) are updated in place."""
        self._parts: list[_Part] = []
        for _, group in groupby(enumerate(settings), lambda one: update_key(one[1])):
            numbers, members = zip(*group, strict=True)
            rows = slice(numbers[0], numbers[-1] + 1)
            self._parts.append(_Part(members, rows, parameters[rows]))
        self.tensors = [one for part in self._parts for one in (part.steps, *part.state.values())]
        """All state that a step changes, besides the parameters."""

    def set_rates(self, rates: Sequence[float]) -> None:
        for part in self._parts:
            values = torch.tensor(rates[part.rows], dtype=torch.float64).unsqueeze(1)
            part.rates.copy_(values)

    def step(self, gradients: Tensor) -> None:
        """One update of every trial; `gradients` may be used up."""
        for part in self._parts:
            part.step(gradients[part.rows])


class _Part:
    """Trials that are updated by the same operations. Columns are float64: powers of a decay near 1 must
    not lose digits."""

    def __init__(self, settings: Sequence[TrainSpec], rows: slice, parameters: Tensor) -> None:
        self.rows, self.parameters = rows, parameters
        self.flags, self._rule = _flags_of(settings[0]), RULES[settings[0].optimizer]
        own = [optimizer_settings(one) for one in settings]
        self.rates = self._column([one.start_lr for one in settings])
        self.steps = torch.zeros_like(self.rates)
        self.exact = {name: self._column([one[name] for one in own]) for name in own[0]}
        self.state = {
            name: torch.zeros_like(parameters)
            for name, flag in self._rule.states.items()
            if not flag or flag in self.flags
        }
        if "sum" in self.state:
            self.state["sum"] += self["initial_accumulator_value"]
        is_float = parameters.dtype == torch.float32
        self._kernel = _kernel_of(self._rule.kernel, parameters.device) if is_float else None
        self._hypers = torch.cat([self.exact[name] for name in self._rule.hypers], dim=1)

    def _column(self, values: Sequence[float]) -> Tensor:
        device = self.parameters.device
        return torch.tensor(values, dtype=torch.float64, device=device).unsqueeze(1)

    def __getitem__(self, setting: str) -> Tensor:
        """A column of the parameters' type."""
        return self.cast(self.exact[setting])

    def rest(self, setting: str) -> Tensor:
        """What is left to 1."""
        return self.cast(1 - self.exact[setting])

    def cast(self, column: Tensor) -> Tensor:
        return column.to(self.parameters.dtype)

    def step(self, gradients: Tensor) -> None:
        """One update of every row; the kernel's tensors must lie whole in memory."""
        self.steps.add_(1)
        if self._kernel is None:
            if "weight_decay" in self.flags and "decoupled" not in self.flags:
                gradients.addcmul_(self.parameters, self["weight_decay"])
            self._rule.update(self, self.parameters, gradients)
            return
        num_rows, num_numbers = self.parameters.shape
        states = [self.state.get(name, self._hypers) for name in self._rule.states]
        self._kernel(
            grid=(-(-num_numbers // (THREADS * NUMBERS_PER_THREAD)), num_rows, 1),
            block=(THREADS, 1, 1),
            args=[
                self.parameters,
                gradients,
                *(states + [self._hypers] * KERNEL_STATES)[:KERNEL_STATES],  # unused ones
                self._hypers,
                self._hypers.shape[1],
                self.rates,
                self.steps,
                num_numbers,
                sum(bit for name, bit in FLAGS.items() if name in self.flags),
            ],
        )


@cache
def _kernel_of(name: str, device: torch.device) -> Callable[..., None] | None:
    if device.type != "cuda" or torch.version.hip is not None:
        return None
    source = files("trainlab.train.engines").joinpath("updates.cu").read_text()
    try:
        with torch.cuda.device(device):
            kernel: Callable[..., None] = torch.cuda._compile_kernel(source, name)
    except (RuntimeError, OSError):  # no NVRTC that fits the driver
        return None
    return kernel


def _sgd(part: _Part, parameters: Tensor, gradients: Tensor) -> None:
    if "momentum" in part.flags:
        momentum = part.state["momentum"]
        # The first step takes the gradient whole, whatever the dampening.
        share = torch.where(part.steps == 1, 1.0, 1 - part.exact["dampening"])
        momentum.mul_(part["momentum"]).addcmul_(gradients, part.cast(share))
        if "nesterov" in part.flags:
            gradients.addcmul_(momentum, part["momentum"])
        else:
            gradients = momentum
    parameters.addcmul_(gradients, -part.cast(part.rates))


def _adam(part: _Part, parameters: Tensor, gradients: Tensor) -> None:
    if "decoupled" in part.flags:
        parameters.mul_(part.cast(1 - part.rates * part.exact["weight_decay"]))
    mean, square = part.state["mean"], part.state["square"]
    mean.lerp_(gradients, part.rest("beta1").expand_as(mean))
    square.mul_(part["beta2"]).addcmul_(gradients.mul(part.rest("beta2")), gradients)
    if "amsgrad" in part.flags:
        square = torch.maximum(part.state["largest"], square, out=part.state["largest"])
    first = 1 - part.exact["beta1"] ** part.steps
    second = (1 - part.exact["beta2"] ** part.steps).sqrt()
    scaled = torch.addcmul(part["eps"], square.sqrt(), part.cast(1 / second))
    parameters.addcmul_(mean.div(scaled), part.cast(-part.rates / first))


def _adadelta(part: _Part, parameters: Tensor, gradients: Tensor) -> None:
    square, delta = part.state["square"], part.state["delta"]
    rho, rest, eps = part["rho"], part.rest("rho"), part["eps"]
    square.mul_(rho).addcmul_(gradients.mul(rest), gradients)
    change = (delta + eps).div_(square + eps).sqrt_().mul_(gradients)
    delta.mul_(rho).addcmul_(change.mul(rest), change)
    parameters.addcmul_(change, part.cast(-part.rates))


def _rmsprop(part: _Part, parameters: Tensor, gradients: Tensor) -> None:
    square, rest = part.state["square"], part.rest("alpha")
    square.mul_(part["alpha"]).addcmul_(gradients.mul(rest), gradients)
    if "centered" in part.flags:
        mean = part.state["mean"]
        mean.lerp_(gradients, rest.expand_as(mean))
        root = torch.addcmul(square, mean, mean, value=-1).sqrt_()
    else:
        root = square.sqrt()
    change = gradients.div_(root.add_(part["eps"]))
    if "momentum" in part.flags:
        change = part.state["momentum"].mul_(part["momentum"]).add_(change)
    parameters.addcmul_(change, part.cast(-part.rates))


def _adagrad(part: _Part, parameters: Tensor, gradients: Tensor) -> None:
    total = part.state["sum"].addcmul_(gradients, gradients)
    rates = -part.rates / (1 + (part.steps - 1) * part.exact["lr_decay"])
    parameters.addcmul_(gradients.div_(total.sqrt().add_(part["eps"])), part.cast(rates))


class Rule(NamedTuple):
    kernel: str
    hypers: tuple[str, ...]
    """Its settings in the order in which the kernel reads them."""
    states: Mapping[str, str]
    """What it keeps for every number, in the kernel's order, each with the flag that it is for."""
    update: Callable[[_Part, Tensor, Tensor], None]


_ADAM = (
    ("weight_decay", "beta1", "beta2", "eps"),
    {"mean": "", "square": "", "largest": "amsgrad"},
    _adam,
)
RULES: Mapping[str, Rule] = {
    "sgd": Rule("sgd", ("weight_decay", "momentum", "dampening"), {"momentum": "momentum"}, _sgd),
    "adam": Rule("adam", *_ADAM),
    "adamw": Rule("adam", *_ADAM),
    "adadelta": Rule(
        "adadelta", ("weight_decay", "rho", "eps"), {"square": "", "delta": ""}, _adadelta
    ),
    "rmsprop": Rule(
        "rmsprop",
        ("weight_decay", "alpha", "eps", "momentum"),
        {"square": "", "mean": "centered", "momentum": "momentum"},
        _rmsprop,
    ),
    "adagrad": Rule("adagrad", ("weight_decay", "lr_decay", "eps"), {"sum": ""}, _adagrad),
}
