"""Scaling: time per batch by batch size, measured and as the line fitted to it."""

from dataclasses import dataclass

import numpy as np

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.scaling import BatchSeries, batch_series
from trainlab.stats.scaling import Fitted


@dataclass(frozen=True)
class ScalingLine:
    """Time per batch by batch size: measured, and the line fitted to it."""

    measured: tuple[tuple[str, int, float], ...]
    """Cell, batch size, milliseconds."""
    fitted: tuple[tuple[int, Fitted], ...]
    """Batch size, milliseconds."""
    label: str
    """The settings the cells share; empty where there is one series."""


def scaling_lines(evidence: Evidence, mode: str) -> tuple[ScalingLine, ...]:
    """One per set of cells that differ by batch size alone."""
    all_series = batch_series(evidence, mode)
    return tuple(_line(series, len(all_series) > 1) for series in all_series)


def _line(series: BatchSeries, is_labelled: bool) -> ScalingLine:
    times = {size: m.summary.step_ms.value for size, m in series.by_size.items()}
    fit = series.fit()
    sizes = sorted({round(size) for size in np.geomspace(min(times), max(times), 25)})
    shared = [part for part in series.cells[0].split(",") if not part.startswith("batch_size=")]
    return ScalingLine(
        measured=tuple((m.trial.cell, size, times[size]) for size, m in series.by_size.items()),
        fitted=tuple((size, fit.predict(size)) for size in sizes),
        label=",".join(shared) if is_labelled else "",
    )
