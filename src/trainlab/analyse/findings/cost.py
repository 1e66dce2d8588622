"""What the cost trials show: time and memory by factor, scaling with the batch, instability."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainlab.analyse.batch_series import BatchSeries, batch_series
from trainlab.analyse.confounds import trial_confounds
from trainlab.analyse.contrast import Contrast, contrasts
from trainlab.analyse.cost.measurement import MODES, Measurement
from trainlab.analyse.evidence import Evidence
from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.findings.operators import operator_findings
from trainlab.stats.cost_ratio import CostComparison, compare_cost, decide_cost, noise_floor
from trainlab.stats.scaling import FitVerdict
from trainlab.words import Words
from trainlab.words.numbers import MIB, figure

SMALL_CHANGE = 0.05
"""A change of memory below this share answers nothing."""
FARTHEST_FIT = 2
"""A batch of more than this many times the largest measured is beyond what a fit can tell."""

MeasuredPair = tuple[Contrast, Measurement, Measurement]
"""Two cells that are compared, and what was measured about the reference and about the other."""


@dataclass(frozen=True, kw_only=True)
class CostRatio(Finding):
    """What a change of one factor does to the time per sample."""

    kind = "cost"
    section = "factors"
    rank = 7
    test = "cost"

    ratio: float
    sample_us_a: float
    sample_us_b: float
    step_ms_a: float
    step_ms_b: float
    epoch_s_a: float
    epoch_s_b: float
    p: float | None
    family: int
    noise_floor: float | None
    detectable: float | None
    processes_needed: int | None

    def statement(self, words: Words) -> str:
        noise = "" if self.noise_floor is None else self.fill(words, "cost_noise")
        cost = self.fill(words, f"cost_of_{self.mode}")
        verdict = words.named("mark", (self.verdict or "").replace(" ", "_"))
        text = words("cost_verdict", cost=cost, verdict=verdict, noise=noise)
        if self.verdict != "cannot tell" or self.processes_needed is None:
            return text
        return words.sentences(text, self.fill(words, "processes_would_do"))

    @property
    def group(self) -> tuple[str, ...]:
        return self.kind, self.factor or "", self.mode

    @property
    def weight(self) -> float:
        return abs(math.log(self.ratio))


@dataclass(frozen=True, kw_only=True)
class MemoryRatio(Finding):
    """What a change of one factor does to peak memory."""

    kind = "memory"
    text = "memory_change"
    section = "factors"
    rank = 13

    mib_a: float
    mib_b: float
    ratio: float

    @property
    def says_something(self) -> bool:
        return self.weight > SMALL_CHANGE

    @property
    def weight(self) -> float:
        return abs(math.log(self.ratio))


@dataclass(frozen=True, kw_only=True)
class Scaling(Finding):
    """How the time of a batch grows with its size."""

    kind = "scaling"
    section = "scaling"
    rank = 9

    fixed_ms: float
    per_sample_us: float
    per_sample_us_low: float | None
    """Its 95 % interval; that of the fixed part is the finding's."""
    per_sample_us_high: float | None
    enough: float | None
    """Beyond this size doubling saves less than 10 % of the time per sample."""
    enough_low: float | None
    """Its 95 % interval; without an upper end where the time may not grow with the size at all."""
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
    def _advice(self) -> str:
        if self.enough_high is not None and self.enough_high <= FARTHEST_FIT * self.largest:
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


@dataclass(frozen=True, kw_only=True)
class Unstable(Finding):
    """Measurements that cannot be trusted as they are."""

    kind = "unstable"
    section = "method"

    num_unstable: int
    num_measured: int
    warning: str
    """The code of the first warning, and its value."""
    warning_value: float

    def statement(self, words: Words) -> str:
        why = words.warning(self.warning, self.warning_value)
        return self.fill(words, "unstable", why=why)


def _within(low: float | None, high: float | None, words: Words) -> str:
    return (
        "" if low is None or high is None else words("within", low=figure(low), high=figure(high))
    )


