"""Reducers of many trials at once: tensors whose first dimension is the trials, to numbers of each trial.

What they keep stays in place and is changed in place, and no number is read by the host while tensors are
taken in: so a captured step can hold it. Sums are float64.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import vmap

from trainlab.errors import SpecError
from trainlab.instruments.probes.reducers import (
    CHUNK,
    Reduce,
    Value,
    bin_indices,
    reduction_for,
)
from trainlab.spec.probe import Bins, ProbeSpec

Read = Callable[[Sequence[float], int, int], Value]
"""Numbers of one trial, elements and tensors, to the reducer's value."""


class LaneReduction(ABC):
    """One probe at one layer, of all trials; `Reduction` says what its methods mean."""

    def __init__(self, read: Read) -> None:
        """`read` is that of the same reducer for one trial."""
        self._read = read
        self.tensors: list[Tensor] = []
        """All that taking in tensors changes."""

    @abstractmethod
    def add(self, values: Tensor) -> None:
        """Takes in a tensor of all trials."""

    @abstractmethod
    def numbers(self) -> Tensor:
        """The period's numbers so far, a row per trial; a copy."""

    @abstractmethod
    def reset(self) -> None:
        """Starts a period."""

    def close(self) -> Tensor:
        """The period's numbers; the next period starts."""
        numbers = self.numbers()
        self.reset()
        return numbers

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        """The numbers of one trial as the reducer's value."""
        return self._read(numbers, count, fired)


class LaneTotals(LaneReduction):
    """Sums of the number that each tensor is reduced to."""

    def __init__(self, read: Read, reduce: Reduce, num_lanes: int, device: torch.device) -> None:
        super().__init__(read)
        self._reduce = reduce
        self._sums = torch.zeros(num_lanes, 1, dtype=torch.float64, device=device)
        self.tensors = [self._sums]

    def add(self, values: Tensor) -> None:
        self._sums.add_(self._reduce(values).unsqueeze(1))

    def numbers(self) -> Tensor:
        return self._sums.clone()

    def reset(self) -> None:
        self._sums.zero_()


class LaneExtremes(LaneReduction):
    """The smallest or largest element; not a number wins."""

    def __init__(self, read: Read, reducer: str, num_lanes: int, device: torch.device) -> None:
        super().__init__(read)
        self._is_min = reducer == "min"
        self._start = math.inf if self._is_min else -math.inf
        self._extremes = torch.full((num_lanes, 1), self._start, dtype=torch.float64, device=device)
        self.tensors = [self._extremes]

    def add(self, values: Tensor) -> None:
        if not values.numel():
            return
        dims = _own_dims(values)
        found = values.amin(dims) if self._is_min else values.amax(dims)
        choose = torch.minimum if self._is_min else torch.maximum
        choose(self._extremes, found.unsqueeze(1).double(), out=self._extremes)

    def numbers(self) -> Tensor:
        return self._extremes.clone()

    def reset(self) -> None:
        self._extremes.fill_(self._start)

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        return super().read(numbers, count, fired) if count else math.nan


class LaneSpread(LaneReduction):
    """Count, mean and sum of squared deviations, merged tensor by tensor."""

    def __init__(self, read: Read, num_lanes: int, device: torch.device) -> None:
        super().__init__(read)
        # The count is the same for all trials, but a captured step can only have it on the device.
        self._count, self._mean, self._deviations = torch.zeros(
            3, num_lanes, 1, dtype=torch.float64, device=device
        ).unbind()
        self.tensors = [self._count, self._mean, self._deviations]

    def add(self, values: Tensor) -> None:
        num_new = values[0].numel()
        if not num_new:
            return
        dims, values = _own_dims(values), values.double()
        means = values.mean(dims, keepdim=True)
        deviations = (values - means).square_().sum(dims).unsqueeze(1)
        apart = means.reshape(-1, 1) - self._mean
        total = self._count + num_new
        self._deviations.add_(deviations + apart.square() * (self._count * num_new / total))
        self._mean.add_(apart * (num_new / total))
        self._count.copy_(total)

    def numbers(self) -> Tensor:
        return self._deviations.clone()

    def reset(self) -> None:
        for tensor in self.tensors:
            tensor.zero_()


