"""What the cost trials show about each factor: time and memory."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainlab.analysis.batch_series import batch_series
from trainlab.analysis.confounds import trial_confounds
from trainlab.analysis.contrast import Contrast, contrasts
from trainlab.analysis.cost.measurement import MODES, Measurement
from trainlab.analysis.cost_ratios import noise_ratio, ratios_in
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.findings.batch_scaling import optimizer_share, scaling_finding
from trainlab.analysis.findings.disturbed import slow_trials, uncompared_cells, unstable_times
from trainlab.analysis.findings.finding import Finding
from trainlab.analysis.findings.operators import operator_findings
from trainlab.analysis.findings.parallel import parallel_findings
from trainlab.stats.cost_ratio import CostComparison
from trainlab.words import Words
from trainlab.words.numbers import MIB, figure, memory, percent

SMALL_CHANGE = 0.05
"""A change of memory below this share answers nothing."""

MeasuredContrast = tuple[Contrast, Measurement, Measurement]
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
    epoch_s_a: float | None
    epoch_s_b: float | None
    """None where a script does not show how many steps an epoch has."""
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
        knows_epochs = self.epoch_s_a is not None and self.epoch_s_b is not None
        cost = self.fill(words, f"cost_of_{self.mode}" if knows_epochs else "cost_of_steps")
        verdict = words.named("mark", (self.verdict or "").replace(" ", "_"))
        if self.verdict == "equivalent":
            verdict = self.fill(words, "cost_equivalent")
        text = words("cost_verdict", cost=cost, verdict=verdict, noise=noise)
        if self.verdict != "cannot tell" or self.processes_needed is None:
            return text
        return words.sentences(text, self.fill(words, "processes_would_do"))

    def phrases(self, words: Words) -> dict[str, object]:
        return super().phrases(words) | {"change_of_time": self._change_of_time(words)}

    def _change_of_time(self, words: Words) -> str:
        """How many times faster or slower per sample, where that was shown; else the ratio of times."""
        if self.verdict != "different":
            return words("time_ratio", ratio=figure(self.ratio), within=self.interval_text(words))
        if self.ratio > 1:
            key, factor, interval = "time_slower", self.ratio, self.interval
        else:
            key, factor = "time_faster", 1 / self.ratio
            interval = None if self.interval is None else self.interval.inverse
        within = self.interval_text(words, interval=interval)
        return words(key, times=figure(factor), share=percent(self.ratio), within=within)

    @property
    def repeats_row(self) -> bool:
        return self.verdict != "cannot tell"

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

    def phrases(self, words: Words) -> dict[str, object]:
        return super().phrases(words) | {"memory": memory(self.mib_a, self.mib_b)}

    @property
    def says_something(self) -> bool:
        return self.weight > SMALL_CHANGE

    @property
    def repeats_row(self) -> bool:
        return True

    @property
    def weight(self) -> float:
        return abs(math.log(self.ratio))


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
        yield from parallel_findings(mode, [pair for pair, _, _ in measured], comparisons)
        yield from _memory(mode, measured)
        yield from uncompared_cells(evidence, pairs, mode)
        for series in batch_series(evidence, mode):
            yield scaling_finding(series)
            yield from operator_findings(series)
            yield from optimizer_share(series)
    yield from unstable_times(evidence, ratios)
    yield from slow_trials(evidence)


def _times(
    mode: str,
    measured: Sequence[MeasuredContrast],
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
            epoch_s_a=a.epoch_s.value if first.knows_epochs else None,
            epoch_s_b=b.epoch_s.value if second.knows_epochs else None,
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


def _memory(mode: str, measured: Sequence[MeasuredContrast]) -> Iterator[Finding]:
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
