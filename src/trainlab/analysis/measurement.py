"""Everything a run measured about the cost of one cell, from the raw records of its processes."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainlab.record.cost_record import (
    CostRecord,
    LayersRecord,
    LimitsRecord,
    MemoryRecord,
    OperatorsRecord,
    ProbeCostRecord,
)
from trainlab.record.trial_record import TrialRecord
from trainlab.stats import special
from trainlab.stats.contrasts import Floats
from trainlab.stats.cost_ratio import Pair, levels
from trainlab.words.numbers import MIB

MODES = ("train", "inference")
STEP_LIMIT = 0.10
"""A time per batch that may be off by more is called unstable."""
FEWEST_PROCESSES = 3
"""With fewer there is no interval: that of two is up to 25 times as wide as what it stands for."""
DRIFT_LIMIT = 0.10
OTHERS_LIMIT_CORES = 0.2
STOLEN_LIMIT_CORES = 0.1
"""Beyond these, drift within a process and what else ran are given as the reason."""

HOST_SHARE = 0.85
"""Of the time of a step, from which on the host is what limits it: a GPU's queue holds a thousand pieces of
work, so that where the GPU is the limit the host is done long before it."""

Reason = Literal["processes_differ", "steps_drift", "speed_varies", "others_busy", "stolen"]
Noise = tuple[float, float]
"""The variance of the log of a time between processes, and its degrees of freedom."""


@dataclass(frozen=True)
class Estimate:
    """A value with the interval in which the same measurement, repeated, falls in 95% of cases."""

    value: float
    low: float | None = None
    high: float | None = None
    """None below three processes: two say next to nothing of how processes vary."""

    def times(self, factor: float) -> "Estimate":
        """The same in another unit."""
        ends = (None if end is None else end * factor for end in (self.low, self.high))
        return Estimate(self.value * factor, *ends)


@dataclass(frozen=True)
class Instability:
    """A time per batch that is not known well, by how much it may be off, and why, as far as is known."""

    off_by: float
    """How far the upper end of its interval lies above it, as a share."""
    reason: Reason
    value: float
    """Of the reason: a share, or cores."""


@dataclass(frozen=True)
class CostSummary:
    """What one cell costs. Every field says per what and in which unit."""

    mode: str
    batch_size: int
    num_processes: int
    num_steps: int
    num_warmup_steps: int
    """Of the process that took longest to warm up."""
    num_turns: int
    """Of all processes; 0 in runs from before turns."""
    num_set_aside: int
    """Turns set aside because something else ran meanwhile."""
    step_ms: Estimate
    low_step_ms: float
    """A tenth of the steps took less: the step of a machine at its best."""
    p95_step_ms: float
    sample_us: Estimate
    epoch_s: Estimate
    """As many of these steps as an epoch has, the smaller last one included."""
    samples_per_s: Estimate
    phases_ms: dict[str, float]
    """Per step; they add up to the bare step. `overheads` says what marking them costs."""
    first_step_ms: float
    """The first step of a process, which pays for start-up: never part of the above."""
    unstable: Instability | None


@dataclass(frozen=True)
class Measurement:
    """One cell in one mode. Speeds come from the bare processes, shares from the watched ones."""

    trial: TrialRecord
    """The first of its timed trials: its settings and what they became."""
    processes: tuple[str, ...]
    """The timed trials, by id."""
    costs: tuple[CostRecord, ...]
    """One per timed process."""
    process_ms: tuple[float, ...]
    """The step of each timed process, seen within the rounds of its bench."""
    summary: CostSummary
    operators: OperatorsRecord | None
    layers: LayersRecord | None
    memory: MemoryRecord | None
    limits: LimitsRecord | None
    probe_price: ProbeCostRecord | None = None

    @property
    def benches(self) -> tuple[str, ...]:
        """The bench of each timed process; in runs from before turns, its number."""
        return tuple(cost.bench or str(number) for number, cost in enumerate(self.costs, 1))

    @property
    def is_trained(self) -> bool:
        """Whether the weights came from a learn trial of the same run."""
        return self.trial.weights_of is not None

    @property
    def is_of_script(self) -> bool:
        """Whether a script was timed: its trials have the settings alone that it was given."""
        return "optimizer" not in self.trial.settings

    @property
    def accumulates(self) -> bool:
        """Whether a script's update is made of several batches: its batch size is then that of all."""
        return "accumulate" in self.trial.resolved

    @property
    def knows_epochs(self) -> bool:
        """Whether it is known how many steps a pass over the data has: a script may have no loader."""
        return not self.is_of_script or "train_samples" in self.trial.resolved

    @property
    def peak_mib(self) -> float | None:
        """The most memory that a step takes; None where it was not measured."""
        return None if self.memory is None else self.memory.peak_bytes / MIB

    @property
    def waits_for(self) -> Literal["host", "gpu"] | None:
        """What a step on a GPU waits for: the host, where that takes about as long to hand out the work as
        the GPU to do it. None on a CPU, and where it was not recorded."""
        shares = [
            one.queued_ms / sum(one.step_ms) for one in self.costs if one.queued_ms is not None
        ]
        if not shares:
            return None
        return "host" if statistics.median(shares) >= HOST_SHARE else "gpu"

    @property
    def device(self) -> str:
        """Its name, or its kind where it has none."""
        resolved = self.trial.resolved
        return str(resolved.get("device_name", resolved.get("device", "")))

    def process(self, trial_id: str) -> tuple[CostRecord, float] | None:
        """The raw record and the step of one of its timed trials; None for another trial."""
        timed = zip(self.costs, self.process_ms, strict=True)
        return dict(zip(self.processes, timed, strict=True)).get(trial_id)


