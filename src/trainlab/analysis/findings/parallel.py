"""What further processes gain that train one trial together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from trainlab.analysis.contrast import Contrast
from trainlab.analysis.findings.finding import Finding
from trainlab.stats.cost_ratio import CostComparison
from trainlab.words import Words
from trainlab.words.numbers import percent

FACTOR = "processes"


@dataclass(frozen=True, kw_only=True)
class ParallelGain(Finding):
    """How many times as fast the same batch is trained by more processes, and the share of what they could
    gain."""

    kind = "parallel"
    section = "parallel"
    rank = 8

    speedup: float
    """Its 95% interval is the finding's."""
    efficiency: float
    """1 where so many times the processes are so many times as fast."""
    efficiency_low: float | None
    efficiency_high: float | None

    @property
    def direction(self) -> Literal["faster", "slower", "unknown"]:
        """Which way the interval lies of as fast as before."""
        if self.interval is None or self.interval.low <= 1 <= self.interval.high:
            return "unknown"
        return "faster" if self.interval.low > 1 else "slower"

    def statement(self, words: Words) -> str:
        return self.fill(words, "parallel_gain", efficiency_text=self.efficiency_text(words))

    def efficiency_text(self, words: Words) -> str:
        """The efficiency with its interval."""
        if self.efficiency_low is None or self.efficiency_high is None:
            return percent(self.efficiency)
        ends = percent(self.efficiency_low), percent(self.efficiency_high)
        return percent(self.efficiency) + words("within", low=ends[0], high=ends[1])


def efficiency(ratio: float, first: int, second: int) -> float:
    """Of `second` processes beside `first`, whose steps take `ratio` times as long."""
    return first / second / ratio


def parallel_findings(
    mode: str, pairs: Sequence[Contrast], comparisons: Sequence[CostComparison]
) -> Iterator[Finding]:
    """Each number of processes against the smallest, all else equal."""
    pairs_of_factor = [pair for pair in pairs if pair.factor == FACTOR]
    if not pairs_of_factor:
        return
    fewest = min(_number(pair.levels[0]) for pair in pairs_of_factor)
    for pair, comparison in zip(pairs, comparisons, strict=True):
        if pair.factor != FACTOR or _number(pair.levels[0]) != fewest:
            continue
        more, ratio = _number(pair.levels[1]), comparison.ratio
        speedup = None if ratio.interval is None else ratio.interval.inverse
        share = fewest / more
        yield ParallelGain(
            subject=f"{mode}/step_ms",
            factor=FACTOR,
            levels=pair.levels,
            cells=pair.ids,
            speedup=1 / ratio.value,
            efficiency=efficiency(ratio.value, fewest, more),
            efficiency_low=None if speedup is None else share * speedup.low,
            efficiency_high=None if speedup is None else share * speedup.high,
            n=comparison.n,
            interval=speedup,
        )


def _number(level: object) -> int:
    assert isinstance(level, int)
    return level
