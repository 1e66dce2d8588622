"""Figures as values: what is drawn, computed from evidence. `charts` turns them into Vega-Lite."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainlab.analyse.cost import Estimate
from trainlab.analyse.cost_findings import MODES, Series, batch_series
from trainlab.analyse.measurement import Measurement
from trainlab.analyse.operators import outside_us, ranked
from trainlab.analyse.scaling import fit_batches
from trainlab.analyse.statistics import mean_of
from trainlab.report.material import MOST_LINES, Material
from trainlab.report.numbers import bare_operator

MOST_POINTS = 120
"""Of one curve; more are thinned out, the last is kept."""
MOST_CELLS = 40
"""Rows of one chart; the tables have them all."""
MOST_OPERATORS = 9
"""Operators told apart in a chart of shares; the rest is one part."""
REST = ""
"""The name of the part that is the rest."""
OUTSIDE = "outside"
"""The part of a step that no operator accounts for."""
MIB = 1 << 20


@dataclass(frozen=True)
class TrendPoint:
    """The mean over seeds at one moment of training, and its 95 % interval."""

    cell: str
    epoch: float
    """How many times the training set had been seen."""
    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Trend:
    """One metric over training, a curve per cell."""

    metric: str
    points: tuple[TrendPoint, ...]
    by_step: bool
    """Whether the points lie within epochs."""


@dataclass(frozen=True)
class Dot:
    """One figure of one cell with how well it is known."""

    cell: str
    mode: str | None
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Dots:
    """One figure over cells: `step_ms`, `peak_mib`, or a metric."""

    quantity: str
    dots: tuple[Dot, ...]
    singles: tuple[tuple[str, float], ...] = ()
    """Each seed's value, by cell."""
    num_left_out: int = 0
    """Cells beyond those drawn."""


@dataclass(frozen=True)
class Part:
    """One piece of one cell's bar."""

    cell: str
    name: str
    value: float
    """In the unit of the bars."""
    share: float


@dataclass(frozen=True)
class Bars:
    """Stacked bars, one per cell, whose parts add up to the whole."""

    mode: str
    names: tuple[str, ...]
    """The parts in the order of the stack."""
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class FitPoint:
    """The line through the measured sizes at one size."""

    batch_size: int
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Line:
    """Time per batch by batch size: measured, and the line fitted to it."""

    mode: str
    measured: tuple[tuple[str, int, float], ...]
    """Cell, batch size, milliseconds."""
    fitted: tuple[FitPoint, ...]
    label: str
    """What the cells share; empty where there is one series."""


@dataclass(frozen=True)
class FirstSteps:
    """The first steps of a process as multiples of a settled one."""

    mode: str
    points: tuple[tuple[str, int, float], ...]
    """Cell, step from 1, times as long as the median bare step; the median over processes."""


def trend(material: Material, metric: str) -> Trend | None:
    """None where no trial got to a first point. Within epochs where the curve has such points."""
    steps = {
        cell: [list(_step_points(material, cell, seed, metric)) for seed in seeds]
        for cell, seeds in material.steps.items()
    }
    by_step = any(points for seeds in steps.values() for points in seeds)
    if not by_step:
        steps = {
            cell: [
                [(float(line["epoch"]), line[metric]) for line in one.epochs if metric in line]
                for one in material.evidence.learned[cell].values()
            ]
            for cell in material.drawn
        }
    points = [point for cell, seeds in steps.items() for point in _averaged(cell, seeds)]
    return Trend(metric, tuple(points), by_step) if points else None


def _step_points(
    material: Material, cell: str, seed: int, metric: str
) -> Iterator[tuple[float, float | None]]:
    data = material.evidence.learned[cell][seed].trial.data
    if data is None or not data.num_train:
        return
    for line in material.steps[cell][seed]:
        if metric in line:
            yield line["samples"] / data.num_train, line[metric]


def _averaged(
    cell: str, seeds: Sequence[Sequence[tuple[float, float | None]]]
) -> Iterator[TrendPoint]:
    """Over the seeds that have a finite value at the same moment."""
    at: dict[float, list[float]] = {}
    for points in seeds:
        for epoch, value in points:
            if value is not None and math.isfinite(value):
                at.setdefault(epoch, []).append(value)
    for epoch in thinned(sorted(at)):
        mean = mean_of(at[epoch])
        if mean is not None:
            reach = mean.interval
            low, high = (None, None) if reach is None else (reach.low, reach.high)
            yield TrendPoint(cell, epoch, mean.value, low, high, mean.n)


def thinned(moments: Sequence[float], most: int = MOST_POINTS) -> list[float]:
    """Evenly, with the last one kept."""
    if len(moments) <= most:
        return list(moments)
    stride = math.ceil(len(moments) / most)
    return list(moments[len(moments) - 1 :: -stride])[::-1]


def metric_dots(material: Material, metric: str) -> Dots | None:
    """Where each cell ended, the mean over seeds and every seed."""
    evidence = material.evidence
    dots, singles = [], []
    for cell in evidence.cells:
        values = list(evidence.values(cell.id, metric).values())
        mean = mean_of(values)
        if mean is not None:
            reach = mean.interval
            low, high = (None, None) if reach is None else (reach.low, reach.high)
            dots.append(Dot(cell.id, None, mean.value, low, high))
            singles += [(cell.id, value) for value in values if math.isfinite(value)]
    if not dots:
        return None
    kept = dots[:MOST_CELLS]
    names = {dot.cell for dot in kept}
    return Dots(
        quantity=metric,
        dots=tuple(kept),
        singles=tuple(one for one in singles if one[0] in names),
        num_left_out=len(dots) - len(kept),
    )


