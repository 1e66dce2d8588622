"""What the cost trials show: time and memory by factor, scaling with the batch, instability."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainlab.analyse.batch_series import BatchSeries, batch_series
from trainlab.analyse.confounds import trial_confounds
from trainlab.analyse.contrast import Contrast, contrasts
from trainlab.analyse.cost.measurement import MODES, Measurement
from trainlab.analyse.cost.summary import STEP_LIMIT
from trainlab.analyse.cost_ratios import noise_ratio, ratios_in
from trainlab.analyse.evidence import Evidence
from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.findings.operators import operator_findings
from trainlab.spec import CostSpec
from trainlab.stats.cost_ratio import CostComparison
from trainlab.stats.scaling import FitVerdict
from trainlab.words import Words
from trainlab.words.numbers import MIB, figure

SMALL_CHANGE = 0.05
"""A change of memory below this share answers nothing."""
STANDS_OUT = 1.5
"""A trial whose epochs took so many times those of the other seeds stands out."""
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
    margin: float | None
    """The share that would not matter."""
    noise: float | None
    """How many times as long a cell takes as itself; None where none was measured twice."""
    detectable: float | None
    processes_needed: int | None

    def statement(self, words: Words) -> str:
        noise = "" if self.noise is None else self.fill(words, "cost_noise")
        cost = self.fill(words, f"cost_of_{self.mode}")
        verdict = words.named("mark", (self.verdict or "").replace(" ", "_"))
        if self.verdict == "equivalent":
            verdict = self.fill(words, "cost_equivalent")
        text = words("cost_verdict", cost=cost, verdict=verdict, noise=noise)
        if self.verdict != "cannot tell" or self.processes_needed is None:
            return text
        return words.sentences(text, self.fill(words, "processes_would_do"))

    def interval_text(self, words: Words, text: Callable[[float], str] = figure) -> str:
        """The interval that decides: of 90 % where the cells are equivalent."""
        if self.interval is None or self.verdict != "equivalent":
            return super().interval_text(words, text)
        low, high = text(self.interval.low), text(self.interval.high)
        return words("cost_within_90", low=low, high=high)

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
    """Times per batch, or ratios, that are not known well: which, and by how much they may be off."""

    kind = "unstable"
    section = "method"

    num_unstable: int
    """Times per batch that may be off by more than STEP_LIMIT."""
    num_measured: int
    worst: float | None
    """How far the least known of them may be off, as a share."""
    num_wide: int
    """Ratios that may be off by more than was asked for."""
    num_ratios: int
    worst_ratio: float | None
    """How far the least known ratio may be off, as a share; None where none has an interval."""
    limit: float
    ratio_limit: float
    reason: str | None
    """The likeliest for the least known time, as a code, and its value."""
    reason_value: float | None

    def statement(self, words: Words) -> str:
        parts = []
        if self.reason is not None and self.reason_value is not None:
            why = words.warning(self.reason, self.reason_value)
            parts.append(self.fill(words, "unstable_times", why=why))
        if self.num_wide:
            parts.append(self.fill(words, "wide_ratios"))
        elif self.worst_ratio is not None:
            parts.append(self.fill(words, "good_ratios"))
        return words.sentences(*parts)


@dataclass(frozen=True, kw_only=True)
class SlowTrial(Finding):
    """A learn trial that took far longer than the other seeds of its cell."""

    kind = "slow_trial"
    section = "method"

    seed: int
    epoch_s: float
    others_s: float
    """The median of the other seeds."""
    others_cores: float | None
    """Kept busy by other programs meanwhile; None where that was not recorded."""
    stolen_cores: float | None

    def statement(self, words: Words) -> str:
        text = self.fill(words, "slow_trial")
        if self.others_cores is None or self.stolen_cores is None:
            return text
        return words.sentences(text, self.fill(words, "slow_trial_load"))


def _within(low: float | None, high: float | None, words: Words) -> str:
    return (
        "" if low is None or high is None else words("within", low=figure(low), high=figure(high))
    )


def cost_findings(evidence: Evidence) -> Iterator[Finding]:
    """By mode: time, memory, scaling, operators, the optimizer's share; then what was unstable."""
    pairs = contrasts(evidence.cells)
    ratios: list[CostComparison] = []
    for mode in MODES:
        measured = [
            (pair, first, second)
            for pair in pairs
            if (first := evidence.measurement(pair.reference.id, mode))
            and (second := evidence.measurement(pair.other.id, mode))
        ]
        comparisons = ratios_in(evidence, mode, [(first, second) for _, first, second in measured])
        ratios += comparisons
        yield from _times(mode, measured, comparisons, noise_ratio(evidence, mode))
        yield from _memory(mode, measured)
        for series in batch_series(evidence, mode):
            yield _scaling(series)
            yield from operator_findings(series)
            yield from _optimizer_share(series)
    yield from _unstable(evidence, ratios)
    yield from _slow_trials(evidence)