def cost_findings(evidence: Evidence) -> Iterator[Finding]:
    """By mode: time, memory, scaling, operators, the optimizer's share; then what was unstable."""
    pairs = contrasts(evidence.cells)
    for mode in MODES:
        measured = [
            (pair, first, second)
            for pair in pairs
            if (first := evidence.measurement(pair.reference.id, mode))
            and (second := evidence.measurement(pair.other.id, mode))
        ]
        yield from _times(mode, measured, noise_floor_of(evidence, mode))
        yield from _memory(mode, measured)
        for series in batch_series(evidence, mode):
            yield _scaling(series)
            yield from operator_findings(series)
            yield from _optimizer_share(series)
    yield from _unstable(evidence)


def noise_floor_of(evidence: Evidence, mode: str) -> float | None:
    """The log ratio between two measurements of one cell; None without an A/A pair."""
    cell = evidence.cells[0].id
    first, second = (evidence.measurement(cell, mode, again=again) for again in (False, True))
    if first is None or second is None or len(first.costs) != len(second.costs):
        return None
    return noise_floor(_sample_us(first), _sample_us(second))


def compare_measurements(
    pairs: Sequence[tuple[Measurement, Measurement]], floor: float | None
) -> tuple[CostComparison, ...]:
    """Time per sample, decided as one family."""
    samples_us = ((_sample_us(first), _sample_us(second)) for first, second in pairs)
    comparisons = decide_cost([compare_cost(a, b, floor or 0.0) for a, b in samples_us])
    if floor is not None:
        return comparisons
    # Without an A/A pair noise cannot be told from a difference.
    return tuple(replace(comparison, verdict="cannot tell") for comparison in comparisons)


def _sample_us(measurement: Measurement) -> list[float]:
    """The median time per sample of every process."""
    return [statistics.median(r.step_ms) * 1e3 / r.batch_size for r in measurement.costs]


def _times(mode: str, measured: Sequence[MeasuredPair], floor: float | None) -> Iterator[Finding]:
    comparisons = compare_measurements([(first, second) for _, first, second in measured], floor)
    for (pair, first, second), comparison in zip(measured, comparisons, strict=True):
        a, b = first.summary, second.summary
        yield CostRatio(
            subject=f"{mode}/sample_us",
            factor=pair.factor,
            levels=pair.levels,
            cells=pair.ids,
            ratio=comparison.ratio.value,
            sample_us_a=a.sample_us.value,
            sample_us_b=b.sample_us.value,
            step_ms_a=a.step_ms.value,
            step_ms_b=b.step_ms.value,
            epoch_s_a=a.epoch_s.value,
            epoch_s_b=b.epoch_s.value,
            p=comparison.p_holm,
            family=comparison.family,
            noise_floor=floor,
            detectable=comparison.detectable,
            processes_needed=comparison.processes_needed,
            n=min(comparison.n_a, comparison.n_b),
            interval=comparison.ratio.interval,
            verdict=comparison.verdict,
            confounds=trial_confounds(first.trial, second.trial, pair.factors),
        )


def _memory(mode: str, measured: Sequence[MeasuredPair]) -> Iterator[Finding]:
    for pair, first, second in measured:
        if first.memory is None or second.memory is None:
            continue
        a, b = first.memory.peak_bytes, second.memory.peak_bytes
        yield MemoryRatio(
            subject=f"{mode}/peak_bytes",
            factor=pair.factor,
            levels=pair.levels,
            cells=pair.ids,
            mib_a=a / MIB,
            mib_b=b / MIB,
            ratio=b / a,
            n=1,
            confounds=trial_confounds(first.trial, second.trial, pair.factors),
        )


def _scaling(series: BatchSeries) -> Finding:
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


def _optimizer_share(series: BatchSeries) -> Iterator[Finding]:
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


def _unstable(evidence: Evidence) -> Iterator[Finding]:
    """One finding for all measurements with warnings."""
    unstable = [measurement for measurement in evidence.measured if measurement.summary.warnings]
    if unstable:
        first = unstable[0].summary
        yield Unstable(
            subject=f"{first.mode}/step_ms",
            cells=tuple(dict.fromkeys(measurement.trial.cell for measurement in unstable)),
            num_unstable=len(unstable),
            num_measured=len(evidence.measured),
            warning=first.warnings[0].code,
            warning_value=first.warnings[0].value,
            n=len(unstable),
        )