def process_steps_ms(records: Mapping[str, CostRecord]) -> dict[str, float]:
    """The step of each timed trial, by id, as the rounds of its bench give it; of one that ran by
    itself, as its own turns do."""
    benches: dict[str, list[str]] = {}
    for trial_id, record in records.items():
        benches.setdefault(record.bench or f"alone: {trial_id}", []).append(trial_id)
    steps_ms: dict[str, float] = {}
    for members in benches.values():
        found = levels([records[trial_id].quiet_medians_ms() for trial_id in members])
        steps_ms |= zip(members, map(math.exp, found), strict=True)
    return steps_ms


def summarise(
    records: Sequence[CostRecord], process_ms: Sequence[float], noise: Noise | None = None
) -> CostSummary:
    """One sample per process, its step as its bench gives it; intervals are over processes."""
    first, ordered = records[0], [sorted(record.step_ms) for record in records]
    step = repeat_interval(process_ms, noise)
    per_sample = step.times(1e3 / first.batch_size)
    epochs_s = [epoch_s_of(r, ms) for r, ms in zip(records, process_ms, strict=True)]
    low, high = (None if end is None else 1e6 / end for end in (per_sample.high, per_sample.low))
    # The bare step is split in proportion to the marked phases: what marking adds is in none of them.
    marked_ms = {
        name: statistics.median(statistics.fmean(record.phases_ms[name]) for record in records)
        for name in first.phases_ms
    }
    marked_step_ms = sum(marked_ms.values())
    return CostSummary(
        mode=first.mode,
        batch_size=first.batch_size,
        num_processes=len(records),
        num_steps=sum(len(record.step_ms) for record in records),
        num_warmup_steps=max(len(record.warmup_ms) for record in records),
        num_turns=sum(len(record.turns) for record in records),
        num_set_aside=sum(len(r.turns) - len(r.quiet_turns()) for r in records if r.turns),
        step_ms=step,
        low_step_ms=statistics.median(_quantile(steps, 0.1) for steps in ordered),
        p95_step_ms=statistics.median(_quantile(steps, 0.95) for steps in ordered),
        sample_us=per_sample,
        epoch_s=step.times(statistics.geometric_mean(epochs_s) / step.value),
        samples_per_s=Estimate(1e6 / per_sample.value, low, high),
        phases_ms={name: ms / marked_step_ms * step.value for name, ms in marked_ms.items()},
        first_step_ms=statistics.median((r.warmup_ms or r.step_ms)[0] for r in records),
        unstable=_instability(records, process_ms, step),
    )


def noises_of(
    settings: Iterable[Mapping[str, CostRecord]], steps_ms: Mapping[str, float]
) -> dict[str, Noise]:
    """By the first trial of a setting; those of which the same benches measured a mode share theirs."""
    noises: dict[str, Noise] = {}
    together: dict[tuple[tuple[str, str], ...], list[Mapping[str, CostRecord]]] = {}
    for one in settings:
        together.setdefault(tuple((c.mode, c.bench) for c in one.values()), []).append(one)
    for cells in together.values():
        if len(cells[0]) >= FEWEST_PROCESSES:
            found = process_noise([[steps_ms[trial] for trial in timed] for timed in cells])
            noises |= zip(map(min, cells), found, strict=True)
    return noises


