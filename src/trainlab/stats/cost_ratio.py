"""What two cells cost, over fresh processes, beside what the same cell measured twice shows.

Welch's t on logs: processes are not paired, and a slower cell may well spread more.

Measured on simulated processes (`benchmarks.verdicts`), the floor being that of one cell measured twice:
where nothing differs, at most 2 % are called different, whatever the shape of the noise; with three
processes a slowdown of 5 % is found in all of them at 0.5 % noise between processes, in 96 % at 1 %, 42 %
at 2 % and 10 % at 4 %. The limit: luck that all processes of a cell share. As large as the noise between
processes, it is called different in 11 %; half as large, in 4 %.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scipy import special

from trainlab.errors import SpecError
from trainlab.stats.means import Interval, Ratio, exp_interval
from trainlab.stats.power import POWER
from trainlab.stats.verdict import LEVEL, Tested, adjust, check_margin, verdict_of

MOST_PROCESSES = 1000


@dataclass(frozen=True, kw_only=True)
class CostComparison(Tested):
    """How many times the cost of `a` that of `b` is, and what may be said about it."""

    n_a: int
    n_b: int
    """Processes of each cell."""
    ratio: Ratio
    """Of geometric means."""
    std: float | None
    """Of the logs between processes of one cell; 0.02 is about 2 %. `None` for a single process."""
    noise_floor: float
    """The largest log ratio that the same cell, measured twice, shows."""
    processes_needed: int | None = None
    """Of each cell, to find the observed ratio with power 0.8. `None`: settled, or more processes do
    not help because the ratio is within the noise floor."""


def noise_floor(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest log ratio, either way, between processes of one cell measured twice, in turns."""
    return max(abs(math.log(b / a)) for a, b in zip(first, second, strict=True))


def compare_cost(
    a: Sequence[float], b: Sequence[float], noise_floor: float, margin: float | None = None
) -> CostComparison:
    """One figure per fresh process, decided as a family of its own.

    SpecError if a figure or the margin is not positive.
    """
    check_margin(margin)
    _check_positive(a, b)
    welch = _welch([math.log(value) for value in a], [math.log(value) for value in b])
    interval = welch.interval()
    ratio = Ratio(
        math.exp(welch.difference), interval and exp_interval(interval), min(len(a), len(b))
    )
    found = CostComparison(
        n_a=len(a),
        n_b=len(b),
        ratio=ratio,
        std=welch.std,
        noise_floor=noise_floor,
        p=welch.p_different(),
        margin=margin,
        p_equivalent=welch.p_within(math.log1p(margin)) if margin else None,
    )
    return decide_cost([found])[0]


def decide_cost(
    comparisons: Sequence[CostComparison], level: float = LEVEL
) -> tuple[CostComparison, ...]:
    """The same comparisons as one family, each with its verdict."""
    decided = (_with_verdict(one, level) for one in adjust(comparisons))
    return tuple(_with_processes(one, level / one.family) for one in decided)


def _with_verdict(found: CostComparison, level: float) -> CostComparison:
    """Below the noise floor nothing differs; a margin below it cannot be shown to hold."""
    beyond = abs(math.log(found.ratio.value)) > found.noise_floor
    stated = found.margin is not None and math.log1p(found.margin) > found.noise_floor
    p = found.p_holm if beyond else None
    p_equivalent = found.p_equivalent_holm if stated else None
    return replace(found, verdict=verdict_of(p, p_equivalent, level))


def _with_processes(found: CostComparison, level: float) -> CostComparison:
    """Adds what so many processes can find and how many it would take."""
    std, floor = found.std, found.noise_floor
    if std is None:
        return replace(found, detectable=None, processes_needed=None)
    smallest = math.exp(_detectable(found.ratio.n, std, floor, level))
    effect = abs(math.log(found.ratio.value))
    if found.verdict != "cannot tell" or effect <= floor:
        return replace(found, detectable=smallest, processes_needed=None)
    counts = range(2, MOST_PROCESSES + 1)
    place = bisect_left(counts, -effect, key=lambda n: -_detectable(n, std, floor, level))
    needed = counts[place] if place < len(counts) else None
    return replace(found, detectable=smallest, processes_needed=needed)


def _detectable(num_processes: int, std: float, floor: float, level: float) -> float:
    """The log ratio that passes both the test and the floor with the power asked for.

    Welch's degrees of freedom vary; three quarters of the most there can be gives a true power of 0.79
    to 0.82 at a level of 5 % from three processes on, and of 0.66 with two.
    """
    freedom = 1.5 * (num_processes - 1)
    error = std * math.sqrt(2 / num_processes)
    quantile = special.stdtrit(freedom, 1 - level / 2)
    by_test = float(special.nctdtrinc(freedom, 1 - POWER, quantile)) * error
    return max(by_test, floor + float(special.ndtri(POWER)) * error)


@dataclass(frozen=True)
class _Welch:
    """The difference of two means; the rest is `None` where a cell has a single value."""

    difference: float
    std: float | None
    error: float | None
    freedom: float

    def interval(self) -> Interval | None:
        if self.error is None:
            return None
        reach = float(special.stdtrit(self.freedom, 0.975)) * self.error
        return Interval(self.difference - reach, self.difference + reach)

    def p_different(self) -> float | None:
        return self._tail(abs(self.difference), 2)

    def p_within(self, margin: float) -> float | None:
        return self._tail(margin - abs(self.difference), 1)

    def _tail(self, distance: float, sides: int) -> float | None:
        """The chance of lying this far out, on one side or on both."""
        if self.error is None:
            return None
        if not self.error:
            return float(distance <= 0)
        return sides * float(special.stdtr(self.freedom, -distance / self.error))


def _welch(a: Sequence[float], b: Sequence[float]) -> _Welch:
    difference = statistics.fmean(b) - statistics.fmean(a)
    if min(len(a), len(b)) < 2:
        return _Welch(difference, None, None, 1.0)
    spread_a, spread_b = statistics.variance(a), statistics.variance(b)
    error_a, error_b = spread_a / len(a), spread_b / len(b)
    below = error_a**2 / (len(a) - 1) + error_b**2 / (len(b) - 1)
    freedom = (error_a + error_b) ** 2 / below if below else 1.0
    std = math.sqrt((spread_a + spread_b) / 2)
    return _Welch(difference, std, math.sqrt(error_a + error_b), freedom)


def _check_positive(*cells: Sequence[float]) -> None:
    wrong = [value for cell in cells for value in cell if not 0 < value < math.inf]
    if wrong or not all(cells):
        got = wrong[0] if wrong else "nothing"
        raise SpecError([f"cost: got {got}, must be above 0 and finite, one figure per process"])
