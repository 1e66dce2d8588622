"""Reducers: tensors, as they come, to a few numbers on their device, without waiting for the device.

A reduction is over all elements of all tensors of a period. The first dimension of every tensor is the
trials that are reduced side by side; one trial alone is one row. What is kept stays in place and is
changed in place, so that a captured step can hold it. Sums are right to a millionth of the
magnitudes that are added.
"""

import math
import re
import runpy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from trainlab.errors import SpecError, said_by
from trainlab.record.learning_record import HistogramRecord
from trainlab.spec.probe import Bins, ProbeSpec

CHUNK = 1 << 18
"""Elements that are binned at once: bounds the memory a histogram needs on the way. Fewer are added up in
float64 alone."""

Reduce = Callable[[Tensor], Tensor]
"""A tensor to one number per trial, on its device."""
Value = float | HistogramRecord


@dataclass(eq=False)
class Reduction(ABC):
    """One probe at one layer: takes tensors in, and at the end of a period gives their numbers."""

    start: float = field(default=0.0, init=False)
    tensors: list[Tensor] = field(default_factory=list, init=False)
    """All that taking in tensors changes; made for the first one, where that lies."""

    @abstractmethod
    def add(self, values: Tensor) -> None:
        """Takes in one tensor; keeps nothing of its size."""

    @abstractmethod
    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        """One trial's numbers as the reducer's value, given how many elements and tensors there were."""

    def numbers(self) -> Tensor:
        """The period's numbers so far, a row per trial, still on the device; a copy."""
        return self.tensors[0].clone()

    def reset(self) -> None:
        for tensor in self.tensors:
            tensor.fill_(self.start)

    def _kept(self, values: Tensor, num: int = 1) -> list[Tensor]:
        """So many numbers per trial that are kept."""
        if not self.tensors:
            shape, kind = (num, len(values), 1), _exact(values)
            kept = torch.full(shape, self.start, dtype=kind, device=values.device)
            self.tensors = list(kept.unbind())
        return self.tensors


@dataclass(eq=False)
class Totals(Reduction):
    """Sums of the number that each tensor is reduced to."""

    reduce: Reduce
    finish: Callable[[float, int, int], float]
    """A period's sum, how many elements and how many tensors there were, to the value."""

    def add(self, values: Tensor) -> None:
        self._kept(values)[0].add_(self.reduce(values).unsqueeze(1))

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        return self.finish(numbers[0], count, fired)


@dataclass(eq=False)
class Extremes(Reduction):
    """The smallest or largest element; not a number wins."""

    is_min: bool

    def __post_init__(self) -> None:
        self.start = math.inf if self.is_min else -math.inf

    def add(self, values: Tensor) -> None:
        (kept,) = self._kept(values)
        if values.numel():
            find, choose = (
                (Tensor.amin, torch.minimum) if self.is_min else (Tensor.amax, torch.maximum)
            )
            found = find(values, _own_dims(values))
            choose(kept, found.unsqueeze(1).to(kept.dtype), out=kept)

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        return numbers[0] if count else math.nan


class SpreadReducer(Reduction):
    """The standard deviation. The mean of squares less the square of the mean would cancel: tensors are
    merged by their counts, means and sums of squared deviations."""

    def add(self, values: Tensor) -> None:
        deviations, mean, count = self._kept(values, 3)
        if not (num_new := values[0].numel()):
            return
        dims, values = _own_dims(values), values.to(mean.dtype)
        means = values.mean(dims, keepdim=True)
        of_tensor = (values - means).square_().sum(dims).unsqueeze(1)
        apart, total = means.reshape(-1, 1) - mean, count + num_new
        deviations.add_(of_tensor + apart.square() * (count * num_new / total))
        mean.add_(apart * (num_new / total))
        count.copy_(total)

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        is_finite = math.isfinite(numbers[0]) and count
        return math.sqrt(max(numbers[0], 0.0) / count) if is_finite else math.nan