def process_noise(samples: Sequence[Sequence[float]]) -> list[Noise]:
    """Of each setting that the same benches measured: at least what they have on average, since three
    processes may agree by luck; its freedom is Satterthwaite's, with what a bench does to all alike."""
    logs = np.log(np.array(samples))
    own, freedom = logs.var(axis=1, ddof=1), logs.shape[1] - 1.0
    mean, shared = float(own.mean()), float(logs.mean(axis=0).var(ddof=1))
    squares = shared**2 + (mean - shared) ** 2 / max(len(logs) - 1, 1)
    pooled = mean, freedom * (mean**2 / squares if squares else 1.0)
    return [max(pooled, (variance, freedom)) for variance in own.tolist()]


def repeat_interval(samples: Sequence[float], noise: Noise | None = None) -> Estimate:
    """Geometric mean, and where the mean of as many fresh samples would fall in 95% of cases; without
    that below FEWEST_PROCESSES. `noise`: as pooled with other settings."""
    middle, count = statistics.fmean(map(math.log, samples)), len(samples)
    if count < FEWEST_PROCESSES:
        return Estimate(math.exp(middle))
    variance, freedom = noise or process_noise([samples])[0]
    # The error of this mean, and that of the next.
    half_width = float(special.stdtrit(freedom, 0.975)) * math.sqrt(2 * variance / count)
    return Estimate(*(math.exp(log) for log in (middle, middle - half_width, middle + half_width)))


def epoch_s_of(record: CostRecord, step_ms: float) -> float:
    """What an epoch's steps add up to where each takes `step_ms`, the smaller last one as measured."""
    num_full, rest = divmod(record.num_samples, record.batch_size)
    if not rest:
        return num_full * step_ms / 1e3
    # Runs from before it was measured: in proportion, which is a little less than it takes.
    in_proportion = step_ms * rest / record.batch_size
    last_ms = statistics.median(record.last_ms) if record.last_ms else in_proportion
    return (num_full * step_ms + last_ms) / 1e3


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _instability(
    records: Sequence[CostRecord], process_ms: Sequence[float], step: Estimate
) -> Instability | None:
    """By the interval that is shown; None without one: what it would be when repeated is not known. The
    likeliest reason counts; at last, that processes differ, which needs no cause that can be seen."""
    if step.high is None or (off_by := step.high / step.value - 1) <= STEP_LIMIT:
        return None
    stolen = max(record.load.stolen_cores for record in records)
    others = max(record.load.others_cores for record in records)
    # The last third of the steps beside the first.
    thirds = [(r.step_ms, max(1, len(r.step_ms) // 3)) for r in records]
    drifts = [statistics.median(s[-n:]) / statistics.median(s[:n]) - 1 for s, n in thirds]
    if others > max(OTHERS_LIMIT_CORES, stolen):
        return Instability(off_by, "others_busy", others)
    if stolen > STOLEN_LIMIT_CORES:
        return Instability(off_by, "stolen", stolen)
    # What all processes do is theirs, and passes; what some do is the machine's.
    if abs(drift := statistics.median(drifts)) > DRIFT_LIMIT:
        return Instability(off_by, "steps_drift", drift)
    if (change := max(map(abs, drifts))) > DRIFT_LIMIT:
        return Instability(off_by, "speed_varies", change)
    return Instability(off_by, "processes_differ", max(process_ms) / min(process_ms) - 1)


def times_us(measurement: Measurement) -> list[float]:
    """Per sample, of each process."""
    return [1e3 * step_ms / measurement.summary.batch_size for step_ms in measurement.process_ms]


def energies_mj(measurement: Measurement) -> list[float]:
    """Per sample, of each process; NaN where nothing counted it."""
    return [cost.sample_mj or math.nan for cost in measurement.costs]


def figures_of(
    measured: Sequence[Measurement], per_sample: Callable[[Measurement], list[float]] = times_us
) -> Floats:
    """Logs of µs per sample or of another cost, a row per measurement and a column per bench; NaN where one
    has none. Runs from before turns have processes instead of benches, in the order they ran."""
    benches = dict.fromkeys(bench for measurement in measured for bench in measurement.benches)
    columns = {bench: column for column, bench in enumerate(benches)}
    figures = np.full((len(measured), len(columns)), math.nan)
    for row, measurement in enumerate(measured):
        for bench, cost in zip(measurement.benches, per_sample(measurement), strict=True):
            figures[row, columns[bench]] = math.log(cost)
    return figures


def measured_twice(measured: Sequence[Measurement]) -> list[Pair]:
    """The rows of A/A pairs, the first of each pair first."""
    rows = {(m.trial.cell, m.is_trained, m.trial.again): row for row, m in enumerate(measured)}
    return [
        (rows[cell, is_trained, False], row)
        for (cell, is_trained, again), row in rows.items()
        if again and (cell, is_trained, False) in rows
    ]
