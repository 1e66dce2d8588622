"""What a step costs: ratios between cells, the instruments' overhead, the first step, what was unstable."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainlab.analysis.evidence import Evidence, trial_confounds
from trainlab.analysis.finding import Finding
from trainlab.analysis.measurement import MODES, STEP_LIMIT, Measurement, figures_of, measured_twice
from trainlab.analysis.metrics import Contrast, contrasts
from trainlab.analysis.operators import operator_findings
from trainlab.analysis.scaling import (
    batch_series,
    optimizer_share,
    parallel_findings,
    scaling_finding,
)
from trainlab.record.cost_record import ColdStep, CostRecord, LayersRecord
from trainlab.spec import CostSpec
from trainlab.stats.cost_ratio import (
    CostComparison,
    Floats,
    compare_costs,
    excess_variance,
    ratio_twice,
)
from trainlab.stats.median import FEWEST_FOR_INTERVAL, median_interval
from trainlab.words import Words
from trainlab.words.numbers import MIB, figure, memory, percent

MeasuredPair = tuple[Measurement, Measurement]


def ratios_in(
    evidence: Evidence, mode: str, pairs: Sequence[MeasuredPair]
) -> tuple[CostComparison, ...]:
    """Time per sample of pairs of cells of one run, decided as one family; noise is that of all cells."""
    rows = _rows(evidence, mode)
    places = {id(measurement): row for row, measurement in enumerate(rows)}
    return compare_costs(
        figures_of(rows),
        [(places[id(first)], places[id(second)]) for first, second in pairs],
        measured_twice(rows),
        evidence.study.margins.get(f"{mode}/sample_us"),
    )


def ratios_between(
    first: Evidence, second: Evidence, mode: str, pairs: Sequence[MeasuredPair]
) -> tuple[CostComparison, ...]:
    """The same cells in two runs: nothing ran in turns here, so whole times are compared, process by
    process as they come."""
    if not pairs:
        return ()
    sides = [figures_of(side) for side in zip(*pairs, strict=True)]
    width = max(side.shape[1] for side in sides)
    figures = np.vstack([_packed(side, width) for side in sides])
    excesses = [_excess(run, mode) for run in (first, second)]
    known = [excess for excess in excesses if excess is not None]
    return compare_costs(
        figures,
        [(place, len(pairs) + place) for place in range(len(pairs))],
        [],
        first.study.margins.get(f"{mode}/sample_us"),
        max(known, default=None),
    )


def noise_ratio(evidence: Evidence, mode: str) -> float | None:
    """How many times as long a cell takes as itself, measured twice: the farthest from 1; None without."""
    rows = _rows(evidence, mode)
    return ratio_twice(figures_of(rows), measured_twice(rows))


def cells_twice(evidence: Evidence, mode: str) -> list[str]:
    """The cells that were measured twice."""
    rows = _rows(evidence, mode)
    return list(dict.fromkeys(rows[second].trial.cell for _, second in measured_twice(rows)))


def _excess(evidence: Evidence, mode: str) -> float | None:
    rows = _rows(evidence, mode)
    return excess_variance(figures_of(rows), measured_twice(rows)) if rows else None


def _rows(evidence: Evidence, mode: str) -> list[Measurement]:
    return [measurement for measurement in evidence.measured if measurement.summary.mode == mode]


def _packed(figures: Floats, width: int) -> Floats:
    """Each row's figures moved to the left."""
    packed = np.full((len(figures), width), math.nan)
    for row, values in enumerate(figures):
        known = values[np.isfinite(values)]
        packed[row, : len(known)] = known
    return packed


@dataclass(frozen=True)
class Overhead:
    """How much longer a watched step takes, as a share of a bare one."""

    instrument: str
    """`phases`, `layers`, `operators` or `probes`."""
    added: float
    low: float
    high: float
    """95% interval of the median over pairs; the whole range where there are fewer than six."""
    num_pairs: int

    @property
    def is_range(self) -> bool:
        """Whether there are too few pairs for an interval, so that the ends are those of the range."""
        return self.num_pairs < FEWEST_FOR_INTERVAL


