"""What the cost trials show: time and memory by factor, scaling with the batch, instability."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainlab.analyse.batch_series import BatchSeries, batch_series
from trainlab.analyse.confounds import trial_confounds
from trainlab.analyse.contrast import Contrast, contrasts
from trainlab.analyse.cost.measurement import MODES, Measurement
from trainlab.analyse.evidence import Evidence
from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.findings.operators import operator_findings
from trainlab.stats.cost_ratio import CostComparison, compare_cost, decide_cost, noise_floor
from trainlab.stats.scaling import Fits, fit_batches
from trainlab.words import Words
from trainlab.words.numbers import MIB

SMALL_CHANGE = 0.05
"""A change of memory below this share answers nothing."""
FAR = 2
"""A batch this many times the largest measured is beyond what a fit can tell."""


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

    def tell(self, words: Words) -> str:
        noise = "" if self.noise_floor is None else self.fill(words, "cost_noise")
        cost = self.fill(words, f"cost_of_{self.mode}")
        verdict = words.named("mark", (self.verdict or "").replace(" ", "_"))
        text = words("cost_verdict", cost=cost, verdict=verdict, noise=noise)
        if self.verdict != "cannot tell" or self.processes_needed is None:
            return text
        return words.sentences(text, self.fill(words, "processes_would_do"))

    @property
    def says_something(self) -> bool:
        return self.verdict in ("different", "equivalent")

    @property
    def group(self) -> tuple[str, ...]:
        return self.kind, self.factor or "", self.mode

    @property
    def weight(self) -> float:
        return abs(math.log(self.ratio))


@dataclass(frozen=True, kw_only=True)
class MemoryRatio(Finding):
    """What a change of one factor does to the peak of memory."""

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
    enough: float | None
    """Beyond this size doubling saves less than 10 % of the time per sample."""
    largest: int
    """The largest size measured."""
    worst_error: float | None
    """Of predicting each size from the others; None below three sizes."""
    fit: Fits

    def tell(self, words: Words) -> str:
        if self.fit == "does not fit":
            return self.fill(words, "scaling_unfit")
        check = "scaling_unchecked" if self.worst_error is None else "scaling_checked"
        step = words.capital(words.step(self.mode))
        text = self.fill(words, "scaling_fit", capital_step=step, check=self.fill(words, check))
        is_near = self.enough is not None and self.enough <= FAR * self.largest
        more = self.fill(words, "scaling_enough" if is_near else "scaling_beyond")
        return words.sentences(text, more)

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

    def tell(self, words: Words) -> str:
        why = words.warning(self.warning, self.warning_value)
        return self.fill(words, "unstable", why=why)


def cost_findings(evidence: Evidence) -> Iterator[Finding]:
    """By mode: time, memory, scaling, operators, the optimizer's share; then what was unstable."""
    pairs = contrasts(evidence.cells)
    for mode in MODES:
        yield from _times(evidence, mode, pairs)
        yield from _memory(evidence, mode, pairs)
        for series in batch_series(evidence, mode):
            yield _scaling(series)
            yield from operator_findings(series)
            yield from _optimizer_share(series)
    yield from _unstable(evidence)


def floor_of(evidence: Evidence, mode: str) -> float | None:
    """What one cell, measured twice, differs by, as a log ratio; None without an A/A pair."""
    cell = evidence.cells[0].id
    first, second = (evidence.measurement(cell, mode, again=again) for again in (False, True))
    if first is None or second is None or len(first.costs) != len(second.costs):
        return None
    return noise_floor(sample_us(first), sample_us(second))


def sample_us(measurement: Measurement) -> list[float]:
    """One figure per process."""
    return [statistics.median(r.step_ms) * 1e3 / r.batch_size for r in measurement.costs]


def _times(evidence: Evidence, mode: str, pairs: Sequence[Contrast]) -> Iterator[Finding]:
    floor = floor_of(evidence, mode)
    known = [(pair, *both) for pair in pairs if (both := _both(evidence, mode, pair))]
    compared = decide_cost(
        [compare_cost(sample_us(a), sample_us(b), floor or 0.0) for _, a, b in known]
    )
    for (pair, first, second), comparison in zip(known, compared, strict=True):
        yield _time(mode, pair, (first, second), comparison, floor)


def _time(
    mode: str,
    pair: Contrast,
    both: tuple[Measurement, Measurement],
    comparison: CostComparison,
    floor: float | None,
) -> Finding:
    first, second = both
    a, b = first.summary, second.summary
    return CostRatio(
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
        # Without an A/A pair there is no telling noise from a difference.
        verdict=comparison.verdict if floor is not None else "cannot tell",
        confounds=trial_confounds(first.trial, second.trial, frozenset(pair.factor.split(","))),
    )


def _memory(evidence: Evidence, mode: str, pairs: Sequence[Contrast]) -> Iterator[Finding]:
    for pair in pairs:
        both = _both(evidence, mode, pair)
        if both is None or both[0].memory is None or both[1].memory is None:
            continue
        a, b = both[0].memory.peak_bytes, both[1].memory.peak_bytes
        factors = frozenset(pair.factor.split(","))
        yield MemoryRatio(
            subject=f"{mode}/peak_bytes",
            factor=pair.factor,
            levels=pair.levels,
            cells=pair.ids,
            mib_a=a / MIB,
            mib_b=b / MIB,
            ratio=b / a,
            n=1,
            confounds=trial_confounds(both[0].trial, both[1].trial, factors),
        )


def _scaling(series: BatchSeries) -> Finding:
    fit = fit_batches({size: m.summary.step_ms.value for size, m in series.by_size.items()})
    return Scaling(
        subject=f"{series.mode}/step_ms",
        factor="batch_size",
        cells=series.cells,
        fixed_ms=fit.fixed.value,
        per_sample_us=1e3 * fit.per_sample.value,
        enough=fit.enough,
        largest=max(series.by_size),
        worst_error=max((abs(one.error) for one in fit.left_out), default=None),
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
    """One for all measurements that say something about themselves."""
    shaky = [one for one in evidence.measured if one.summary.warnings]
    if shaky:
        warning = shaky[0].summary.warnings[0]
        yield Unstable(
            subject=f"{shaky[0].summary.mode}/step_ms",
            cells=tuple(dict.fromkeys(one.trial.cell for one in shaky)),
            num_unstable=len(shaky),
            num_measured=len(evidence.measured),
            warning=warning.code,
            warning_value=warning.value,
            n=len(shaky),
        )


def _both(evidence: Evidence, mode: str, pair: Contrast) -> tuple[Measurement, Measurement] | None:
    first = evidence.measurement(pair.reference.id, mode)
    second = evidence.measurement(pair.other.id, mode)
    return None if first is None or second is None else (first, second)
