"""The cost of two cells over fresh processes, compared against the noise of one cell measured twice.

Welch's t test on logs: processes are not paired, and a slower cell may well vary more.

Measured on simulated processes (`benchmarks.verdicts`), the floor being that of one cell measured twice:
where nothing differs, at most 2 % are called different, whatever the shape of the noise; with three
processes a slowdown of 5 % is found in all of them at 0.5 % noise between processes, in 96 % at 1 %, 42 %
at 2 % and 10 % at 4 %. The limit: luck that all processes of a cell share. As large as the noise between
processes, it is called different in 11 %; half as large, in 4 %.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from scipy import special

from trainlab.errors import SpecError
from trainlab.stats.contrasts import LEVEL
from trainlab.stats.means import Interval, Ratio, ratio_of_logs
from trainlab.stats.power import POWER
from trainlab.stats.verdict import Verdict, check_margin

MOST_PROCESSES = 1000


@dataclass(frozen=True, kw_only=True)
class HypothesisTest:
    """The test of two cells, and its verdict once the family it belongs to is known."""

    p: float | None
    margin: float | None
    p_equivalent: float | None
    family: int = 1
    p_holm: float | None = None
    p_equivalent_holm: float | None = None
    verdict: Verdict = "cannot tell"
    detectable: float | None = None


@dataclass(frozen=True, kw_only=True)
class CostComparison(HypothesisTest):
    """The cost of `b` over that of `a`, and what may be said about it."""

    n_a: int
    n_b: int
    """Processes of each cell."""
    ratio: Ratio
    std: float | None
    """Of the logs between processes of one cell; 0.02 is about 2 %. `None` for a single process."""
    noise_floor: float
    """The largest log ratio between two measurements of the same cell."""
    processes_needed: int | None = None
    """Of each cell, to detect the observed ratio with power 0.8. `None`: already decided, or more
    processes do not help because the ratio is within the noise floor."""


def noise_floor(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest absolute log ratio between processes of one cell measured twice, in turns."""
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
    comparison = CostComparison(
        n_a=len(a),
        n_b=len(b),
        ratio=ratio_of_logs(welch.difference, welch.interval(), min(len(a), len(b))),
        std=welch.std,
        noise_floor=noise_floor,
        p=welch.p_different(),
        margin=margin,
        p_equivalent=welch.p_within(math.log1p(margin)) if margin else None,
    )
    return decide_cost([comparison])[0]


def decide_cost(comparisons: Sequence[CostComparison]) -> tuple[CostComparison, ...]:
    """The same comparisons as one family, each with its verdict."""
    return tuple(_decided(comparison) for comparison in adjust(comparisons))


def _decided(comparison: CostComparison) -> CostComparison:
    """With its verdict, the smallest ratio that so many processes detect, and how many are needed.

    Below the noise floor nothing differs, and a margin below it cannot be shown to hold.
    """
    std, floor, margin = comparison.std, comparison.noise_floor, comparison.margin
    effect = abs(math.log(comparison.ratio.value))
    p = comparison.p_holm if effect > floor else None
    is_margin_testable = margin is not None and math.log1p(margin) > floor
    p_equivalent = comparison.p_equivalent_holm if is_margin_testable else None
    verdict = verdict_of(p, p_equivalent)
    smallest = needed = None
    if std is not None:
        level = LEVEL / comparison.family
        smallest = math.exp(_detectable(comparison.ratio.n, std, floor, level))
        if verdict == "cannot tell" and effect > floor:
            counts = range(2, MOST_PROCESSES + 1)
            needed = fewest_detecting(effect, counts, lambda n: _detectable(n, std, floor, level))
    return replace(comparison, verdict=verdict, detectable=smallest, processes_needed=needed)


