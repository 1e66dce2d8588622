"""Whether a figure got worse by more than a margin: surely, surely not, or cannot tell.

Two runs share nothing, so their samples are independent and may be unequally noisy: Welch's test. A bound
on one side is wrong in as many cases as its level says, within half a point for equally large samples from
three values on, and less often for two. Where the samples are unequally large Welch's own degrees of
freedom are too many (2 values against 12: wrong in 8% of cases instead of 5%), so they are at most those of
two samples as large as the smaller.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import special

from trainlab.stats.contrasts import LEVEL
from trainlab.stats.cost_ratio import MOST_PROCESSES, PLANNED_POWER
from trainlab.stats.means import mean_of

Judgement = Literal["worse", "not worse", "cannot tell"]


@dataclass(frozen=True)
class Levels:
    """How often the bounds of a change may be wrong."""

    low: float
    """Of the lower bound: of several figures, each gets its part of what is allowed to all."""
    high: float = LEVEL
    """Of the upper bound. That all are within their margins is wrong only where the one that is not looks
    so, however many the others are: no part is taken from it."""
    together: int = 1
    """Figures that are judged together: all have to be shown to be within their margins, or one beyond."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """By how much a figure lies above what it was, and how well that is known."""

    value: float
    error: float
    degrees_of_freedom: float
    single_error: float
    """Of a change known from one value on either side: errors fall with the root of their number."""
    freedom_each: float
    """Degrees of freedom that each value on either side brings beyond the first."""

    def low(self, level: float) -> float:
        """The true change is below it in this share of cases only."""
        return self.value - self._half_width(level)

    def high(self, level: float) -> float:
        """The true change is above it in this share of cases only."""
        return self.value + self._half_width(level)

    def judged(self, margin: float, levels: Levels) -> Judgement:
        """Worse where even the lower bound is beyond the margin, not worse where the upper is within it."""
        if self.low(levels.low) > margin:
            return "worse"
        return "not worse" if self.high(levels.high) < margin else "cannot tell"

    def number_for(self, true: float, margin: float, levels: Levels) -> int | None:
        """How many values on either side decide with a power of 90% if the true change is `true`, those of
        all figures together if it is within the margin; None where more than MOST_PROCESSES would be
        needed."""
        is_beyond = true > margin
        level = levels.low if is_beyond else levels.high
        power = PLANNED_POWER if is_beyond else PLANNED_POWER ** (1 / levels.together)
        distance = abs(true - margin)
        numbers = range(2, MOST_PROCESSES + 1)
        place = bisect_left(numbers, power, key=lambda n: self._power(distance, n, level))
        return numbers[place] if place < len(numbers) else None

    def _half_width(self, level: float) -> float:
        quantile = float(special.stdtrit(self.degrees_of_freedom, 1 - level))
        return quantile * self.error if self.error else 0.0

    def _power(self, distance: float, number: int, level: float) -> float:
        """The chance that a bound does not reach as far as this."""
        error = self.single_error / math.sqrt(number)
        if distance <= 0 or error == 0:
            return float(distance > 0)
        freedom = self.freedom_each * (number - 1)
        quantile = float(special.stdtrit(freedom, 1 - level))
        missed = float(special.nctdtr(freedom, distance / error, quantile))
        # So far beyond the bound that the function gives up.
        return float(distance / error > quantile) if math.isnan(missed) else 1 - missed


def welch(before: Sequence[float], after: Sequence[float]) -> Change | None:
    """The mean of `after` less that of `before`, as independent samples; None where one has no spread to
    see: fewer than two values."""
    first, second = mean_of(before), mean_of(after)
    if first is None or first.std is None or second is None or second.std is None:
        return None
    parts = first.std**2 / first.n, second.std**2 / second.n
    fewest = min(first.n, second.n)
    return Change(
        value=second.value - first.value,
        error=math.sqrt(sum(parts)),
        degrees_of_freedom=min(_freedom(parts, (first.n - 1, second.n - 1)), 2.0 * (fewest - 1)),
        single_error=math.hypot(first.std, second.std),
        freedom_each=_freedom((first.std**2, second.std**2), (1, 1)),
    )


def assumed(std: float) -> Change:
    """No change, of values with this noise: for planning before there are any."""
    error = std * math.sqrt(2)
    return Change(
        value=0.0, error=error, degrees_of_freedom=1.0, single_error=error, freedom_each=2.0
    )


def _freedom(parts: tuple[float, float], freedoms: tuple[int, int]) -> float:
    """Welch's degrees of freedom, of two variances of means; those of equal ones where neither varies."""
    if not any(parts):
        return float(sum(freedoms))
    squares = (part**2 / freedom for part, freedom in zip(parts, freedoms, strict=True))
    return sum(parts) ** 2 / sum(squares)