def overheads(measurement: Measurement) -> list[Overhead]:
    """One per instrument that watched this cell and has bare steps to compare with."""
    ratios = {"phases": [r for record in measurement.costs for r in round_ratios(record)]}
    if (layers := measurement.layers) is not None:
        ratios["layers"] = _ratios(layers.bare_ms, layers.watched_ms)
    if (operators := measurement.operators) is not None:
        ratios["operators"] = _ratios(operators.bare_ms, operators.profiled_ms)
    if (probes := measurement.probe_price) is not None:
        ratios["probes"] = _ratios(probes.bare_ms, probes.watched_ms)
    return [_overhead(instrument, values) for instrument, values in ratios.items() if values]


def round_ratios(record: CostRecord) -> list[float]:
    """Marked over bare, per turn that has both: a machine that drifts hits both alike."""
    marked_ms = [sum(phases) for phases in zip(*record.phases_ms.values(), strict=True)]
    if record.turns:
        return list(_turn_ratios(record, marked_ms))
    size = record.round_steps
    return [
        statistics.median(marked_ms[start : start + size])
        / statistics.median(record.step_ms[start : start + size])
        for start in range(0, len(marked_ms), size)
    ]


def _turn_ratios(record: CostRecord, marked_ms: Sequence[float]) -> Iterator[float]:
    start = 0
    for turn, bare_ms in zip(record.turns, record.bare_turns_ms(), strict=True):
        if turn.num_marked:
            marked = statistics.median(marked_ms[start : start + turn.num_marked])
            yield marked / statistics.median(bare_ms)
        start += turn.num_marked


def _ratios(bare_ms: Sequence[float], watched_ms: Sequence[float]) -> list[float]:
    return [watched / bare for bare, watched in zip(bare_ms, watched_ms, strict=False)]


def _overhead(instrument: str, ratios: Sequence[float]) -> Overhead:
    middle, low, high = median_interval(ratios)
    return Overhead(instrument, middle - 1, low - 1, high - 1, len(ratios))


@dataclass(frozen=True)
class Pair:
    """A figure of the first step and of settled ones."""

    name: str
    first: float
    settled: float

    @property
    def ratio(self) -> float | None:
        """The first figure over the settled one; None where that is 0."""
        return self.first / self.settled if self.settled else None


@dataclass(frozen=True)
class ColdStart:
    """Medians over the timed processes; layers from the watched one."""

    step_ms: Pair
    phases_ms: tuple[Pair, ...]
    """In the order of the step."""
    layers_ms: tuple[Pair, ...]
    """Forward passes of the layers, those that gained most by warming up first."""
    evidence: tuple[Pair, ...]
    """What was counted during the step: memory touched first, modules and libraries loaded, …"""


COUNTS: dict[str, Callable[[ColdStep], int | None]] = {
    "page_faults": lambda step: step.page_faults,
    "modules": lambda step: step.modules_imported,
    "libraries": lambda step: step.libraries_loaded,
    "allocations": lambda step: step.device_allocations,
}


def cold_start(costs: Sequence[CostRecord], layers: LayersRecord | None) -> ColdStart | None:
    """None where no warm-up step was recorded."""
    records = [record for record in costs if record.cold and record.settled]
    if not records:
        return None
    phases = dict.fromkeys(name for r in records for step in r.cold for name in step.phases_ms)
    return ColdStart(
        step_ms=_pair("step", records, _total_ms),
        phases_ms=tuple(_phase(name, records) for name in phases),
        layers_ms=_layers(layers),
        evidence=tuple(
            _pair(name, records, count)
            for name, count in COUNTS.items()
            if count(records[0].cold[0]) is not None
        ),
    )


def settled_ms(costs: Sequence[CostRecord]) -> float:
    """A settled step: what a first one is measured against, everywhere.

    One after the measurement, waited for after every phase like the first ones; in records without
    such steps, a bare one. The median over processes.
    """
    return statistics.median(
        statistics.median([_total_ms(step) for step in record.settled] or record.step_ms)
        for record in costs
    )


