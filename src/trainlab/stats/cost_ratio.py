"""The cost of cells over benches, as ratios: different, equivalent, or cannot tell.

A figure is the log of a time; a bench measures every cell once, in fresh processes that take turns, so that
a ratio is formed within a bench. Cells that were measured twice are two rows of figures: what their ratio
differs from 1 beyond its own error is added to the error of every ratio, and falls as that does with the
root of the number of benches.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from trainlab.stats.contrasts import LEVEL, Estimates, Family, compare_cells, estimate, pair_rows
from trainlab.stats.means import Interval, Ratio, mean_of, ratio_of_logs
from trainlab.stats.power import POWER
from trainlab.stats.verdict import Verdict, check_margin

Floats = NDArray[np.float64]
Pair = tuple[int, int]
"""Two rows of the figures, the reference first."""

PLANNED_POWER = 0.9
"""Of the number of processes that is said to settle a comparison: noise and ratio are themselves only
estimated, which takes a few points off."""
USUAL_EXCESS = 0.35
"""What the ratios of two cells with themselves add to the square of an error, on average, by chance."""
CHANCE_SCORE = 3.0
"""A cell that differs from itself by a larger normal score does so for a reason that will not go away."""
MOST_PROCESSES = 1000


@dataclass(frozen=True, kw_only=True)
class CostComparison:
    """The cost of one cell over that of another, and what may be said about it."""

    n: int
    """Benches that measured both."""
    ratio: Ratio
    """With its simultaneous 95% interval over the family; none for a single process."""
    equivalence: Interval | None = None
    """The simultaneous 90% interval of the ratio: within the margin, it shows equivalence."""
    p: float | None = None
    """Adjusted for the family; None for a single process."""
    margin: float | None
    """Ratios nearer to 1 than this share do not matter; None: not stated, so never equivalent."""
    family: int
    std: float | None = None
    """Of the log time of a process within its bench; 0.02 is about 2%."""
    verdict: Verdict = "cannot tell"
    detectable: float | None = None
    """The smallest ratio above 1 that so many processes find with power 0.8."""
    processes_needed: int | None = None
    """Of each cell, to settle it if the ratio is as observed; None: settled, or it cannot be said."""

    @property
    def half_width(self) -> float | None:
        """How far the ratio may be off, as a share of it."""
        interval = self.ratio.interval
        return None if interval is None else math.sqrt(interval.high / interval.low) - 1


def compare_costs(
    figures: Floats,
    pairs: Sequence[Pair],
    twice: Sequence[Pair],
    margin: float | None = None,
    excess: float | None = None,
) -> tuple[CostComparison, ...]:
    """The pairs of cells as one family; `figures` are logs [cells, benches], NaN where one is missing.

    `twice` are the pairs of rows that are one cell measured twice; without any nothing is called different
    or equivalent, since noise cannot be told from a difference. `excess` is such a variance
    known from elsewhere. SpecError if the margin is not positive.
    """
    check_margin(margin)
    if not pairs:
        return ()
    check = _check(figures, twice, excess)
    return tuple(_comparisons(figures, pairs, _family(figures, pairs, check), margin, check))


@dataclass(frozen=True)
class _Check:
    """What cells that were measured twice say about the errors of ratios."""

    is_there: bool
    """Whether any was."""
    excess: float = 0.0
    """How much more their ratios differ from 1 than their errors allow, squared and averaged."""
    is_noise: bool = True
    """Whether they differ from 1 by no more than chance allows: only then do more processes help."""


def excess_variance(figures: Floats, twice: Sequence[Pair]) -> float | None:
    """How much more the ratios of cells with themselves differ from 1 than their errors allow, squared and
    averaged; zero where they do not. None without such pairs or with a single process."""
    check = _check(figures, twice, None)
    return check.excess if check.is_there and figures.shape[1] > 1 else None


def ratio_twice(figures: Floats, twice: Sequence[Pair]) -> float | None:
    """The ratio of a cell with itself that is farthest from 1, as a number above 1; None without any."""
    both = [figures[second] - figures[first] for first, second in twice]
    means = [float(np.nanmean(values)) for values in both if np.isfinite(values).any()]
    return math.exp(max(map(abs, means))) if means else None


def _check(figures: Floats, twice: Sequence[Pair], elsewhere: float | None) -> _Check:
    if not twice or figures.shape[1] < 2:
        return _Check(bool(twice) or elsewhere is not None, elsewhere or 0.0)
    found = estimate(figures, pair_rows(twice, len(figures)))
    beyond = found.value**2 - found.error**2
    own = max(0.0, float(np.nan_to_num(np.nanmean(beyond))))
    scores = np.abs(found.scores(found.value))
    return _Check(True, max(own, elsewhere or 0.0), not np.any(scores > CHANCE_SCORE))


def _family(figures: Floats, pairs: Sequence[Pair], check: _Check) -> Family | None:
    """None for a single process."""
    if figures.shape[1] < 2:
        return None
    family = compare_cells(figures, pair_rows(pairs, len(figures)))
    error = np.sqrt(family.estimates.error**2 + check.excess)
    return replace(family, estimates=replace(family.estimates, error=error))


def _comparisons(
    figures: Floats,
    pairs: Sequence[Pair],
    family: Family | None,
    margin: float | None,
    check: _Check,
) -> Iterator[CostComparison]:
    wide, narrow, p = _widths(family)
    for place, (a, b) in enumerate(pairs):
        both = figures[b] - figures[a]
        n, value = int(np.isfinite(both).sum()), float(np.nanmean(both))
        plain = CostComparison(
            n=n, ratio=ratio_of_logs(value, None, n), margin=margin, family=len(pairs)
        )
        if family is None or n < 2:
            yield plain
            continue
        one = _One(family.estimates, place, family.critical.two_sided, n, check.excess)
        interval = _interval(value, wide[place])
        equivalence = _interval(value, narrow[place])
        verdict = _verdict(interval, equivalence, margin) if check.is_there else "cannot tell"
        is_open = verdict == "cannot tell" and check.is_there and check.is_noise
        yield replace(
            plain,
            ratio=ratio_of_logs(value, interval, n),
            equivalence=ratio_of_logs(value, equivalence, n).interval,
            p=float(p[place]),
            std=one.std,
            verdict=verdict,
            detectable=math.exp(one.found_with(POWER, n)),
            processes_needed=one.processes_for(abs(value)) if is_open else None,
        )


def _widths(family: Family | None) -> tuple[Floats, Floats, Floats]:
    """Half-widths of 95% and of 90% intervals, and p; computed once for all pairs."""
    if family is None:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    return family.half_width, family.half_width_90, family.p


@dataclass(frozen=True)
class _One:
    """One contrast of a family, and what other numbers of benches would make of it."""

    estimates: Estimates
    place: int
    score: float
    """The critical score of the family, which hardly depends on the number of benches."""
    n: int
    excess: float
    """That is part of the error."""

    @property
    def std(self) -> float:
        """Of a process within its bench, from the error without excess."""
        return math.sqrt((float(self.estimates.error[self.place]) ** 2 - self.excess) * self.n / 2)

    def found_with(self, power: float, num_benches: int) -> float:
        """The smallest log ratio that so many benches find with this power."""
        usual = (1 + USUAL_EXCESS) * 2 * self.std**2
        found = 2 * self.std**2 + self.n * self.excess
        error = math.sqrt(max(usual, found) / num_benches)
        freedom = float(self.estimates.degrees_of_freedom[self.place])
        freedom *= (num_benches - 1) / (self.n - 1)
        quantile = float(special.stdtrit(freedom, special.ndtr(self.score)))
        return error * (quantile + float(special.ndtri(power)))

    def processes_for(self, effect: float) -> int | None:
        """How many benches find this log ratio; None where more than MOST_PROCESSES would be needed."""
        for count in range(self.n + 1, MOST_PROCESSES + 1):
            if self.found_with(PLANNED_POWER, count) <= effect:
                return count
        return None


def _verdict(interval: Interval | None, narrow: Interval | None, margin: float | None) -> Verdict:
    if interval is None or narrow is None:
        return "cannot tell"
    if not interval.contains(0.0):
        return "different"
    limit = 0.0 if margin is None else math.log1p(margin)
    is_within = margin is not None and -limit < narrow.low and narrow.high < limit
    return "equivalent" if is_within else "cannot tell"


def _interval(value: float, half_width: float) -> Interval:
    return Interval(value - float(half_width), value + float(half_width))


# The level of each of several series that were measured in the same rounds.


def levels(times: Sequence[Mapping[int, float]]) -> list[float]:
    """The log level of each series; `times` maps rounds to times. The differences of levels are the log
    ratios. One that shares no round with the series that has most rounds stands by itself."""
    logs = [{number: math.log(time) for number, time in one.items()} for one in times]
    base = max(logs, key=len)
    near = [_median_difference(one, base) for one in logs]
    # Aligned with one series alone, the others would seem faster than it, by up to a tenth of its noise.
    means = {number: statistics.fmean(values) for number, values in _by_round(logs, near).items()}
    ratios = [
        None if ratio is None else _median_difference(one, means)
        for one, ratio in zip(logs, near, strict=True)
    ]
    rounds = {n: statistics.median(values) for n, values in _by_round(logs, ratios).items()}
    middle = statistics.median(rounds.values())
    return [
        _lower_quartile(one.values())
        if ratio is None
        else middle + _lower_quartile(value - rounds[number] for number, value in one.items())
        for one, ratio in zip(logs, ratios, strict=True)
    ]


def _by_round(
    logs: Sequence[Mapping[int, float]], ratios: Sequence[float | None]
) -> dict[int, list[float]]:
    """The series in each round, without what they differ by; those of which that is not known left out."""
    found: dict[int, list[float]] = {}
    for one, ratio in zip(logs, ratios, strict=True):
        if ratio is not None:
            for number, value in one.items():
                found.setdefault(number, []).append(value - ratio)
    return found


def _lower_quartile(values: Iterable[float]) -> float:
    return float(np.quantile(list(values), 0.25))


def _median_difference(one: Mapping[int, float], base: Mapping[int, float]) -> float | None:
    shared = [value - base[number] for number, value in one.items() if number in base]
    return statistics.median(shared) if shared else None


# Whether a figure got worse by more than a margin: surely, surely not, or cannot tell.

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
