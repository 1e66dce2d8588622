"""The cost of cells over benches, as ratios: different, equivalent, or cannot tell.

A figure is the log of a time; a bench measures every cell once, in fresh processes that take turns, so that
a ratio is formed within a bench. Cells that were measured twice are two rows of figures: what their ratio
differs from 1 beyond its own error is added to the error of every ratio, and falls as that does with the
root of the number of benches.
"""

import math
import warnings
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from trainlab.stats import special
from trainlab.stats.contrasts import LEVEL, Floats, compare_cells, estimate, pair_rows
from trainlab.stats.means import Interval, Ratio, mean_of, ratio_of_logs
from trainlab.stats.power import POWER
from trainlab.stats.verdict import Verdict, check_margin

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
    own = excess_variance(figures, twice)
    is_checked = own is not None or excess is not None
    added = max(own or 0.0, excess or 0.0)
    family, compared = None, []
    if figures.shape[1] > 1:
        family = compare_cells(figures, pair_rows(pairs, len(figures)))
        error = np.sqrt(family.estimates.error**2 + added)
        family = replace(family, estimates=replace(family.estimates, error=error))
        wide, narrow, p = family.half_width, family.half_width_90, family.p
        # Where a cell differs from itself by more than chance allows more processes do not help.
        apart = estimate(figures, pair_rows(twice, len(figures)))
        is_noise = not (np.abs(apart.scores(apart.value)) > CHANCE_SCORE).any()
    for place, (a, b) in enumerate(pairs):
        logs = figures[b] - figures[a]
        n, value = int(np.isfinite(logs).sum()), float(np.nanmean(logs))
        ratio = ratio_of_logs(value, None, n)
        one = CostComparison(n=n, ratio=ratio, margin=margin, family=len(pairs))
        if family is not None and n > 1:
            within, within_90 = (
                Interval(value - float(half), value + float(half))
                for half in (wide[place], narrow[place])
            )
            verdict: Verdict = "cannot tell"
            if is_checked and not within.contains(0.0):
                verdict = "different"
            elif is_checked and margin is not None:
                limit = math.log1p(margin)
                is_within = -limit < within_90.low and within_90.high < limit
                verdict = "equivalent" if is_within else "cannot tell"
            # Between two processes of one bench, without excess.
            own_variance = float(family.estimates.error[place]) ** 2 * n - n * added
            noise = _Noise(
                variance=max((1 + USUAL_EXCESS) * own_variance, own_variance + n * added),
                freedom_each=float(family.estimates.degrees_of_freedom[place]) / (n - 1),
                score=family.critical.two_sided,
            )
            is_open = verdict == "cannot tell" and is_checked and is_noise
            one = replace(
                one,
                ratio=ratio_of_logs(value, within, n),
                equivalence=ratio_of_logs(value, within_90, n).interval,
                p=float(p[place]),
                verdict=verdict,
                detectable=math.exp(noise.found_with(POWER, n)),
                processes_needed=noise.processes_for(abs(value), n) if is_open else None,
            )
        compared.append(one)
    return tuple(compared)


def excess_variance(figures: Floats, twice: Sequence[Pair]) -> float | None:
    """How much more the ratios of cells with themselves differ from 1 than their errors allow, squared and
    averaged; zero where they do not. None without such pairs or with a single process."""
    if not twice or figures.shape[1] < 2:
        return None
    found = estimate(figures, pair_rows(twice, len(figures)))
    return max(0.0, float(np.nan_to_num(np.nanmean(found.value**2 - found.error**2))))


def ratio_twice(figures: Floats, twice: Sequence[Pair]) -> float | None:
    """The ratio of a cell with itself that is farthest from 1, as a number above 1; None without any."""
    both = [figures[second] - figures[first] for first, second in twice]
    means = [float(np.nanmean(values)) for values in both if np.isfinite(values).any()]
    return math.exp(max(map(abs, means))) if means else None


