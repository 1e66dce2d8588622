"""What probes show: gradients that vanish, explode or pile up, dead units, updates out of proportion.

A finding is told only where its whole interval lies beyond the bound; with one seed there is none.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.probes import Probed, per_element, per_step_norm
from trainlab.record.probe import target_name
from trainlab.stats.means import Interval, exp_interval, mean_of
from trainlab.words import Words

GRADIENTS = ("grad_output", "grad_input", "grad")
NORMS = ("sq_sum", "norm")
VANISHED, EXPLODED = 1e-3, 1e3
"""A layer's gradient over that of the last layer, both per element."""
GROWN = 100.0
"""A gradient over what it was in the first period."""
MANY_DEAD = 0.1
"""The share of dead units from which on it is told."""
HEALTHY = (1e-4, 1e-2)
"""The norm of an update over that of the weight: outside, learning is slow or unsteady."""
FEWEST_POINTS = 3
"""Without which no growth is fitted."""


@dataclass(frozen=True, kw_only=True)
class OfProbe(Finding):
    """Something a probe shows at one layer of one cell; the layer is its subject."""

    section = "probes"

    probe: str


@dataclass(frozen=True, kw_only=True)
class VanishingGradient(OfProbe):
    """A layer whose gradient is far smaller than that of the last layer of the same probe."""

    kind = "vanishing_gradient"
    text = "gradient_vanishes"
    rank = 4

    ratio: float
    compared_with: str


@dataclass(frozen=True, kw_only=True)
class ExplodingGradient(OfProbe):
    """A layer whose gradient is far larger than that of the last layer of the same probe."""

    kind = "exploding_gradient"
    text = "gradient_explodes"
    rank = 5

    ratio: float
    compared_with: str


@dataclass(frozen=True, kw_only=True)
class GrowingGradient(OfProbe):
    """A gradient that grew a hundredfold while training."""

    kind = "growing_gradient"
    text = "gradient_grew"
    rank = 5

    ratio: float


@dataclass(frozen=True, kw_only=True)
class BrokenGradient(OfProbe):
    """A gradient that was not finite."""

    kind = "broken_gradient"
    text = "gradient_not_finite"
    rank = 5

    num_not_finite: int
    median_step: float


@dataclass(frozen=True, kw_only=True)
class Accumulation(OfProbe):
    """How gradients grow that are never reset."""

    kind = "accumulation"
    text = "gradient_accumulates"
    rank = 3

    exponent: float
    times: float
    first_step: float
    last_step: float


@dataclass(frozen=True, kw_only=True)
class DeadUnits(OfProbe):
    """A layer many of whose units never fired in the last period."""

    kind = "dead_units"
    text = "units_dead"
    rank = 6

    share: float
    epoch: int


@dataclass(frozen=True, kw_only=True)
class UpdateRatio(OfProbe):
    """A parameter whose updates are out of proportion to itself, in the last period."""

    kind = "update_ratio"

    ratio: float
    side: Literal["above", "below"]
    healthy_low: float = HEALTHY[0]
    healthy_high: float = HEALTHY[1]

    def tell(self, words: Words) -> str:
        return self.fill(words, f"update_{self.side}")


def probe_findings(trials: Sequence[Probed]) -> Iterator[Finding]:
    """Vanishing and exploding gradients, accumulation, dead units, updates out of proportion."""
    cells: dict[str, list[Probed]] = {}
    for one in trials:
        cells.setdefault(one.trial.cell, []).append(one)
    for cell, group in cells.items():
        yield from _broken(cell, group)
        if _resets(group):
            yield from _depth(cell, group)
            yield from _grown(cell, group)
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


def _watched(group: Sequence[Probed], quantities: Sequence[str]) -> list[tuple[str, str, int]]:
    """Probe, target and depth of everything watched with a norm, in the order of depth."""
    places = {
        (row.probe, target_name(row.layer, row.call)): row.place
        for one in group
        for row in one.rows
    }
    found = {
        (line.probe, line.target): places.get((line.probe, line.target), 0)
        for one in group
        for line in one.lines
        if line.quantity in quantities and line.reducer in NORMS
    }
    return sorted(((*key, place) for key, place in found.items()), key=lambda one: (one[0], one[2]))


def _resets(group: Sequence[Probed]) -> bool:
    return all(one.trial.settings.get("zero_grad", True) for one in group)


def _geometric(values: Sequence[float]) -> tuple[float, Interval | None, int] | None:
    """Mean on the log scale with its interval; None where no value is positive."""
    found = mean_of([math.log(v) for v in values if v > 0 and math.isfinite(v)])
    if found is None:
        return None
    interval = found.interval and exp_interval(found.interval)
    return math.exp(found.value), interval, found.n


