"""The standard deviation of all elements of a period, right also where the mean is far larger.

The mean of the squares less the square of the mean would cancel. Here each tensor is shifted by its own
mean first, and tensors are merged by their counts, means and sums of squared deviations.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from trainlab.instruments.probes.accurate_sums import square_sum, total

MAX_PARTS = 64
"""Tensors that wait to be merged: one operation for many of them is cheaper."""


class Spread:
    """Takes tensors in, and keeps their count, mean and sum of squared deviations."""

    def __init__(self, exact: bool) -> None:
        """`exact`: in float64; otherwise in float32, for a device without it."""
        self._exact = exact
        self._counts: list[Tensor] = []
        """On the device like the others: handing numbers over from the host would wait for it."""
        self._means: list[Tensor] = []
        self._deviations: list[Tensor] = []

    def add(self, values: Tensor) -> None:
        """Takes in one tensor; while it does, it holds as much memory again."""
        count = values.numel()
        if not count:
            return
        # Half precision has no room for deviations; a shift need not be exact, only near the mean.
        values = values if values.dtype == torch.float64 else values.float()
        shift = (total(values, self._exact) / count).to(values.dtype)
        shifted = values - shift
        mean = total(shifted, self._exact) / count
        self._counts.append(mean.new_full((), count))
        self._means.append(shift.to(mean.dtype) + mean)
        self._deviations.append(square_sum(shifted, self._exact) - count * mean * mean)
        if len(self._counts) >= MAX_PARTS:
            self._merge()

    def close(self) -> Tensor:
        """The sum of squared deviations; not a number where nothing came."""
        self._merge()
        deviations = self._deviations or [torch.full((), math.nan)]
        self._counts, self._means, self._deviations = [], [], []
        return deviations[0].reshape(1)

    def read(self, numbers: Sequence[float], count: int, fired: int) -> float:
        """Divided by the count."""
        is_finite = math.isfinite(numbers[0]) and count
        return math.sqrt(max(numbers[0], 0.0) / count) if is_finite else math.nan

    def _merge(self) -> None:
        if len(self._counts) < 2:
            return
        means, counts = torch.stack(self._means), torch.stack(self._counts)
        # Means are near each other where they are large: their differences are exact enough.
        apart = means - means[0]
        middle = (counts * apart).sum() / counts.sum()
        between = (counts * (apart - middle).square()).sum()
        self._deviations = [torch.stack(self._deviations).sum() + between]
        self._means = [means[0] + middle]
        self._counts = [counts.sum()]
