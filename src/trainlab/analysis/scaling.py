"""How a step grows: with the batch, and with the processes that share it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding
from trainlab.analysis.measurement import Measurement
from trainlab.analysis.metrics import Contrast
from trainlab.spec import Cell
from trainlab.spec.settings import Scalar
from trainlab.stats.cost_ratio import CostComparison
from trainlab.stats.scaling import BatchScaling, FitVerdict, fit_batches, noise_of
from trainlab.words import Words
from trainlab.words.numbers import figure, percent


@dataclass(frozen=True)
class BatchSeries:
    """Measurements in one mode by batch size, the smallest first."""

    mode: str
    by_size: dict[int, Measurement]

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of their batch sizes."""
        return tuple(measurement.trial.cell for measurement in self.by_size.values())

    def fit(self) -> BatchScaling:
        """The time of a step by batch size, and the noise between the processes that measured it."""
        times = {size: m.summary.step_ms.value for size, m in self.by_size.items()}
        return fit_batches(times, noise_of(m.process_ms for m in self.by_size.values()))


def _others(cell: Cell, size: int) -> str:
    """All settings but the batch size; of a script, but the argument that is that size."""
    arguments = {
        name for name, level in cell.settings.script.items() if _sets_size(name, level, size)
    }
    return cell.settings.model_dump_json(exclude={"batch_size": True, "script": arguments})


def _sets_size(name: str, level: Scalar, size: int) -> bool:
    return "batch" in name.lower() and type(level) is int and level == size


def batch_series(evidence: Evidence, mode: str) -> list[BatchSeries]:
    """Each set of two or more batch sizes with all else equal."""
    groups: dict[str, dict[int, Measurement]] = {}
    for cell in evidence.cells:
        measurement = evidence.measurement(cell.id, mode)
        if measurement is not None:
            size = measurement.summary.batch_size
            groups.setdefault(_others(cell, size), {})[size] = measurement
    return [
        BatchSeries(mode, dict(sorted(by_size.items())))
        for by_size in groups.values()
        if len(by_size) > 1
    ]


FARTHEST_FIT = 2
"""A batch of more than this many times the largest measured is beyond what a fit can tell."""


@dataclass(frozen=True, kw_only=True)
class Scaling(Finding):
    """How the time of a batch grows with its size."""

    kind = "scaling"
    section = "scaling"
    rank = 9

    fixed_ms: float
    per_sample_us: float
    per_sample_us_low: float | None
    """Its 95% interval; that of the fixed part is the finding's."""
    per_sample_us_high: float | None
    enough: float | None
    """Beyond this size doubling saves less than 10% of the time per sample."""
    enough_low: float | None
    """Its 95% interval; without an upper end where the time may not grow with the size at all."""
    enough_high: float | None
    largest: int
    """The largest size measured."""
    worst_error: float | None
    """Of predicting each size from the others; None below three sizes."""
    allowed_error: float | None
    """What noise allows there; None where no size was measured in several processes."""
    fit: FitVerdict

    def statement(self, words: Words) -> str:
        if self.fit == "does not fit":
            return self.fill(words, "scaling_unfit")
        texts = {
            "capital_step": words.capital(words.step(self.mode)),
            "check": self.fill(words, self._check),
            "within_per_sample": _within(self.per_sample_us_low, self.per_sample_us_high, words),
        }
        advice = self.fill(
            words, self._advice, within_enough=_within(self.enough_low, self.enough_high, words)
        )
        return words.sentences(self.fill(words, "scaling_fit", **texts), advice)

    @property
    def _check(self) -> str:
        if self.worst_error is None:
            return "scaling_unchecked"
        if self.fit == "fits":
            return "scaling_checked"
        return "scaling_unrepeated" if self.allowed_error is None else "scaling_noisy"

    @property
    def knows_enough(self) -> bool:
        """Whether the size where gains end is known and not far beyond those measured."""
        is_near = self.enough_high is not None and self.enough_high <= FARTHEST_FIT * self.largest
        return is_near and self.fit != "does not fit"

    @property
    def _advice(self) -> str:
        if self.knows_enough:
            return "scaling_enough"
        is_beyond = self.enough_low is not None and self.enough_low > self.largest
        return "scaling_beyond" if is_beyond else "scaling_unknown"

    @property
    def says_something(self) -> bool:
        return self.fit == "fits"


@dataclass(frozen=True, kw_only=True)
class OptimizerShare(Finding):
    """How much of a step the optimizer takes, at the smallest batch and at the largest."""

    kind = text = "optimizer_share"
    section = "phases"
    rank = 10

    share_a: float
    share_b: float


def _within(low: float | None, high: float | None, words: Words) -> str:
    return (
        "" if low is None or high is None else words("within", low=figure(low), high=figure(high))
    )


def scaling_finding(series: BatchSeries) -> Finding:
    fit = series.fit()
    per_sample, enough = fit.per_sample.interval, fit.enough_interval
    worst = max(fit.left_out, key=lambda size: abs(size.error), default=None)
    return Scaling(
        subject=f"{series.mode}/step_ms",
        factor="batch_size",
        cells=series.cells,
        fixed_ms=fit.fixed.value,
        per_sample_us=1e3 * fit.per_sample.value,
        per_sample_us_low=None if per_sample is None else 1e3 * per_sample.low,
        per_sample_us_high=None if per_sample is None else 1e3 * per_sample.high,
        enough=fit.enough,
        enough_low=None if enough is None or math.isinf(enough.low) else enough.low,
        enough_high=None if enough is None or math.isinf(enough.high) else enough.high,
        largest=max(series.by_size),
        worst_error=None if worst is None else abs(worst.error),
        allowed_error=None if worst is None else worst.allowed,
        fit=fit.verdict,
        n=len(series.by_size),
        interval=fit.fixed.interval,
    )


def optimizer_share(series: BatchSeries) -> Iterator[Finding]:
    shares = {
        size: m.summary.phases_ms["optimizer"] / sum(m.summary.phases_ms.values())
        for size, m in series.by_size.items()
        if "optimizer" in m.summary.phases_ms
    }
    if len(shares) < 2:
        return
    smallest, largest = min(shares), max(shares)
    yield OptimizerShare(
        subject=f"{series.mode}/optimizer",
        factor="batch_size",
        levels=(smallest, largest),
        cells=series.cells,
        share_a=shares[smallest],
        share_b=shares[largest],
        n=min(m.summary.num_processes for m in series.by_size.values()),
    )


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
