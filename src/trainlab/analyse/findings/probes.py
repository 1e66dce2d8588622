"""What probes show: gradients that vanish, explode or pile up, dead units, updates out of proportion.

There is a finding only if the whole interval lies beyond the bound; one seed has no interval, so its
value must.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.probes import ProbedTrial, per_element, per_step_norm
from trainlab.record.probe import target_name
from trainlab.stats.means import Interval, Mean, Ratio, mean_of, ratio_of_logs
from trainlab.words import Words

GRADIENTS = ("grad_output", "grad_input", "grad")
NORMS = ("sq_sum", "norm")
VANISHED, EXPLODED = 1e-3, 1e3
"""A layer's gradient over that of the last layer, both per element."""
GROWN = 100.0
"""A gradient over what it was in the first period."""
MANY_DEAD = 0.1
"""The smallest share of dead units that is a finding."""
HEALTHY = (1e-4, 1e-2)
"""The norm of an update over that of the weight: outside, learning is slow or unsteady."""
FEWEST_POINTS = 3
"""With fewer points no growth is fitted."""


@dataclass(frozen=True, kw_only=True)
class ProbeFinding(Finding):
    """A finding of a probe at one layer of one cell; the layer is its subject."""

    section = "probes"

    probe: str


@dataclass(frozen=True, kw_only=True)
class VanishingGradient(ProbeFinding):
    """A layer whose gradient is far smaller than that of the last layer of the same probe."""

    kind = "vanishing_gradient"
    text = "gradient_vanishes"
    rank = 4

    ratio: float
    compared_with: str


@dataclass(frozen=True, kw_only=True)
class ExplodingGradient(ProbeFinding):
    """A layer whose gradient is far larger than that of the last layer of the same probe."""

    kind = "exploding_gradient"
    text = "gradient_explodes"
    rank = 5

    ratio: float
    compared_with: str


@dataclass(frozen=True, kw_only=True)
class GrowingGradient(ProbeFinding):
    """A gradient that grew a hundredfold while training."""

    kind = "growing_gradient"
    text = "gradient_grew"
    rank = 5

    ratio: float


@dataclass(frozen=True, kw_only=True)
class BrokenGradient(ProbeFinding):
    """A gradient that was not finite."""

    kind = "broken_gradient"
    text = "gradient_not_finite"
    rank = 5

    num_not_finite: int
    median_step: float


@dataclass(frozen=True, kw_only=True)
class Accumulation(ProbeFinding):
    """How gradients that are never reset grow."""

    kind = "accumulation"
    text = "gradient_accumulates"
    rank = 3

    exponent: float
    times: float
    first_step: float
    last_step: float


@dataclass(frozen=True, kw_only=True)
class DeadUnits(ProbeFinding):
    """A layer many of whose units never fired in the last period."""

    kind = "dead_units"
    text = "units_dead"
    rank = 6

    share: float
    epoch: int


@dataclass(frozen=True, kw_only=True)
class UpdateRatio(ProbeFinding):
    """A parameter whose updates are out of proportion to itself, in the last period."""

    kind = "update_ratio"

    ratio: float
    side: Literal["above", "below"]
    healthy_low: float = HEALTHY[0]
    healthy_high: float = HEALTHY[1]

    def statement(self, words: Words) -> str:
        return self.fill(words, f"update_{self.side}")


def probe_findings(trials: Sequence[ProbedTrial]) -> Iterator[Finding]:
    """Vanishing and exploding gradients, accumulation, dead units, updates out of proportion."""
    cells: dict[str, list[ProbedTrial]] = {}
    for probed in trials:
        cells.setdefault(probed.trial.cell, []).append(probed)
    for cell, group in cells.items():
        yield from _broken(cell, group)
        if all(probed.trial.settings.get("zero_grad", True) for probed in group):
            yield from _depth(cell, group)
            yield from _growing(cell, group)
        else:
            yield from _accumulation(cell, group)
        yield from _dead(cell, group)
        yield from _updates(cell, group)


