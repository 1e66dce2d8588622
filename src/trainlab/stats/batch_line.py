"""How the time of a batch grows with its size: a fixed part and a part per sample, checked.

    time(size) = fixed + per_sample * size

Fitted by least squares on the relative error, neither part below zero. A fit from two sizes always
passes through both: it has no verdict, and an interval only where the noise of the times is known. Where
the line is true, intervals cover 95% within half a point for 3 to 9 sizes (`benchmarks.verdicts`), and
it is said not to fit in at most 5% of cases, whatever the noise.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainlab.errors import SpecError
from trainlab.stats import special
from trainlab.stats.contrasts import LEVEL, Floats
from trainlab.stats.means import Interval

FitVerdict = Literal["fits", "does not fit", "cannot tell"]

ERROR_LIMIT = 0.25
"""A line fits if every size is predicted from the others with at most this relative error. It does not if
one error is larger than this and than what noise allows; in between, nobody can tell."""
SMALL_GAIN = 0.10


@dataclass(frozen=True)
class TimeNoise:
    """How well one of the times is known: its relative standard error, from repeats."""

    error: float
    degrees_of_freedom: int


@dataclass(frozen=True)
class Fitted:
    """A value that follows from the fit, in the unit of the times, with its 95% interval."""

    value: float
    interval: Interval | None


@dataclass(frozen=True)
class LeftOut:
    """A measured batch size, predicted from all others."""

    error: float
    """Of the prediction, relative to what was measured; positive if too long."""
    allowed: float | None
    """The error that noise alone stays below, in all sizes together, in 95% of cases; None: unknown."""


@dataclass(frozen=True)
class _Line:
    """The unconstrained least-squares line, whose parts may be negative: the source of the intervals."""

    parts: Floats
    covariance: Floats
    residual: float
    quantile: float


@dataclass(frozen=True)
class BatchScaling:
    """The line through the measured sizes, and how far to trust it."""

    fixed: Fitted
    """Per batch, whatever its size."""
    per_sample: Fitted
    left_out: tuple[LeftOut, ...]
    """Empty below three sizes."""
    line: _Line | None
    """None where nothing tells the error."""

    @property
    def verdict(self) -> FitVerdict:
        """By how well every size is predicted from the others."""
        far = [size for size in self.left_out if abs(size.error) > ERROR_LIMIT]
        if self.left_out and not far:
            return "fits"
        beyond = any(size.allowed is not None and abs(size.error) > size.allowed for size in far)
        return "does not fit" if beyond else "cannot tell"

    @property
    def enough(self) -> float | None:
        """Beyond this size doubling saves less than 10% of the time per sample.

        Doubling saves fixed / (2 * (fixed + per_sample * size)): below 10% from 4 * fixed / per_sample
        on. `None` if the time does not grow with the size at all.
        """
        if not self.per_sample.value:
            return None
        return (0.5 / SMALL_GAIN - 1) * self.fixed.value / self.per_sample.value

    @property
    def enough_interval(self) -> Interval | None:
        """The 95% interval of `enough`, by Fieller; None where nothing tells the error.

        A ratio r of the parts is in it where fixed - r * per_sample is not significantly different from 0.
        It has no upper end where the time may not grow with the size at all.
        """
        if self.line is None or self.fixed.interval is None or self.per_sample.interval is None:
            return None
        fixed, per_sample = self.line.parts
        slack = self.line.quantile**2 * self.line.covariance
        a, b = per_sample**2 - slack[1, 1], fixed * per_sample - slack[0, 1]
        inside = b**2 - a * (fixed**2 - slack[0, 0])
        if a <= 0 or inside < 0 or self.enough is None:
            most = self.per_sample.interval.high
            return Interval(4 * self.fixed.interval.low / most if most else math.inf, math.inf)
        ends = [4 * (b + sign * math.sqrt(inside)) / a for sign in (-1, 1)]
        return Interval(max(0.0, min(*ends, self.enough)), max(*ends, self.enough))

    def predict(self, batch_size: int) -> Fitted:
        """The time at any batch size; a measurement of it would fall into the interval in 95% of cases."""
        value = self.fixed.value + self.per_sample.value * batch_size
        if self.line is None:
            return Fitted(value, None)
        row = np.array([1.0, batch_size])
        # The line's own error and that of one measurement, which is a share of the time.
        variance = float(row @ self.line.covariance @ row) + self.line.residual**2 * value**2
        half_width = self.line.quantile * math.sqrt(variance)
        return Fitted(value, Interval(max(0.0, value - half_width), value + half_width))


def noise_of(samples: Iterable[Sequence[float]]) -> TimeNoise | None:
    """Of the geometric mean of each of some repeated times, pooled; None where none was repeated."""
    logs = [[math.log(time) for time in times] for times in samples]
    degrees = sum(len(times) - 1 for times in logs)
    if not degrees:
        return None
    squares = sum((len(times) - 1) * statistics.variance(times) for times in logs if len(times) > 1)
    share = statistics.fmean(1 / len(times) for times in logs)
    return TimeNoise(math.sqrt(squares / degrees * share), degrees)


def fit_batches(times: Mapping[int, float], noise: TimeNoise | None = None) -> BatchScaling:
    """From one time per batch size. SpecError below two sizes or if one is not positive."""
    if len(times) < 2 or min(times) < 1 or not all(0 < t < math.inf for t in times.values()):
        raise SpecError(
            [f"batch sizes: got {dict(times)}, must be two or more with positive times"]
        )
    sizes = sorted(times)
    # One row per size, divided by its time: the right-hand side is 1 and errors are relative.
    rows = np.array([(1 / times[size], size / times[size]) for size in sizes])
    line = _line(rows, noise)
    fixed, per_sample = (_fitted(line, part, value) for part, value in enumerate(_solve(rows)))
    left_out = [_left_out(rows, number, noise) for number in range(len(rows)) if len(rows) > 2]
    return BatchScaling(fixed, per_sample, tuple(left_out), line)


def _solve(rows: Floats) -> Floats:
    """Neither part below zero."""
    from scipy import optimize

    return np.asarray(optimize.nnls(rows, np.ones(len(rows)))[0])


def _fitted(line: _Line | None, part: int, value: float) -> Fitted:
    """With an interval cut at zero, and widened where needed to contain the value, which stays above it."""
    if line is None:
        return Fitted(float(value), None)
    middle = float(line.parts[part])
    half_width = line.quantile * math.sqrt(float(line.covariance[part, part]))
    low, high = min(value, middle - half_width), max(value, middle + half_width)
    return Fitted(float(value), Interval(max(0.0, float(low)), float(high)))


def _left_out(rows: Floats, number: int, noise: TimeNoise | None) -> LeftOut:
    own, others = rows[number], np.delete(rows, number, axis=0)
    allowed = None
    if noise is not None:
        # In units of the noise of one time: that of the line through the others, and of this time.
        variance = float(own @ np.linalg.inv(others.T @ others) @ own) + 1
        quantile = special.stdtrit(noise.degrees_of_freedom, 1 - LEVEL / len(rows) / 2)
        allowed = float(quantile) * noise.error * math.sqrt(variance)
    return LeftOut(float(own @ _solve(others)) - 1, allowed)


def _line(rows: Floats, noise: TimeNoise | None) -> _Line | None:
    """None where nothing tells the error: two sizes without repeats."""
    degrees = len(rows) - 2
    if degrees < 1 and noise is None:
        return None
    inverse = np.asarray(np.linalg.inv(rows.T @ rows), dtype=np.float64)
    parts = inverse @ rows.sum(axis=0)
    squares = float(((1 - rows @ parts) ** 2).sum()) if degrees else 0.0
    if noise is not None:
        # Residuals larger than noise explains, by an F test, are the error by themselves.
        is_more = squares > 0
        if degrees and noise.error:
            ratio = squares / degrees / noise.error**2
            is_more = special.fdtrc(degrees, noise.degrees_of_freedom, ratio) < LEVEL
        if not is_more:
            squares += noise.degrees_of_freedom * noise.error**2
            degrees += noise.degrees_of_freedom
    quantile = float(special.stdtrit(degrees, 0.975))
    return _Line(parts, squares / degrees * inverse, math.sqrt(squares / degrees), quantile)