def _total_ms(step: ColdStep) -> float:
    return sum(step.phases_ms.values())


def _phase(name: str, records: Sequence[CostRecord]) -> Pair:
    return _pair(name, records, lambda step: step.phases_ms.get(name, 0.0))


def _pair(
    name: str, records: Sequence[CostRecord], value: Callable[[ColdStep], float | None]
) -> Pair:
    return Pair(
        name,
        statistics.median(value(record.cold[0]) or 0 for record in records),
        statistics.median(
            statistics.median(value(step) or 0 for step in record.settled) for record in records
        ),
    )


def _layers(layers: LayersRecord | None) -> tuple[Pair, ...]:
    if layers is None:
        return ()
    pairs = [
        Pair(row.name, row.first_forward_us / 1e3, statistics.median(row.forward_us) / 1e3)
        for row in layers.rows
        if row.first_forward_us is not None and row.forward_us
    ]
    return tuple(sorted(pairs, key=lambda pair: pair.settled - pair.first))


STANDS_OUT = 1.5
"""A trial whose epochs took so many times those of the faster half of the seeds stands out."""
FEWEST_TRIALS = 3


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
class Uncompared(Finding):
    """A cell whose cost could not be compared, since every process that timed it broke."""

    kind = "uncompared"
    text = "uncompared"
    section = "method"

    num_timed: int
    num_failed: int


@dataclass(frozen=True, kw_only=True)
class SlowTrial(Finding):
    """A learn trial that took far longer than the other seeds of its cell."""

    kind = "slow_trial"
    section = "method"

    seed: int
    epoch_s: float
    faster_s: float
    """The median of the faster half of the seeds."""
    others_cores: float | None
    """Kept busy by other programs meanwhile; None where that was not recorded."""
    stolen_cores: float | None

    def statement(self, words: Words) -> str:
        text = self.fill(words, "slow_trial")
        if self.others_cores is None or self.stolen_cores is None:
            return text
        return words.sentences(text, self.fill(words, "slow_trial_load"))


def unstable_times(evidence: Evidence, ratios: Sequence[CostComparison]) -> Iterator[Finding]:
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


def uncompared_cells(evidence: Evidence, pairs: Sequence[Contrast], mode: str) -> Iterator[Finding]:
    """Cells that were to be compared and of which no time is known, where a process failed; those that were
    never timed are counted among the trials that did not run."""
    is_trained = evidence.study.cost is not None and evidence.study.cost.weights == "trained"
    for cell in dict.fromkeys(cell for pair in pairs for cell in pair.ids):
        if evidence.measurement(cell, mode) is not None:
            continue
        states = [
            trial.state
            for trial in evidence.trials
            if (trial.cell, trial.watch, trial.mode) == (cell, "steps", mode)
            and (trial.weights_of is not None) == is_trained
        ]
        if "failed" in states:
            yield Uncompared(
                subject=f"{mode}/sample_us",
                cells=(cell,),
                num_timed=len(states),
                num_failed=states.count("failed"),
                n=0,
            )


def slow_trials(evidence: Evidence) -> Iterator[Finding]:
    """Learn trials that took STANDS_OUT times as long as the faster half of their cell's seeds, or longer.

    Where as many as half did, none stands out.
    """
    for cell, seeds in evidence.learned.items():
        times_s = {seed: s for seed, one in seeds.items() if (s := one.epoch_s()) is not None}
        if len(times_s) < FEWEST_TRIALS:
            continue
        faster = sorted(times_s.values())[: math.ceil(len(times_s) / 2)]
        faster_s = statistics.median(faster)
        slow = {seed: s for seed, s in times_s.items() if s >= STANDS_OUT * faster_s}
        if 2 * len(slow) >= len(times_s):
            continue
        for seed, epoch_s in slow.items():
            load = seeds[seed].trial.load
            yield SlowTrial(
                subject="train_s",
                cells=(cell,),
                seed=seed,
                epoch_s=epoch_s,
                faster_s=faster_s,
                others_cores=None if load is None else load.others_cores,
                stolen_cores=None if load is None else load.stolen_cores,
                n=len(times_s),
            )


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
