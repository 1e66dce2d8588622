"""Reducers: from tensors as they come to a few numbers, on their device, without waiting for it.

A reduction is over all elements of all tensors of a period. Sums are right to 1e-6 relative: in
float64, or, on a device without it, in float32 with the rounding errors carried along.
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from trainlab.errors import SpecError
from trainlab.instruments.probes.accurate_sums import (
    count_positive,
    count_zero,
    square_sum,
    total,
    units_above,
)
from trainlab.record.probe import HistogramRecord
from trainlab.spec.probe import Bins, ProbeSpec

MAX_PARTS = 64
"""Numbers of single tensors that wait to be added up: one operation for many is cheaper."""
CHUNK = 1 << 18
"""Elements that are binned at once: bounds the memory a histogram needs on the way."""

Reduce = Callable[[Tensor], Tensor]
"""A tensor to one number, on its device."""
Value = float | HistogramRecord


class Reduction(Protocol):
    """One probe at one layer: takes tensors in, and at the end of a period gives what they came to."""

    def add(self, values: Tensor) -> None:
        """Takes in one tensor; keeps nothing of its size."""

    def close(self) -> Tensor:
        """The period's numbers, still on the device; the next period starts."""

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        """Those numbers as the reducer's value, given how many elements and tensors there were."""


class Totals:
    """Sums of numbers that each tensor is reduced to."""

    def __init__(
        self,
        reduces: Sequence[Reduce],
        finish: Callable[[Sequence[float], int, int], float],
        compensated: bool = False,
    ) -> None:
        self._reduces, self._finish, self._compensated = reduces, finish, compensated
        self._parts: list[list[Tensor]] = [[] for _ in reduces]
        self._sums: list[Tensor | None] = [None for _ in reduces]

    def add(self, values: Tensor) -> None:
        for reduce, parts in zip(self._reduces, self._parts, strict=True):
            parts.append(reduce(values))
        if len(self._parts[0]) >= MAX_PARTS:
            self._add_up()

    def close(self) -> Tensor:
        self._add_up()
        sums = [found for found in self._sums if found is not None]
        self._sums = [None for _ in self._reduces]
        return torch.cat([found.reshape(-1) for found in sums])

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        if self._compensated:
            numbers = [high + low for high, low in zip(numbers[::2], numbers[1::2], strict=True)]
        return self._finish(numbers, count, fired)

    def _add_up(self) -> None:
        for index, parts in enumerate(self._parts):
            if not parts:
                continue
            known = self._sums[index]
            if self._compensated:
                self._sums[index] = _compensated_sum(known, parts)
            else:
                found = torch.stack(parts).sum()
                self._sums[index] = found if known is None else known + found
            parts.clear()


class Extremes:
    """The smallest or largest of numbers that each tensor is reduced to; not a number wins."""

    def __init__(self, reduce: Reduce) -> None:
        self._reduce = reduce
        self._parts: list[Tensor] = []

    def add(self, values: Tensor) -> None:
        if values.numel():
            self._parts.append(self._reduce(values))
        if len(self._parts) >= MAX_PARTS:
            self._parts = [self._reduce(torch.stack(self._parts))]

    def close(self) -> Tensor:
        parts, self._parts = self._parts, []
        return self._reduce(torch.stack(parts)).reshape(1) if parts else torch.full((1,), math.nan)

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        return numbers[0]


class DeadUnits:
    """The share of units that were never above zero. A unit is a feature: the last dimension, or of
    images (four dimensions and more) a channel."""

    def __init__(self) -> None:
        self._alive: Tensor | None = None
        self._num_units = 0

    def add(self, values: Tensor) -> None:
        above = units_above(values).reshape(-1)
        if self._num_units not in (0, len(above)):
            raise SpecError(
                [
                    f"dead_fraction: got {len(above)} units after {self._num_units}: this layer's "
                    "features change their number; use zero_fraction"
                ]
            )
        self._num_units = len(above)
        self._alive = above if self._alive is None else self._alive | above

    def close(self) -> Tensor:
        assert self._alive is not None
        alive, self._alive = self._alive, None
        return alive.sum().reshape(1)

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        return 1 - numbers[0] / self._num_units