def _ends(value: float, interval: Interval | None) -> tuple[float, float]:
    """What must lie beyond a bound for it to be told: the whole interval, where there is one."""
    return (interval.low, interval.high) if interval is not None else (value, value)


def _broken(cell: str, group: Sequence[Probed]) -> Iterator[Finding]:
    for probe, target, _ in _watched(group, GRADIENTS):
        series = [[x for x in one.lines if (x.probe, x.target) == (probe, target)] for one in group]
        bad = [[x.step for x in lines if x.not_finite] for lines in series]
        firsts = [steps[0] for steps in bad if steps]
        if firsts:
            yield BrokenGradient(
                subject=target,
                cells=(cell,),
                probe=probe,
                num_not_finite=len(firsts),
                median_step=statistics.median(firsts),
                n=len(group),
            )


def _depth(cell: str, group: Sequence[Probed]) -> Iterator[Finding]:
    watched = _watched(group, GRADIENTS)
    for probe in dict.fromkeys(probe for probe, _, _ in watched):
        *earlier, last = [target for one, target, _ in watched if one == probe]
        for target in earlier:
            both = [(one.last(probe, target), one.last(probe, last)) for one in group]
            ratios = [per_element(a) / per_element(b) for a, b in both if a and b and b.value]
            all_zero = (0.0, None, len(ratios)) if ratios and not any(ratios) else None
            if (found := _geometric(ratios) or all_zero) is None:
                continue
            ratio, interval, n = found
            low, high = _ends(ratio, interval)
            if high < VANISHED or low > EXPLODED:
                yield (VanishingGradient if high < VANISHED else ExplodingGradient)(
                    subject=target,
                    cells=(cell,),
                    probe=probe,
                    ratio=ratio,
                    compared_with=last,
                    n=n,
                    interval=interval,
                )


def _grown(cell: str, group: Sequence[Probed]) -> Iterator[Finding]:
    for probe, target, _ in _watched(group, GRADIENTS):
        lines = [[x for x in o.lines if (x.probe, x.target) == (probe, target)] for o in group]
        firsts = [(x[0], x[-1]) for x in lines if len(x) > 1 and x[0].value and x[-1].value]
        found = _geometric([per_step_norm(b) / per_step_norm(a) for a, b in firsts])
        if found is not None and _ends(found[0], found[1])[0] > GROWN:
            ratio, interval, n = found
            yield GrowingGradient(
                subject=target, cells=(cell,), probe=probe, ratio=ratio, n=n, interval=interval
            )


def _accumulation(cell: str, group: Sequence[Probed]) -> Iterator[Finding]:
    for probe, target, _ in _watched(group, ("grad",)):
        series = [
            [
                (float(x.step), per_step_norm(x))
                for x in one.lines
                if (x.probe, x.target) == (probe, target) and x.value
            ]
            for one in group
        ]
        exponents = [slope for points in series if (slope := growth_exponent(points)) is not None]
        growth, known = mean_of(exponents), [points for points in series if len(points) > 1]
        times = _geometric([points[-1][1] / points[0][1] for points in known])
        if growth is not None and times is not None:
            yield Accumulation(
                subject=target,
                cells=(cell,),
                probe=probe,
                exponent=growth.value,
                times=times[0],
                first_step=known[0][0][0],
                last_step=known[0][-1][0],
                n=growth.n,
                interval=growth.interval,
            )


def _dead(cell: str, group: Sequence[Probed]) -> Iterator[Finding]:
    names = {
        (line.probe, line.target): None
        for one in group
        for line in one.lines
        if line.reducer == "dead_fraction"
    }
    for probe, target in names:
        last = [line for one in group if (line := one.last(probe, target)) is not None]
        found = mean_of([line.value for line in last if line.value is not None])
        if found is not None and _ends(found.value, found.interval)[0] >= MANY_DEAD:
            yield DeadUnits(
                subject=target,
                cells=(cell,),
                probe=probe,
                share=found.value,
                epoch=last[0].epoch,
                n=found.n,
                interval=found.interval,
            )


def _updates(cell: str, group: Sequence[Probed]) -> Iterator[Finding]:
    weights = {target: probe for probe, target, _ in _watched(group, ("weight",))}
    for probe, target, _ in _watched(group, ("update",)):
        if target not in weights:
            continue
        both = [(one.last(probe, target), one.last(weights[target], target)) for one in group]
        ratios = [per_step_norm(a) / per_step_norm(b) for a, b in both if a and b and b.value]
        if (found := _geometric(ratios)) is None:
            continue
        ratio, interval, n = found
        low, high = _ends(ratio, interval)
        if high < HEALTHY[0] or low > HEALTHY[1]:
            yield UpdateRatio(
                subject=target,
                cells=(cell,),
                probe=probe,
                ratio=ratio,
                side="below" if high < HEALTHY[0] else "above",
                n=n,
                interval=interval,
            )