def growth_exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of log value over log step; None with fewer than FEWEST_POINTS positive values."""
    logs = [(math.log(x), math.log(y)) for x, y in points if y > 0 and math.isfinite(y)]
    if len(logs) < FEWEST_POINTS:
        return None
    return statistics.linear_regression([x for x, _ in logs], [y for _, y in logs]).slope


def _targets(group: Sequence[ProbedTrial], quantities: Sequence[str]) -> list[tuple[str, str]]:
    """Every probe that reduces one of these quantities to a norm, with each target, by depth."""
    depths = {
        (row.probe, target_name(row.layer, row.call)): row.place
        for probed in group
        for row in probed.rows
    }
    targets = dict.fromkeys(
        (line.probe, line.target)
        for probed in group
        for line in probed.lines
        if line.quantity in quantities and line.reducer in NORMS
    )
    return sorted(targets, key=lambda target: (target[0], depths.get(target, 0)))


def _geometric_mean(values: Sequence[float]) -> Ratio | None:
    """Of the positive values, with its interval; None where there are none."""
    logs = mean_of([math.log(value) for value in values if value > 0 and math.isfinite(value)])
    return None if logs is None else ratio_of_logs(logs.value, logs.interval, logs.n)


def _ends(estimate: Mean | Ratio) -> tuple[float, float]:
    """What must lie beyond a bound for a finding: the whole interval, or the value without one."""
    interval = estimate.interval or Interval(estimate.value, estimate.value)
    return interval.low, interval.high


def _shared_fields(cell: str, probe: str, target: str, estimate: Mean | Ratio) -> dict[str, Any]:
    """The fields shared by all findings that rest on an estimate over seeds."""
    fields = {"subject": target, "cells": (cell,), "probe": probe}
    return {**fields, "n": estimate.n, "interval": estimate.interval}


def _broken(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    for probe, target in _targets(group, GRADIENTS):
        steps = [
            [line.step for line in probed.series(probe, target) if line.not_finite]
            for probed in group
        ]
        first_steps = [of_trial[0] for of_trial in steps if of_trial]
        if first_steps:
            yield BrokenGradient(
                subject=target,
                cells=(cell,),
                probe=probe,
                num_not_finite=len(first_steps),
                median_step=statistics.median(first_steps),
                n=len(group),
            )


def _depth(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    targets = _targets(group, GRADIENTS)
    for probe in dict.fromkeys(probe for probe, _ in targets):
        *earlier, last = [target for of_probe, target in targets if of_probe == probe]
        for target in earlier:
            pairs = [(probed.last(probe, target), probed.last(probe, last)) for probed in group]
            ratios = [per_element(a) / per_element(b) for a, b in pairs if a and b and b.value]
            all_zero = Ratio(0.0, None, len(ratios)) if ratios and not any(ratios) else None
            if (ratio := _geometric_mean(ratios) or all_zero) is None:
                continue
            low, high = _ends(ratio)
            if high < VANISHED or low > EXPLODED:
                yield (VanishingGradient if high < VANISHED else ExplodingGradient)(
                    ratio=ratio.value,
                    compared_with=last,
                    **_shared_fields(cell, probe, target, ratio),
                )


def _growing(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    for probe, target in _targets(group, GRADIENTS):
        all_series = [probed.series(probe, target) for probed in group]
        ends = [(lines[0], lines[-1]) for lines in all_series if len(lines) > 1]
        norms = [(per_step_norm(a), per_step_norm(b)) for a, b in ends if a.value and b.value]
        ratio = _geometric_mean([last / first for first, last in norms])
        if ratio is not None and _ends(ratio)[0] > GROWN:
            yield GrowingGradient(ratio=ratio.value, **_shared_fields(cell, probe, target, ratio))


def _accumulation(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    for probe, target in _targets(group, ("grad",)):
        curves = [
            [(float(x.step), per_step_norm(x)) for x in probed.series(probe, target) if x.value]
            for probed in group
        ]
        slopes = (growth_exponent(points) for points in curves)
        exponent = mean_of([slope for slope in slopes if slope is not None])
        longer = [points for points in curves if len(points) > 1]
        times = _geometric_mean([points[-1][1] / points[0][1] for points in longer])
        if exponent is not None and times is not None:
            yield Accumulation(
                exponent=exponent.value,
                times=times.value,
                first_step=longer[0][0][0],
                last_step=longer[0][-1][0],
                **_shared_fields(cell, probe, target, exponent),
            )


def _dead(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    targets = dict.fromkeys(
        (line.probe, line.target)
        for probed in group
        for line in probed.lines
        if line.reducer == "dead_fraction"
    )
    for probe, target in targets:
        last = [line for probed in group if (line := probed.last(probe, target)) is not None]
        share = mean_of([line.value for line in last if line.value is not None])
        if share is not None and _ends(share)[0] >= MANY_DEAD:
            yield DeadUnits(
                share=share.value,
                epoch=last[0].epoch,
                **_shared_fields(cell, probe, target, share),
            )


def _updates(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    weight_probes = {target: probe for probe, target in _targets(group, ("weight",))}
    for probe, target in _targets(group, ("update",)):
        if target not in weight_probes:
            continue
        update_and_weight = ((probe, target), (weight_probes[target], target))
        pairs = [[probed.last(*key) for key in update_and_weight] for probed in group]
        ratios = [per_step_norm(a) / per_step_norm(b) for a, b in pairs if a and b and b.value]
        if (ratio := _geometric_mean(ratios)) is None:
            continue
        low, high = _ends(ratio)
        if high < HEALTHY[0] or low > HEALTHY[1]:
            yield UpdateRatio(
                ratio=ratio.value,
                side="below" if high < HEALTHY[0] else "above",
                **_shared_fields(cell, probe, target, ratio),
            )
