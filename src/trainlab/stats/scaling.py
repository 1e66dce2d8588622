"""How the time of a batch grows with its size: a fixed part and a part per sample, checked.

    time(size) = fixed + per_sample * size

Fitted by least squares on the relative error, neither part below zero. A fit from two sizes always
passes through both: it has no interval and no verdict. Where the line is true, intervals cover 95 %
within half a point for 3 to 9 sizes (`benchmarks.verdicts`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from trainlab.errors import SpecError
from trainlab.stats.means import Interval

FitVerdict = Literal["fits", "does not fit", "cannot tell"]

ERROR_LIMIT = 0.25
"""If a size is predicted from the others with a larger relative error, the line does not fit."""

SMALL_GAIN = 0.10


@dataclass(frozen=True)
class Fitted:
    """A value that follows from the fit, in the unit of the times, with its 95 % interval."""

    value: float
    interval: Interval | None


@dataclass(frozen=True)
class LeftOut:
    """A measured batch size, predicted from all others."""

    batch_size: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative to what was measured; positive if predicted too long."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class BatchScaling:
    """The line through the measured sizes, and how far to trust it."""

    sizes: tuple[int, ...]
    times: tuple[float, ...]
    fixed: Fitted
    """Per batch, whatever its size."""
    per_sample: Fitted
    left_out: tuple[LeftOut, ...]
    """Empty below three sizes."""
    verdict: FitVerdict

    @property
    def enough(self) -> float | None:
        """Beyond this size doubling saves less than 10 % of the time per sample.

        Doubling saves fixed / (2 * (fixed + per_sample * size)): below 10 % from 4 * fixed / per_sample
        on. `None` if the time does not grow with the size at all.
        """
        if not self.per_sample.value:
            return None
        return (0.5 / SMALL_GAIN - 1) * self.fixed.value / self.per_sample.value

    def predict(self, batch_size: int) -> Fitted:
        """The time at any batch size; a measurement of it would fall into the interval in 95 % of cases."""
        value = self.fixed.value + self.per_sample.value * batch_size
        line = _line(self.sizes, self.times)
        if line is None:
            return Fitted(value, None)
        row = np.array([1.0, batch_size])
        # The line's own error and that of one measurement, which is a share of the time.
        variance = float(row @ line.covariance @ row) + line.residual**2 * value**2
        half_width = line.quantile * math.sqrt(variance)
        return Fitted(value, Interval(max(0.0, value - half_width), value + half_width))


def fit_batches(times: Mapping[int, float]) -> BatchScaling:
    """From one time per batch size. SpecError below two sizes or if one is not positive."""
    if len(times) < 2 or min(times) < 1 or not all(0 < t < math.inf for t in times.values()):
        raise SpecError(
            [f"batch sizes: got {dict(times)}, must be two or more with positive times"]
        )
    sizes = tuple(sorted(times))
    measured = tuple(times[size] for size in sizes)
    line = _line(sizes, measured)
    fixed, per_sample = (
        Fitted(value, line.interval(part, value) if line else None)
        for part, value in enumerate(_solve(sizes, measured))
    )
    left_out = tuple(_left_out(times, size) for size in sizes) if len(sizes) > 2 else ()
    return BatchScaling(
        sizes=sizes,
        times=measured,
        fixed=fixed,
        per_sample=per_sample,
        left_out=left_out,
        verdict=_verdict(left_out),
    )


def _verdict(left_out: tuple[LeftOut, ...]) -> FitVerdict:
    if not left_out:
        return "cannot tell"
    return "fits" if max(abs(size.error) for size in left_out) <= ERROR_LIMIT else "does not fit"


def _left_out(times: Mapping[int, float], size: int) -> LeftOut:
    others = sorted(times.keys() - {size})
    fixed, per_sample = _solve(others, [times[other] for other in others])
    return LeftOut(size, times[size], fixed + per_sample * size)


@dataclass(frozen=True)
class _Line:
    """The unconstrained least-squares line, whose parts may be negative: the source of the intervals."""

    parts: NDArray[np.float64]
    covariance: NDArray[np.float64]
    residual: float
    quantile: float

    def interval(self, part: int, value: float) -> Interval:
        """Cut at zero; widened where needed to contain the value of the fit that stays above zero."""
        middle = float(self.parts[part])
        half_width = self.quantile * math.sqrt(float(self.covariance[part, part]))
        return Interval(max(0.0, min(value, middle - half_width)), max(value, middle + half_width))


def _rows(sizes: Sequence[int], times: Sequence[float]) -> NDArray[np.float64]:
    """One row per size, divided by its time: the right-hand side is 1 and errors are relative."""
    measured = np.array(times)
    return np.column_stack((1 / measured, np.array(sizes) / measured))


def _solve(sizes: Sequence[int], times: Sequence[float]) -> tuple[float, float]:
    fixed, per_sample = optimize.nnls(_rows(sizes, times), np.ones(len(sizes)))[0]
    return float(fixed), float(per_sample)


def _line(sizes: Sequence[int], times: Sequence[float]) -> _Line | None:
    degrees_of_freedom = len(sizes) - 2
    if degrees_of_freedom < 1:
        return None
    rows = _rows(sizes, times)
    inverse = np.asarray(np.linalg.inv(rows.T @ rows), dtype=np.float64)
    parts = inverse @ rows.sum(axis=0)
    residual = math.sqrt(float(((1 - rows @ parts) ** 2).sum()) / degrees_of_freedom)
    quantile = float(special.stdtrit(degrees_of_freedom, 0.975))
    return _Line(parts, residual**2 * inverse, residual, quantile)