def _detectable(num_processes: int, std: float, floor: float, level: float) -> float:
    """The smallest log ratio that passes both the test and the noise floor with power 0.8.

    Welch's degrees of freedom vary; three quarters of the most there can be gives a true power of 0.79
    to 0.82 at a level of 5 % from three processes on, and of 0.66 with two.
    """
    degrees_of_freedom = 1.5 * (num_processes - 1)
    error = std * math.sqrt(2 / num_processes)
    quantile = special.stdtrit(degrees_of_freedom, 1 - level / 2)
    by_test = float(special.nctdtrinc(degrees_of_freedom, 1 - POWER, quantile)) * error
    return max(by_test, floor + float(special.ndtri(POWER)) * error)


@dataclass(frozen=True)
class _Welch:
    """The difference of two means; the rest is `None` where a cell has a single value."""

    difference: float
    std: float | None
    error: float | None
    """Standard error of the difference."""
    degrees_of_freedom: float

    def interval(self) -> Interval | None:
        if self.error is None:
            return None
        half_width = float(special.stdtrit(self.degrees_of_freedom, 0.975)) * self.error
        return Interval(self.difference - half_width, self.difference + half_width)

    def p_different(self) -> float | None:
        return self._tail(abs(self.difference), 2)

    def p_within(self, margin: float) -> float | None:
        return self._tail(margin - abs(self.difference), 1)

    def _tail(self, distance: float, sides: int) -> float | None:
        """The chance of a t statistic this far from zero, on one side or on both."""
        if self.error is None:
            return None
        if not self.error:
            return float(distance <= 0)
        return sides * float(special.stdtr(self.degrees_of_freedom, -distance / self.error))


def _welch(a: Sequence[float], b: Sequence[float]) -> _Welch:
    difference = statistics.fmean(b) - statistics.fmean(a)
    if min(len(a), len(b)) < 2:
        return _Welch(difference, None, None, 1.0)
    variance_a, variance_b = statistics.variance(a), statistics.variance(b)
    of_mean_a, of_mean_b = variance_a / len(a), variance_b / len(b)
    denominator = of_mean_a**2 / (len(a) - 1) + of_mean_b**2 / (len(b) - 1)
    degrees_of_freedom = (of_mean_a + of_mean_b) ** 2 / denominator if denominator else 1.0
    std = math.sqrt((variance_a + variance_b) / 2)
    return _Welch(difference, std, math.sqrt(of_mean_a + of_mean_b), degrees_of_freedom)


def _check_positive(*cells: Sequence[float]) -> None:
    wrong = [value for cell in cells for value in cell if not 0 < value < math.inf]
    if wrong or not all(cells):
        got = wrong[0] if wrong else "nothing"
        raise SpecError([f"cost: got {got}, must be above 0 and finite, one figure per process"])


def fewest_detecting(effect: float, counts: range, smallest: Callable[[int], float]) -> int | None:
    """The first count whose smallest detectable effect, which falls with the count, is at most this."""
    index = bisect_left(counts, -effect, key=lambda n: -smallest(n))
    return counts[index] if index < len(counts) else None


def adjust(comparisons: Sequence[CostComparison]) -> list[CostComparison]:
    """The same comparisons as one family, their p adjusted by Holm; no verdict yet."""
    family = max(1, sum(comparison.p is not None for comparison in comparisons))
    different = holm([comparison.p for comparison in comparisons])
    equivalent = holm([comparison.p_equivalent for comparison in comparisons])
    return [
        replace(comparison, family=family, p_holm=p, p_equivalent_holm=p_same)
        for comparison, p, p_same in zip(comparisons, different, equivalent, strict=True)
    ]


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p, in the given order; a value without p is no part of the family."""
    order = sorted((p, index) for index, p in enumerate(values) if p is not None)
    adjusted: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (p, index) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - rank)))
        adjusted[index] = highest
    return adjusted


def verdict_of(p: float | None, p_equivalent: float | None) -> Verdict:
    """From adjusted p. "Different" comes first, even for a difference smaller than the margin."""
    if p is not None and p <= LEVEL:
        return "different"
    if p_equivalent is not None and p_equivalent <= LEVEL:
        return "equivalent"
    return "cannot tell"
