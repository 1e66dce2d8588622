"""What probes show: gradients that vanish, explode or pile up, dead units, updates out of proportion.

There is a finding only if the whole interval lies beyond the bound; one seed has no interval, so its
value must.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainlab.analysis.finding import Finding
from trainlab.analysis.probes import (
    ProbedTrial,
    growth_exponent,
    middle_step,
    per_element,
    per_step_norm,
)
from trainlab.record.learning_record import FiredRecord, ProbeRecord
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
TABLES = ("Embedding", "EmbeddingBag")
"""Layers of whose weights a step reaches a few rows only: per element they are like no other."""
RECTIFIERS = ("relu", "relu6")
"""Functions whose units can die: below zero they give nothing and pass no gradient on."""


@dataclass(frozen=True, kw_only=True)
class ProbeFinding(Finding):
    """A finding of a probe at one layer of one cell; the layer is its subject."""

    section = "probes"

    probe: str


@dataclass(frozen=True, kw_only=True)
class RatioFinding(ProbeFinding):
    """One that rests on a geometric mean of ratios over seeds."""

    ratio: float
    num_zero: int
    """Seeds whose ratio is exactly zero, which no geometric mean can hold; 0 where all of them are."""

    def statement(self, words: Words) -> str:
        text = self.fill(words, self._text)
        return words.sentences(text, self.fill(words, "zeros_apart")) if self.num_zero else text

    @property
    def _text(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class VanishingGradient(RatioFinding):
    """A layer whose gradient is far smaller than that of the last layer of the same probe."""

    kind = "vanishing_gradient"
    text = "gradient_vanishes"
    rank = 4

    compared_with: str


@dataclass(frozen=True, kw_only=True)
class ExplodingGradient(RatioFinding):
    """A layer whose gradient is far larger than that of the last layer of the same probe."""

    kind = "exploding_gradient"
    text = "gradient_explodes"
    rank = 5

    compared_with: str


@dataclass(frozen=True, kw_only=True)
class GrowingGradient(RatioFinding):
    """A gradient that grew a hundredfold while training."""

    kind = "growing_gradient"
    text = "gradient_grew"
    rank = 5


@dataclass(frozen=True, kw_only=True)
class BrokenGradient(ProbeFinding):
    """A gradient that was not finite."""

    kind = "broken_gradient"
    text = "gradient_not_finite"
    rank = 5

    num_not_finite: int
    median_step: float
    """The end of the first period with such a value: it came up then or before."""


@dataclass(frozen=True, kw_only=True)
class Accumulation(ProbeFinding):
    """How gradients that are never reset grow."""

    kind = "accumulation"
    text = "gradient_accumulates"
    rank = 3

    exponent: float
    times: float
    first_step: float
    """The middle of the first period; likewise of the last."""
    last_step: float


@dataclass(frozen=True, kw_only=True)
class DeadUnits(ProbeFinding):
    """A layer many of whose units never fired in the last period."""

    kind = "dead_units"
    text = "units_dead"
    rank = 6

    share: float
    every: str
    """As the probe was asked for: `epoch`, `step` or a number of steps."""
    epoch: int
    first_step: int
    """The first update of the period, and its last."""
    last_step: int

    def statement(self, words: Words) -> str:
        if self.every == "epoch":
            period = self.fill(words, "in_epoch")
        elif self.first_step == self.last_step:
            period = self.fill(words, "in_update")
        else:
            period = self.fill(words, "in_updates")
        return self.fill(words, self.text, period=period)


@dataclass(frozen=True, kw_only=True)
class UpdateRatio(RatioFinding):
    """A weight whose updates are out of proportion to itself, in the last period."""

    kind = "update_ratio"

    side: Literal["above", "below"]
    healthy_low: float = HEALTHY[0]
    healthy_high: float = HEALTHY[1]

    @property
    def _text(self) -> str:
        return "update_above" if self.side == "above" else "update_below"


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


def _targets(
    group: Sequence[ProbedTrial],
    quantities: Sequence[str],
    is_meant: Callable[[FiredRecord], bool] = lambda row: True,
) -> list[tuple[str, str]]:
    """Every probe that reduces one of these quantities to a norm, with each target, by depth."""
    rows = {(row.probe, row.target): row for probed in group for row in probed.rows}
    targets = dict.fromkeys(
        (line.probe, line.target)
        for probed in group
        for line in probed.lines
        if line.quantity in quantities and line.reducer in NORMS
    )
    meant = [target for target in targets if target not in rows or is_meant(rows[target])]
    return sorted(meant, key=lambda key: (key[0], rows[key].place if key in rows else 0))


def _is_weight(row: FiredRecord) -> bool:
    """Whether it may be compared by size: a weight of a layer, or what flows between layers.

    Not a bias or the scale of a normalisation, which begin at 0 or 1: a bias before batch normalisation
    has no gradient at all. Not a loss, a single number.
    """
    num_dimensions = max((len(shape) for shape in row.shapes), default=0)
    return num_dimensions >= (2 if row.kind == "parameter" else 1)


def _is_dense_weight(row: FiredRecord) -> bool:
    """One that every step reaches as a whole, and that does not begin at zero, as positions may."""
    is_named = row.kind != "parameter" or "weight" in row.layer.rpartition(".")[2]
    return _is_weight(row) and is_named and row.owner not in TABLES


def _geometric_mean(values: Sequence[float]) -> tuple[Ratio | None, int]:
    """Of the positive values with its interval, and how many are exactly zero; 0 where all are."""
    finite = [value for value in values if math.isfinite(value)]
    if finite and not any(finite):
        return Ratio(0.0, None, len(finite)), 0
    logs = mean_of([math.log(value) for value in finite if value > 0])
    ratio = None if logs is None else ratio_of_logs(logs.value, logs.interval, logs.n)
    return ratio, finite.count(0.0)


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
    targets = _targets(group, GRADIENTS, _is_dense_weight)
    for probe in dict.fromkeys(probe for probe, _ in targets):
        *earlier, last = [target for of_probe, target in targets if of_probe == probe]
        for target in earlier:
            pairs = [(probed.last(probe, target), probed.last(probe, last)) for probed in group]
            ratios = [per_element(a) / per_element(b) for a, b in pairs if a and b and b.value]
            ratio, num_zero = _geometric_mean(ratios)
            if ratio is None:
                continue
            low, high = _ends(ratio)
            if high < VANISHED or low > EXPLODED:
                yield (VanishingGradient if high < VANISHED else ExplodingGradient)(
                    ratio=ratio.value,
                    num_zero=num_zero,
                    compared_with=last,
                    **_shared_fields(cell, probe, target, ratio),
                )


def _growing(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    for probe, target in _targets(group, GRADIENTS, _is_weight):
        all_series = [probed.series(probe, target) for probed in group]
        ends = [(lines[0], lines[-1]) for lines in all_series if len(lines) > 1]
        ratios = [per_step_norm(last) / per_step_norm(first) for first, last in ends if first.value]
        ratio, num_zero = _geometric_mean(ratios)
        if ratio is not None and _ends(ratio)[0] > GROWN:
            shared = _shared_fields(cell, probe, target, ratio)
            yield GrowingGradient(ratio=ratio.value, num_zero=num_zero, **shared)


def _accumulation(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    for probe, target in _targets(group, ("grad",), _is_weight):
        # A period without any gradient has no place on a curve of powers.
        curves = [[x for x in probed.series(probe, target) if x.value] for probed in group]
        slopes = (growth_exponent(lines) for lines in curves)
        exponent = mean_of([slope for slope in slopes if slope is not None])
        longer = [lines for lines in curves if len(lines) > 1]
        times, _ = _geometric_mean([per_step_norm(x[-1]) / per_step_norm(x[0]) for x in longer])
        if exponent is not None and times is not None:
            yield Accumulation(
                exponent=exponent.value,
                times=times.value,
                first_step=middle_step(longer[0][0]),
                last_step=middle_step(longer[0][-1]),
                **_shared_fields(cell, probe, target, exponent),
            )


def _dead(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    rectified = {
        (row.probe, row.target)
        for probed in group
        for row in probed.rows
        if row.type.lower().rstrip("_") in RECTIFIERS
    }
    targets = dict.fromkeys(
        (line.probe, line.target)
        for probed in group
        for line in probed.lines
        if line.reducer == "dead_fraction" and (line.probe, line.target) in rectified
    )
    for probe, target in targets:
        last = _latest([line for probed in group if (line := probed.last(probe, target))])
        share = mean_of([line.value for line in last if line.value is not None])
        if share is not None and _ends(share)[0] >= MANY_DEAD:
            yield DeadUnits(
                share=share.value,
                every=last[0].every,
                epoch=last[0].epoch,
                first_step=last[0].step - last[0].num_steps + 1,
                last_step=last[0].step,
                **_shared_fields(cell, probe, target, share),
            )


def _latest(lines: Sequence[ProbeRecord]) -> list[ProbeRecord]:
    """Those of the latest period: a trial that ended early has none of it."""
    step = max((line.step for line in lines), default=0)
    return [line for line in lines if line.step == step]


def _updates(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    weights = _targets(group, ("weight",), _is_dense_weight)
    weight_probes = {target: probe for probe, target in weights}
    for probe, target in _targets(group, ("update",), _is_dense_weight):
        if target not in weight_probes:
            continue
        update_and_weight = ((probe, target), (weight_probes[target], target))
        pairs = [[probed.last(*key) for key in update_and_weight] for probed in group]
        ratios = [per_step_norm(a) / per_step_norm(b) for a, b in pairs if a and b and b.value]
        ratio, num_zero = _geometric_mean(ratios)
        if ratio is None:
            continue
        low, high = _ends(ratio)
        if high < HEALTHY[0] or low > HEALTHY[1]:
            yield UpdateRatio(
                ratio=ratio.value,
                num_zero=num_zero,
                side="below" if high < HEALTHY[0] else "above",
                **_shared_fields(cell, probe, target, ratio),
            )