class LaneDeadUnits(LaneReduction):
    """The share of units that were never above zero."""

    def __init__(self) -> None:
        super().__init__(lambda numbers, count, fired: 1 - numbers[0] / self._num_units)
        self.dimension: int | None = None
        """That of the units, in a tensor of one trial."""
        self._alive: Tensor | None = None

    @property
    def _num_units(self) -> int:
        assert self._alive is not None
        return self._alive.shape[1]

    def add(self, values: Tensor) -> None:
        assert self.dimension is not None
        others = [dim for dim in _own_dims(values) if dim != self.dimension + 1]
        above = ((values.amax(others) if others else values) > 0).flatten(1)
        if self._alive is None:
            self._alive = torch.zeros_like(above)
            self.tensors = [self._alive]
        if above.shape != self._alive.shape:
            raise SpecError(
                [
                    f"dead_fraction: got {above.shape[1]} units after {self._num_units}: this "
                    "layer's features change their number; use zero_fraction"
                ]
            )
        self._alive.logical_or_(above)

    def numbers(self) -> Tensor:
        assert self._alive is not None
        return self._alive.sum(1, keepdim=True)

    def reset(self) -> None:
        if self._alive is not None:
            self._alive.zero_()


class LaneHistogram(LaneReduction):
    """Counts per bin; below and above apart."""

    def __init__(self, read: Read, bins: Bins, num_lanes: int, device: torch.device) -> None:
        super().__init__(read)
        self._bins = bins
        self._counts = torch.zeros(num_lanes, bins.num + 2, dtype=torch.int64, device=device)
        self._one = torch.ones((), dtype=torch.int64, device=device)
        self.tensors = [self._counts]

    def add(self, values: Tensor) -> None:
        for chunk in values.flatten(1).split(max(CHUNK // len(values), 1), dim=1):
            indices = bin_indices(self._bins, chunk)
            self._counts.scatter_add_(1, indices, self._one.expand_as(indices))

    def numbers(self) -> Tensor:
        return self._counts.clone()

    def reset(self) -> None:
        self._counts.zero_()


def lane_reduction_for(
    spec: ProbeSpec, own: Reduce | None, num_lanes: int, device: torch.device
) -> LaneReduction:
    """A new reduction of the probe's kind; `own` is the user's own reducer where the probe names one."""
    if spec.reducer == "dead_fraction":
        return LaneDeadUnits()
    read = reduction_for(spec, own, device).read
    if spec.bins is not None:
        return LaneHistogram(read, spec.bins, num_lanes, device)
    if spec.reducer in ("min", "max"):
        return LaneExtremes(read, spec.reducer, num_lanes, device)
    if spec.reducer == "std":
        return LaneSpread(read, num_lanes, device)
    reduce = _SUMMED[spec.reducer] if own is None else _OfEachLane(own)
    return LaneTotals(read, reduce, num_lanes, device)


class _OfEachLane:
    """A user's own reducer, of all trials at once where vmap can, else of one after the other."""

    def __init__(self, own: Reduce) -> None:
        self._own, self._is_vectorised = own, True

    def __call__(self, values: Tensor) -> Tensor:
        if self._is_vectorised:
            try:
                reduced: Tensor = vmap(self._own)(values)
            except SpecError:  # trial by trial it says what is wrong, if anything is
                self._is_vectorised = False
            else:
                return reduced
        return torch.stack([self._own(of_trial) for of_trial in values])


def _own_dims(values: Tensor) -> tuple[int, ...]:
    """All dimensions but that of the trials."""
    return tuple(range(1, values.dim()))


def _sum(values: Tensor) -> Tensor:
    return values.sum(_own_dims(values), dtype=torch.float64)


def _square_sum(values: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values, dim=_own_dims(values), dtype=torch.float64)
    return norms.square()


def _count_zero(values: Tensor) -> Tensor:
    return (values == 0).sum(_own_dims(values))


def _count_positive(values: Tensor) -> Tensor:
    return (values > 0).sum(_own_dims(values))


_SUMMED: dict[str, Reduce] = {
    "sum": _sum,
    "sq_sum": _square_sum,
    "norm": _square_sum,
    "mean": _sum,
    "zero_fraction": _count_zero,
    "positive_count": _count_positive,
}