@dataclass(eq=False)
class DeadUnits(Reduction):
    """The share of units that were never above zero; `unit_dimension` says what a unit is."""

    dimension: int | None = None
    """That of the units, in a tensor of one trial; who probes a layer knows it."""

    def add(self, values: Tensor) -> None:
        assert self.dimension is not None
        others = [dim for dim in _own_dims(values) if dim != self.dimension + 1]
        above = ((values.amax(others) if others else values) > 0).flatten(1)
        if not self.tensors:
            self.tensors = [torch.zeros_like(above)]
        (alive,) = self.tensors
        if above.shape != alive.shape:
            units = f"got {above.shape[1]} units after {alive.shape[1]}"
            remedy = "this layer's features change their number; use zero_fraction"
            raise SpecError([f"dead_fraction: {units}: {remedy}"])
        alive.logical_or_(above)

    def numbers(self) -> Tensor:
        return self.tensors[0].sum(1, keepdim=True)

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        return 1 - numbers[0] / self.tensors[0].shape[1]


@dataclass(eq=False)
class Histogram(Reduction):
    """Counts per bin; below and above apart."""

    bins: Bins

    def add(self, values: Tensor) -> None:
        if not self.tensors:
            self.tensors = [values.new_zeros(len(values), self.bins.num + 2, dtype=torch.int64)]
        one = torch.ones((), dtype=torch.int64, device=values.device)
        for chunk in values.flatten(1).split(max(CHUNK // len(values), 1), dim=1):
            indices = self._places(chunk)
            self.tensors[0].scatter_add_(1, indices, one.expand_as(indices))

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        below, *counts, above = [int(number) for number in numbers]
        ends = self.bins.model_dump(include={"log", "low", "high"})
        return HistogramRecord(**ends, counts=counts, below=below, above=above)

    def _places(self, values: Tensor) -> Tensor:
        """Each element's bin, 0 for below and the last for above."""
        values, low, high = values.float(), self.bins.low, self.bins.high
        if self.bins.log:
            values, low, high = values.abs().log10_(), math.log10(low), math.log10(high)
        scaled = (values - low).mul_(self.bins.num / (high - low)).floor_()
        scaled = scaled.nan_to_num_(nan=math.inf, posinf=math.inf, neginf=-math.inf)
        return scaled.clamp_(-1, self.bins.num).to(torch.int64).add_(1)


def reduction_for(spec: ProbeSpec, own: Reduce | None = None) -> Reduction:
    """A new reduction of the probe's kind; `own` is the user's own reducer where the probe names one."""
    if spec.bins is not None:
        return Histogram(spec.bins)
    if spec.reducer == "dead_fraction":
        return DeadUnits()
    if spec.reducer in ("min", "max"):
        return Extremes(spec.reducer == "min")
    if spec.reducer == "std":
        return SpreadReducer()
    if own is not None:
        return Totals(own, lambda total, count, fired: total / fired)
    return Totals(*_TOTALS[spec.reducer])


def own_reducer(spec: ProbeSpec) -> Reduce | None:
    """The function a probe names as `FILE.py:FUNCTION`, from a tensor to a tensor of one number; None where
    its reducer is one of ours."""
    if spec.function is None:
        return None
    path, name = Path(spec.function[0]), spec.function[1]

    def refused(problem: str, error: Exception | None = None) -> SpecError:
        reason = "" if error is None else f": {type(error).__name__}: {said_by(error)}"
        return SpecError([f"probe {spec}: {problem}{reason}"])

    if not path.is_file():
        raise refused(f"{path}: no such file")
    try:
        defined = runpy.run_path(str(path))
    except Exception as error:
        raise refused(f"{path}: cannot be read", error) from error
    function = defined.get(name)
    if not callable(function):
        names = [n for n, one in defined.items() if callable(one) and not n.startswith("_")]
        listed = f"; it has {', '.join(names)}" if names else ""
        raise refused(f"{path} has no function {name!r}{listed}")

    def of_trial(values: Tensor) -> Tensor:
        try:
            result = function(values)
        except Exception as error:
            raise refused(f"{spec.reducer} failed", error) from error
        if not isinstance(result, Tensor) or result.dim() != 0:
            got = f"shape {tuple(result.shape)}" if isinstance(result, Tensor) else repr(result)
            raise refused(f"{spec.reducer} gave {got}, must be a tensor of one number")
        return result.detach().to(_exact(values))

    return lambda values: torch.stack([of_trial(one) for one in values])


OF_CHANNELS = re.compile(
    r"(lazy|mkldnn|cudnn|miopen|slow|native)?(conv|batchnorm|instancenorm|groupnorm|max_?pool|avgpool|adaptive)"
)
OF_FEATURES = re.compile(r"(addmm|mm|bmm|linear|nativelayernorm|layernorm|embedding)")
ELEMENT_WISE = re.compile(
    r"(relu|threshold|leakyrelu|elu|gelu|silu|mish|tanh|sigmoid|hardtanh|hardswish|softplus|prelu|mul|add"
    r"|sub|div|neg|pow|abs|exp|clamp|nativedropout|fuseddropout|clone|tocopy|copy|squeeze|unsafeview|view)"
    r"backward"
)
"""Squeezed: pooling in one dimension is pooling in two; a view: a linear layer of more than two dimensions
is a flat product."""
MOST_NODES = 32
"""As far as the graph is followed back."""


def unit_dimension(types: Sequence[str], values: Tensor) -> int:
    """Which dimension of what a layer took or gave holds its units: channels of what convolves, pools or
    normalises by batch, else the last. `(samples, a, b)` may be either: a ReLU is told by what made its
    input, so the autograd graph is followed back through element-wise operations."""
    channels, last = 1, max(values.dim() - 1, 0)
    if last < 2 or any(OF_CHANNELS.match(name.lower().replace("_", "")) for name in types):
        return min(channels, last)
    node = values.grad_fn
    for _ in range(MOST_NODES):
        name = "" if node is None else type(node).__name__.lower()
        if OF_CHANNELS.match(name) or OF_FEATURES.match(name):
            return channels if OF_CHANNELS.match(name) else last
        if node is None or not ELEMENT_WISE.match(name) or not node.next_functions:
            break
        node = node.next_functions[0][0]
    return channels if values.dim() >= 4 else last


def _exact(values: Tensor) -> torch.dtype:
    """What sums are taken in: Apple GPUs have no float64."""
    return torch.float32 if values.device.type == "mps" else torch.float64


def _own_dims(values: Tensor) -> tuple[int, ...]:
    """All dimensions but that of the trials."""
    return tuple(range(1, values.dim()))


def _sum(values: Tensor) -> Tensor:
    # A CPU adds float32 several times as fast: of a large tensor rows in it, their sums in float64.
    if values.dim() > 2 and values.dtype == torch.float32 and values.numel() >= CHUNK:
        values = values.sum(-1, dtype=torch.float32)
    return values.sum(_own_dims(values), dtype=_exact(values))


def _square_sum(values: Tensor) -> Tensor:
    dims, kind = _own_dims(values), _exact(values)
    norms: Tensor = torch.linalg.vector_norm(values, dim=dims, dtype=kind)
    return norms.square()


def _count(holds: Callable[..., Tensor], values: Tensor) -> Tensor:
    return _sum(holds(values, 0, out=torch.empty_like(values, dtype=torch.float32)))


_TOTALS: dict[str, tuple[Reduce, Callable[[float, int, int], float]]] = {
    "sum": (_sum, lambda total, count, fired: total),
    "sq_sum": (_square_sum, lambda total, count, fired: total),
    "norm": (_square_sum, lambda total, count, fired: math.sqrt(total) if total >= 0 else math.nan),
    "mean": (_sum, lambda total, count, fired: total / count),
    "zero_fraction": (partial(_count, torch.eq), lambda total, count, fired: total / count),
    "positive_count": (partial(_count, torch.gt), lambda total, count, fired: total),
}