@dataclass(frozen=True)
class _Noise:
    """The noise of a log ratio, and what any number of benches would make of it."""

    variance: float
    """In a single bench."""
    freedom_each: float
    """Degrees of freedom that each bench brings beyond the first."""
    score: float
    """The critical score of the family, which hardly depends on the number of benches."""

    def found_with(self, power: float, num_benches: int) -> float:
        """The smallest log ratio that so many benches find with this power."""
        freedom = self.freedom_each * (num_benches - 1)
        quantile = float(special.stdtrit(freedom, special.ndtr(self.score)))
        return math.sqrt(self.variance / num_benches) * (quantile + float(special.ndtri(power)))

    def processes_for(self, effect: float, fewest: int) -> int | None:
        """How many more benches find this log ratio; None where it would be over MOST_PROCESSES."""
        counts = range(fewest + 1, MOST_PROCESSES + 1)
        return next((n for n in counts if self.found_with(PLANNED_POWER, n) <= effect), None)


# Cells that take turns with a base in one bench after the other, looked at after each.


def effects(
    figures: Sequence[tuple[str, str, float]], base: str, level: float
) -> dict[str, tuple[float, float | None, int]]:
    """By how much the figure of each cell differs from that of the base, the half-width of its interval,
    which fails to hold the truth in this share of cases, and its number of processes. `figures` are those
    of processes: cell, bench and figure, which is that of the cell, and of the bench, and luck of its own,
    by least squares. None: too few processes to know their luck."""
    benches = list(dict.fromkeys(bench for cell, bench, _ in figures if cell == base))
    known = [one for one in figures if one[1] in benches]
    cells = list(dict.fromkeys([base, *(cell for cell, _, _ in known)]))
    if len(cells) < 2:
        return {}
    rows = np.array(
        [
            [*(cell == one for one in cells), *(bench == one for one in benches[1:])]
            for cell, bench, _ in known
        ],
        dtype=float,
    )
    values = np.array([value for _, _, value in known])
    inverse = np.linalg.inv(rows.T @ rows)
    found = inverse @ rows.T @ values
    freedom, half = len(known) - rows.shape[1], None
    squares = (values - rows @ found) ** 2
    differing: dict[str, tuple[float, float | None, int]] = {}
    for place, cell in enumerate(cells[1:], 1):
        n = sum(one == cell for one, _, _ in known)
        if freedom and n > 1:
            # Where a cell, or the base, is noisier than the others, theirs is not its noise.
            own = squares[(rows[:, 0] + rows[:, place]) > 0]
            std = math.sqrt(max(squares.mean(), own.mean()) * len(known) / freedom)
            error = std * math.sqrt(inverse[0, 0] + inverse[place, place] - 2 * inverse[0, place])
            half = float(special.stdtrit(freedom, 1 - level / 2)) * error
        differing[cell] = float(found[place] - found[0]), half if n > 1 else None, n
    return differing


# The level of each of several series that were measured in the same rounds.


def levels(times: Sequence[Mapping[int, float]]) -> list[float]:
    """The log level of each series; `times` maps rounds to times. The differences of levels are the log
    ratios. One that shares no round with the series that has most rounds stands by itself."""
    rounds = sorted({number for one in times for number in one})
    logs = np.log([[one.get(number, math.nan) for number in rounds] for one in times])
    first = logs[np.isnan(logs).sum(axis=1).argmin()]
    with warnings.catch_warnings():  # of series and rounds of which nothing is known
        warnings.simplefilter("ignore", RuntimeWarning)
        near = np.nanmedian(logs - first, axis=1, keepdims=True)
        # Aligned with one series alone, the others would seem faster than it, by up to a tenth of its
        # noise.
        ratios = np.nanmedian(logs - np.nanmean(logs - near, axis=0), axis=1, keepdims=True)
        of_round = np.nanmedian(logs - ratios, axis=0)
    is_alone = np.isnan(ratios)
    apart = np.nanquantile(logs - np.where(is_alone, 0.0, of_round), 0.25, axis=1)
    found = apart + np.where(is_alone[:, 0], 0.0, np.nanmedian(of_round))
    return [float(level) for level in found]


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
        return self.value - self.error * float(special.stdtrit(self.degrees_of_freedom, 1 - level))

    def high(self, level: float) -> float:
        """The true change is above it in this share of cases only."""
        return self.value + self.error * float(special.stdtrit(self.degrees_of_freedom, 1 - level))

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
