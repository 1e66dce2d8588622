"""How a step grows with the batch: its fixed part, its part per sample, the optimizer's share."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from trainlab.analysis.batch_series import BatchSeries
from trainlab.analysis.findings.finding import Finding
from trainlab.stats.scaling import FitVerdict
from trainlab.words import Words
from trainlab.words.numbers import figure

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
