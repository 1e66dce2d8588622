"""What probes show: gradients that vanish, explode or pile up, dead units, updates out of proportion.

A finding is told only where its whole interval lies beyond the bound; with one seed there is none.
"""

import math
import statistics
from collections.abc import Iterator, Sequence

from trainlab.analyse.findings.finding import Finding, Kind, Number
from trainlab.analyse.probes import Probed, per_element, per_step_norm
from trainlab.record.probe import target_name
from trainlab.stats.means import Interval, exp_interval, mean_of

GRADIENTS = ("grad_output", "grad_input", "grad")
NORMS = ("sq_sum", "norm")
FIRST_PERIOD = "its first period"
"""What a gradient that grew is compared with, in place of a layer."""
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


def _targets(group: Sequence[Probed], quantities: Sequence[str]) -> list[tuple[str, str, int]]:
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


def _finding(
    kind: Kind, subject: str, cell: str, n: int, interval: Interval | None, **numbers: Number
) -> Finding:
    return Finding(kind, subject, (cell,), numbers, n, interval=interval)


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
    """Gradients that were not finite."""
    for probe, target, _ in _targets(group, GRADIENTS):
        bad = [
            next(line.step for line in lines if line.not_finite)
            for one in group
            if (lines := [x for x in one.lines if (x.probe, x.target) == (probe, target)])
            and any(line.not_finite for line in lines)
        ]
        if bad:
            median = statistics.median(bad)
            numbers = {"num_not_finite": len(bad), "median_step": median}
            yield _finding(
                "exploding_gradient", target, cell, len(group), None, probe=probe, **numbers
            )


def _depth(cell: str, group: Sequence[Probed]) -> Iterator[Finding]:
    """Layers whose gradient is out of proportion to that of the last layer of the same probe."""
    watched = _targets(group, GRADIENTS)
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
            kind: Kind = "vanishing_gradient" if high < VANISHED else "exploding_gradient"
            if high < VANISHED or low > EXPLODED:
                yield _finding(
                    kind, target, cell, n, interval, probe=probe, ratio=ratio, compared_with=last
                )


def _grown(cell: str, group: Sequence[Probed]) -> Iterator[Finding]:
    """Gradients that grew a hundredfold while training."""
    for probe, target, _ in _targets(group, GRADIENTS):
        lines = [[x for x in o.lines if (x.probe, x.target) == (probe, target)] for o in group]
        firsts = [(x[0], x[-1]) for x in lines if len(x) > 1 and x[0].value and x[-1].value]
        found = _geometric([per_step_norm(b) / per_step_norm(a) for a, b in firsts])
        if found is not None and _ends(found[0], found[1])[0] > GROWN:
            ratio, interval, n = found
            yield _finding(
                "exploding_gradient",
                target,
                cell,
                n,
                interval,
                probe=probe,
                ratio=ratio,
                compared_with=FIRST_PERIOD,
            )


def _accumulation(cell: str, group: Sequence[Probed]) -> Iterator[Finding]:
    """How gradients grow that are never reset."""
    for probe, target, _ in _targets(group, ("grad",)):
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
            yield _finding(
                "accumulation",
                target,
                cell,
                growth.n,
                growth.interval,
                probe=probe,
                exponent=growth.value,
                times=times[0],
                first_step=known[0][0][0],
                last_step=known[0][-1][0],
            )


def _dead(cell: str, group: Sequence[Probed]) -> Iterator[Finding]:
    """Layers many of whose units never fired in the last period."""
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
            numbers = {"share": found.value, "epoch": last[0].epoch}
            yield _finding(
                "dead_units", target, cell, found.n, found.interval, probe=probe, **numbers
            )


def _updates(cell: str, group: Sequence[Probed]) -> Iterator[Finding]:
    """Parameters whose updates are out of proportion to themselves, in the last period."""
    weights = {target: probe for probe, target, _ in _targets(group, ("weight",))}
    for probe, target, _ in _targets(group, ("update",)):
        if target not in weights:
            continue
        both = [(one.last(probe, target), one.last(weights[target], target)) for one in group]
        ratios = [per_step_norm(a) / per_step_norm(b) for a, b in both if a and b and b.value]
        if (found := _geometric(ratios)) is None:
            continue
        low, high = _ends(found[0], found[1])
        if high < HEALTHY[0] or low > HEALTHY[1]:
            yield _finding(
                "update_ratio",
                target,
                cell,
                found[2],
                found[1],
                probe=probe,
                ratio=found[0],
                side="below" if high < HEALTHY[0] else "above",
                healthy_low=HEALTHY[0],
                healthy_high=HEALTHY[1],
            )
