"""What disturbed the measurements: times and ratios not known well, cells without any, slow trials."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainlab.analysis.contrast import Contrast
from trainlab.analysis.cost.summary import STEP_LIMIT
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.findings.finding import Finding
from trainlab.spec import CostSpec
from trainlab.stats.cost_ratio import CostComparison
from trainlab.words import Words

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
