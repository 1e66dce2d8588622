"""Reducers: tensors, as they come, to a few numbers on their device, without waiting for the device.

A reduction is over all elements of all tensors of a period. Sums are right to 1e-6 relative: in
float64, or, on a device without it, in float32 with the rounding errors carried along.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
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
from trainlab.instruments.probes.spread import Spread
from trainlab.instruments.probes.units import unit_dimension
from trainlab.record.learning_record import HistogramRecord
from trainlab.spec.probe import Bins, ProbeSpec

MAX_PARTS = 64
"""Numbers of single tensors that wait to be added up: one operation for many of them is cheaper."""
CHUNK = 1 << 18
"""Elements that are binned at once: bounds the memory a histogram needs on the way."""

Reduce = Callable[[Tensor], Tensor]
"""A tensor to one number, on its device."""
Finish = Callable[[Sequence[float], int, int], float]
"""A period's sums, how many elements and how many tensors there were, to the reducer's value."""
Value = float | HistogramRecord


class Reduction(Protocol):
    """One probe at one layer: takes tensors in, and at the end of a period gives their numbers."""

    def add(self, values: Tensor) -> None:
        """Takes in one tensor; keeps nothing of its size."""

    def close(self) -> Tensor:
        """The period's numbers, still on the device; the next period starts."""

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        """Those numbers as the reducer's value, given how many elements and tensors there were."""


class Totals:
    """Sums of numbers that each tensor is reduced to."""

    def __init__(self, reduces: Sequence[Reduce], finish: Finish, compensated: bool) -> None:
        """`compensated`: each sum carries its rounding errors along."""
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
        sums = [total.reshape(-1) for total in self._sums if total is not None]
        self._sums = [None for _ in self._reduces]
        return torch.cat(sums)

    def read(self, numbers: Sequence[float], count: int, fired: int) -> Value:
        if self._compensated:
            numbers = [high + low for high, low in zip(numbers[::2], numbers[1::2], strict=True)]
        return self._finish(numbers, count, fired)

    def _add_up(self) -> None:
        for index, parts in enumerate(self._parts):
            if not parts:
                continue
            before = self._sums[index]
            if self._compensated:
                self._sums[index] = _compensated_sum(before, parts)
            else:
                new = torch.stack(parts).sum()
                self._sums[index] = new if before is None else before + new
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
    """The share of units that were never above zero; `units` says what a unit is."""

    def __init__(self) -> None:
        self.dimension: int | None = None
        """That of the units; who probes a layer knows it better than the first tensor tells."""
        self._alive: Tensor | None = None
        self._num_units = 0

    def add(self, values: Tensor) -> None:
        if self.dimension is None:
            self.dimension = unit_dimension((), values)
        above = units_above(values, self.dimension).reshape(-1)
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
        increment = torch.ones((), dtype=torch.int64, device=values.device)
        for chunk in values.reshape(-1).split(CHUNK):
            indices = bin_indices(self._bins, chunk)
            self._counts.scatter_add_(0, indices, increment.expand_as(indices))

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


def bin_indices(bins: Bins, values: Tensor) -> Tensor:
    """Each element's bin, 0 for below and the last for above."""
    values, low, high = values.float(), bins.low, bins.high
    if bins.log:
        values, low, high = values.abs().log10_(), math.log10(low), math.log10(high)
    scaled = (values - low).mul_(bins.num / (high - low)).floor_()
    scaled = scaled.nan_to_num_(nan=math.inf, posinf=math.inf, neginf=-math.inf)
    return scaled.clamp_(-1, bins.num).to(torch.int64).add_(1)


def reduction_for(spec: ProbeSpec, own: Reduce | None, device: torch.device) -> Reduction:
    """A new reduction of the probe's kind; `own` is the user's own reducer where the probe names one."""
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
    if spec.reducer == "std":
        return Spread(exact)
    reduces, finish = _TOTALS[spec.reducer]
    return Totals([partial(reduce, exact=exact) for reduce in reduces], finish, not exact)


def _root(sums: Sequence[float], count: int, fired: int) -> float:
    return math.sqrt(sums[0]) if sums[0] >= 0 else math.nan


_TOTALS: dict[str, tuple[list[Callable[..., Tensor]], Finish]] = {
    "sum": ([total], lambda sums, count, fired: sums[0]),
    "sq_sum": ([square_sum], lambda sums, count, fired: sums[0]),
    "norm": ([square_sum], _root),
    "mean": ([total], lambda sums, count, fired: sums[0] / count),
    "zero_fraction": ([count_zero], lambda sums, count, fired: sums[0] / count),
    "positive_count": ([count_positive], lambda sums, count, fired: sums[0]),
}


def _compensated_sum(before: Tensor | None, parts: Sequence[Tensor]) -> Tensor:
    """A sum in two float32 numbers: the second carries what the first could not hold."""
    high, low = (parts[0].new_zeros(()),) * 2 if before is None else before.unbind()
    for part in parts:
        new = high + part
        added = new - high
        low = low + ((high - (new - added)) + (part - added))
        high = new
    return torch.stack([high, low])
