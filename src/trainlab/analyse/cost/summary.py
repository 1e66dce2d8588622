"""What a step costs, from the raw records of several processes, with intervals and warnings."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import special

from trainlab.record.cost import CostRecord
from trainlab.stats.median import median_interval

IQR_LIMIT = 0.25
PROCESS_LIMIT = 0.10
DRIFT_LIMIT = 0.10
OTHERS_LIMIT_CORES = 0.2
STOLEN_LIMIT_CORES = 0.1


@dataclass(frozen=True)
class Estimate:
    """A value with the interval in which the same measurement, repeated, falls in 95 % of cases."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Estimate":
        """The same in another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Instability:
    """Why a measurement may not be trusted, and by how much; the report has the words of each code."""

    code: Literal["processes_differ", "steps_spread", "steps_drift", "others_busy", "stolen"]
    value: float
    """A share, or cores."""


@dataclass(frozen=True)
class CostSummary:
    """What one cell costs. Every field says per what and in which unit."""

    mode: str
    batch_size: int
    num_processes: int
    num_steps: int
    num_warmup_steps: int
    step_ms: Estimate
    p95_step_ms: float
    spread: float
    """Interquartile range of the steps of a process over their median, the median over processes."""
    sample_us: Estimate
    epoch_s: Estimate
    samples_per_s: Estimate
    phases_ms: dict[str, float]
    """Per step; they add up to the bare step. `overhead` says what marking them costs."""
    first_step_ms: float
    """The first step of a process, which pays for start-up: never part of the above."""
    warnings: tuple[Instability, ...]


def summarise(records: Sequence[CostRecord]) -> CostSummary:
    """One sample per process, its median step; intervals are over processes where there are several."""
    first = records[0]
    medians = [statistics.median(record.step_ms) for record in records]
    step = (
        repeat_interval(medians) if len(medians) > 1 else Estimate(*median_interval(first.step_ms))
    )
    per_sample = step.times(1e3 / first.batch_size)
    return CostSummary(
        mode=first.mode,
        batch_size=first.batch_size,
        num_processes=len(records),
        num_steps=sum(len(record.step_ms) for record in records),
        num_warmup_steps=len(first.warmup_ms),
        step_ms=step,
        p95_step_ms=statistics.median(_quantile(record.step_ms, 0.95) for record in records),
        spread=statistics.median(_relative_iqr(record) for record in records),
        sample_us=per_sample,
        epoch_s=per_sample.times(first.num_samples / 1e6),
        samples_per_s=Estimate(1e6 / per_sample.value, 1e6 / per_sample.high, 1e6 / per_sample.low),
        phases_ms=_phases(records, step.value),
        first_step_ms=statistics.median((r.warmup_ms or r.step_ms)[0] for r in records),
        warnings=tuple(_warnings(records, medians)),
    )


def repeat_interval(samples: Sequence[float]) -> Estimate:
    """Geometric mean, and where the mean of as many fresh samples would fall in 95 % of cases."""
    logs = [math.log(sample) for sample in samples]
    middle, count = statistics.fmean(logs), len(logs)
    quantile = float(special.stdtrit(count - 1, 0.975))
    half_width = quantile * statistics.stdev(logs) * math.sqrt(2 / count)
    return Estimate(*(math.exp(log) for log in (middle, middle - half_width, middle + half_width)))


def _phases(records: Sequence[CostRecord], step_ms: float) -> dict[str, float]:
    """The bare step split in proportion to the marked phases: what marking adds is in none of them."""
    marked_ms = {
        name: statistics.median(statistics.fmean(record.phases_ms[name]) for record in records)
        for name in records[0].phases_ms
    }
    total_ms = sum(marked_ms.values())
    return {name: ms / total_ms * step_ms for name, ms in marked_ms.items()}


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _relative_iqr(record: CostRecord) -> float:
    low, high = (_quantile(record.step_ms, share) for share in (0.25, 0.75))
    return (high - low) / statistics.median(record.step_ms)


def _drift(record: CostRecord) -> float:
    """The median of the last third of the steps over that of the first third, less 1."""
    third = max(1, len(record.step_ms) // 3)
    first, last = record.step_ms[:third], record.step_ms[-third:]
    return statistics.median(last) / statistics.median(first) - 1


def _warnings(records: Sequence[CostRecord], medians: Sequence[float]) -> Iterator[Instability]:
    between = max(medians) / min(medians) - 1
    if between > PROCESS_LIMIT:
        yield Instability("processes_differ", between)
    if (iqr := max(map(_relative_iqr, records))) > IQR_LIMIT:
        yield Instability("steps_spread", iqr)
    if abs(drift := max(map(_drift, records), key=abs)) > DRIFT_LIMIT:
        yield Instability("steps_drift", drift)
    if (others := max(record.load.others_cores for record in records)) > OTHERS_LIMIT_CORES:
        yield Instability("others_busy", others)
    if (stolen := max(record.load.stolen_cores for record in records)) > STOLEN_LIMIT_CORES:
        yield Instability("stolen", stolen)