def cost_dots(material: Material, quantity: str) -> Dots | None:
    """`step_ms`, `sample_us`, `epoch_s` or `samples_per_s` of every cell, by mode."""
    found = [(mode, one) for mode in MODES for one in material.measured(mode)]
    dots = []
    for mode, one in found:
        value: Estimate = getattr(one.summary, quantity)
        dots.append(Dot(one.trial.cell, mode, value.value, value.low, value.high))
    return _dots(quantity, dots)


def memory_dots(material: Material) -> Dots | None:
    """`peak_mib` of every cell, by mode."""
    return _dots(
        "peak_mib",
        [
            Dot(one.trial.cell, mode, one.memory.peak_bytes / MIB, None, None)
            for mode in MODES
            for one in material.measured(mode)
            if one.memory is not None
        ],
    )


def _dots(quantity: str, dots: Sequence[Dot]) -> Dots | None:
    if not dots:
        return None
    cells = list(dict.fromkeys(dot.cell for dot in dots))
    kept = set(cells[:MOST_CELLS])
    shown = tuple(dot for dot in dots if dot.cell in kept)
    return Dots(quantity, shown, num_left_out=len(cells) - len(kept))


def phase_bars(material: Material, mode: str) -> Bars | None:
    """Where the time of a step goes, in milliseconds."""
    found = material.measured(mode)[:MOST_CELLS]
    return _bars(mode, [(one.trial.cell, one.summary.phases_ms) for one in found])


def memory_bars(material: Material, mode: str) -> Bars | None:
    """What the memory at its peak holds, in MiB."""
    rows = [
        (one.trial.cell, memory_parts(one))
        for one in material.measured(mode)[:MOST_CELLS]
        if one.memory is not None
    ]
    return _bars(mode, rows)


def memory_parts(found: Measurement) -> dict[str, float]:
    """MiB of each kind alive at the peak; they add up to it."""
    assert found.memory is not None
    parts = {name: held / MIB for name, held in found.memory.at_peak.items() if held}
    return {**parts, "other": found.memory.other_bytes / MIB}


def operator_bars(material: Material, mode: str) -> Bars | None:
    """What share of a profiled step each operator takes, in per cent; the small ones together."""
    found = [one for one in material.measured(mode)[:MOST_CELLS] if one.operators is not None]
    shares = [(one.trial.cell, _operator_shares(one)) for one in found]
    most: dict[str, float] = {}
    for _, by_name in shares:
        for name, share in by_name.items():
            most[name] = max(share, most.get(name, 0.0))
    known = sorted((name for name in most if name != OUTSIDE), key=lambda name: -most[name])
    top = known[:MOST_OPERATORS]
    rows = []
    for cell, by_name in shares:
        parts = {name: by_name.get(name, 0.0) for name in top}
        parts[REST] = sum(v for name, v in by_name.items() if name not in (*top, OUTSIDE))
        if OUTSIDE in by_name:
            parts[OUTSIDE] = by_name[OUTSIDE]
        rows.append((cell, parts))
    return _bars(mode, rows)


def _operator_shares(found: Measurement) -> dict[str, float]:
    assert found.operators is not None
    shares: dict[str, float] = {}
    for one in ranked(found.operators):
        name = bare_operator(one.name)
        shares[name] = shares.get(name, 0.0) + 100 * one.share
    if not any(row.self_device_us for row in found.operators.rows):
        outside = outside_us(found.operators) / found.operators.profiled_step_us
        shares[OUTSIDE] = 100 * max(0.0, outside)
    return shares


def _bars(mode: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> Bars | None:
    names = tuple(dict.fromkeys(name for _, parts in rows for name in parts))
    found = [
        Part(cell, name, value, value / whole)
        for cell, parts in rows
        if (whole := sum(parts.values())) > 0
        for name, value in parts.items()
    ]
    return Bars(mode, names, tuple(found)) if found else None


def scaling_lines(material: Material, mode: str) -> tuple[Line, ...]:
    """One per set of cells that differ by batch size alone."""
    series = batch_series(material.evidence, mode)
    return tuple(_line(mode, one, len(series) > 1) for one in series)


def _line(mode: str, series: Series, is_named: bool) -> Line:
    times = {size: one.summary.step_ms.value for size, one in series.by_size.items()}
    fit = fit_batches(times)
    sizes = sorted({round(size) for size in np.geomspace(min(times), max(times), 25)})
    fitted = []
    for size in sizes:
        at = fit.predict(size)
        reach = at.interval
        low, high = (None, None) if reach is None else (reach.low, reach.high)
        fitted.append(FitPoint(size, at.value, low, high))
    rest = [part for part in series.cells[0].split(",") if not part.startswith("batch_size=")]
    return Line(
        mode=mode,
        measured=tuple((one.trial.cell, size, times[size]) for size, one in series.by_size.items()),
        fitted=tuple(fitted),
        label=",".join(rest) if is_named else "",
    )


def first_steps(material: Material, mode: str) -> FirstSteps | None:
    """From the warm-up steps of the timed processes."""
    points: list[tuple[str, int, float]] = []
    for one in material.measured(mode)[:MOST_LINES]:
        points += _first_steps(one)
    return FirstSteps(mode, tuple(points)) if points else None


def _first_steps(found: Measurement) -> Iterable[tuple[str, int, float]]:
    shortest = min(len(record.warmup_ms) for record in found.costs)
    for number in range(shortest):
        times = [
            record.warmup_ms[number] / statistics.median(record.step_ms) for record in found.costs
        ]
        yield found.trial.cell, number + 1, statistics.median(times)


def rows_of(values: Iterable[Any]) -> list[dict[str, Any]]:
    """Frozen values as plain rows for a chart."""
    return [dict(vars(value)) for value in values]