class Histogram:
    """Counts per bin; below and above apart."""

    def __init__(self, bins: Bins) -> None:
        self._bins = bins
        self._counts: Tensor | None = None

    def add(self, values: Tensor) -> None:
        if self._counts is None:
            self._counts = values.new_zeros(self._bins.num + 2, dtype=torch.int64)
        one = torch.ones((), dtype=torch.int64, device=values.device)
        for chunk in values.reshape(-1).split(CHUNK):
            places = self._places(chunk)
            self._counts.scatter_add_(0, places, one.expand_as(places))

    def close(self) -> Tensor:
        assert self._counts is not None
        counts, self._counts = self._counts, None
        return counts

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        counts, bins = [int(number) for number in numbers], self._bins
        return HistogramRecord(
            log=bins.log,
            low=bins.low,
            high=bins.high,
            counts=counts[1:-1],
            below=counts[0],
            above=counts[-1],
        )

    def _places(self, values: Tensor) -> Tensor:
        """Each element's bin, 0 for below and the last for above."""
        bins, values = self._bins, values.float()
        low, high = bins.low, bins.high
        if bins.log:
            values, low, high = values.abs().log10_(), math.log10(low), math.log10(high)
        scaled = (values - low).mul_(bins.num / (high - low)).floor_()
        scaled = scaled.nan_to_num_(nan=math.inf, posinf=math.inf, neginf=-math.inf)
        return scaled.clamp_(-1, bins.num).to(torch.int64).add_(1)


def reduction_for(spec: ProbeSpec, own: Reduce | None, device: torch.device) -> Reduction:
    """A fresh reduction of the kind the probe asks for."""
    if spec.bins is not None:
        return Histogram(spec.bins)
    if spec.reducer == "dead_fraction":
        return DeadUnits()
    if spec.reducer in ("min", "max"):
        return Extremes(torch.amin if spec.reducer == "min" else torch.amax)
    # Apple GPUs have no float64.
    exact = device.type != "mps"
    if own is not None:
        return Totals([own], lambda sums, count, fired: sums[0] / fired, not exact)
    reduces, finish = _SUMS[spec.reducer]
    return Totals([reduce(exact) for reduce in reduces], finish, not exact)


def reducer_of_own(spec: ProbeSpec, function: Callable[[Tensor], object]) -> Reduce:
    """The user's function, its result checked: one number per tensor, averaged over a period."""

    def reduce(values: Tensor) -> Tensor:
        try:
            found = function(values)
        except Exception as error:
            raise SpecError(
                [f"probe {spec}: {spec.reducer} failed: {type(error).__name__}: {error}"]
            ) from error
        if not isinstance(found, Tensor) or found.dim() != 0:
            got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else repr(found)
            raise SpecError(
                [f"probe {spec}: {spec.reducer} gave {got}, must be a tensor of one number"]
            )
        exact = values.device.type != "mps"
        return found.detach().to(torch.float64 if exact else torch.float32)

    return reduce


def _std(sums: Sequence[float], count: int, fired: int) -> float:
    mean = sums[0] / count
    return (
        math.sqrt(max(sums[1] / count - mean * mean, 0.0)) if math.isfinite(sums[1]) else math.nan
    )


def _root(sums: Sequence[float], count: int, fired: int) -> float:
    return math.sqrt(sums[0]) if sums[0] >= 0 else math.nan


_Finish = Callable[[Sequence[float], int, int], float]
_SUMS: dict[str, tuple[list[Callable[[bool], Reduce]], _Finish]] = {
    "sum": ([total], lambda sums, count, fired: sums[0]),
    "sq_sum": ([square_sum], lambda sums, count, fired: sums[0]),
    "norm": ([square_sum], _root),
    "mean": ([total], lambda sums, count, fired: sums[0] / count),
    "std": ([total, square_sum], _std),
    "zero_fraction": ([count_zero], lambda sums, count, fired: sums[0] / count),
    "positive_count": ([count_positive], lambda sums, count, fired: sums[0]),
}


def _compensated_sum(known: Tensor | None, parts: Sequence[Tensor]) -> Tensor:
    """A sum in two float32 numbers: the second carries what the first could not hold."""
    high, low = (parts[0].new_zeros(()),) * 2 if known is None else known.unbind()
    for part in parts:
        new = high + part
        kept = new - high
        low = low + ((high - (new - kept)) + (part - kept))
        high = new
    return torch.stack([high, low])