def _times(
    mode: str,
    measured: Sequence[MeasuredPair],
    comparisons: Sequence[CostComparison],
    noise: float | None,
) -> Iterator[Finding]:
    for (pair, first, second), comparison in zip(measured, comparisons, strict=True):
        a, b = first.summary, second.summary
        is_equivalent = comparison.verdict == "equivalent"
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
            p=comparison.p,
            family=comparison.family,
            margin=comparison.margin,
            noise=noise,
            detectable=comparison.detectable,
            processes_needed=comparison.processes_needed,
            n=comparison.n,
            interval=comparison.equivalence if is_equivalent else comparison.ratio.interval,
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


def _unstable(evidence: Evidence, ratios: Sequence[CostComparison]) -> Iterator[Finding]:
    """One finding for all times and ratios that are not known well."""
    spec = evidence.study.cost
    ratio_limit = CostSpec().ratio_within if spec is None else spec.ratio_within
    off = [(m, m.summary.unstable) for m in evidence.measured if m.summary.unstable is not None]
    widths = [one.half_width for one in ratios if one.half_width is not None]
    wide = [width for width in widths if width > ratio_limit]
    if not off and not wide:
        return
    _, worst = max(off, key=lambda one: one[1].off_by, default=(None, None))
    cells = [measurement.trial.cell for measurement, _ in off]
    mode = off[0][0].summary.mode if off else evidence.measured[0].summary.mode
    yield Unstable(
        subject=f"{mode}/step_ms",
        cells=tuple(dict.fromkeys(cells)),
        num_unstable=len(off),
        num_measured=len(evidence.measured),
        worst=None if worst is None else worst.off_by,
        num_wide=len(wide),
        num_ratios=len(widths),
        worst_ratio=max(widths, default=None),
        limit=STEP_LIMIT,
        ratio_limit=ratio_limit,
        reason=None if worst is None else worst.reason,
        reason_value=None if worst is None else worst.value,
        n=len(off) + len(wide),
    )


def _slow_trials(evidence: Evidence) -> Iterator[Finding]:
    """Learn trials whose epochs took STANDS_OUT times those of their cell's other seeds, or longer."""
    for cell, seeds in evidence.learned.items():
        times_s = {seed: s for seed, one in seeds.items() if (s := one.epoch_s()) is not None}
        for seed, epoch_s in times_s.items():
            others_s = [s for other, s in times_s.items() if other != seed]
            if len(others_s) < 2 or epoch_s < STANDS_OUT * statistics.median(others_s):
                continue
            load = seeds[seed].trial.load
            yield SlowTrial(
                subject="train_s",
                cells=(cell,),
                seed=seed,
                epoch_s=epoch_s,
                others_s=statistics.median(others_s),
                others_cores=None if load is None else load.others_cores,
                stolen_cores=None if load is None else load.stolen_cores,
                n=len(times_s),
            )
