"""Scaling: time per batch by batch size, measured and as the line fitted to it."""

from dataclasses import dataclass

import numpy as np

from trainlab.analyse.batch_series import BatchSeries, batch_series
from trainlab.analyse.evidence import Evidence
from trainlab.stats.scaling import fit_batches


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


def scaling_lines(evidence: Evidence, mode: str) -> tuple[Line, ...]:
    """One per set of cells that differ by batch size alone."""
    series = batch_series(evidence, mode)
    return tuple(_line(mode, one, len(series) > 1) for one in series)


def _line(mode: str, series: BatchSeries, is_named: bool) -> Line:
    times = {size: one.summary.step_ms.value for size, one in series.by_size.items()}
    fit = fit_batches(times)
    sizes = sorted({round(size) for size in np.geomspace(min(times), max(times), 25)})
    fitted = []
    for size in sizes:
        at = fit.predict(size)
        ends = (None, None) if at.interval is None else (at.interval.low, at.interval.high)
        fitted.append(FitPoint(size, at.value, *ends))
    rest = [part for part in series.cells[0].split(",") if not part.startswith("batch_size=")]
    return Line(
        mode=mode,
        measured=tuple((one.trial.cell, size, times[size]) for size, one in series.by_size.items()),
        fitted=tuple(fitted),
        label=",".join(rest) if is_named else "",
    )
