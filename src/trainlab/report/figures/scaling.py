"""Scaling: time per batch by batch size, measured and as the line fitted to it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainlab.analysis.charts import (
    Spec,
    band_and_line,
    chart,
    colour,
    cut_band,
    of_kind,
    quantity,
    tooltip,
)
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.scaling import BatchSeries, batch_series
from trainlab.stats.scaling import Fitted
from trainlab.words import Words


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


def scaling_chart(lines: Sequence[ScalingLine], words: Words) -> Spec:
    """Measured times, and the line fitted to them with its band."""
    labels = [line.label or words("fitted") for line in lines]
    times = [time for line in lines for _, _, time in line.measured]
    floor, ceiling = min(times) / 3, max(times) * 3
    rows = [
        row
        for line, label in zip(lines, labels, strict=True)
        for row in _scaling_rows(line, label, floor, ceiling)
    ]
    sizes = sorted({size for line in lines for _, size, _ in line.measured})
    ends = [min(sizes) / 1.2, max(sizes) * 1.2]
    x_scale = {"type": "log", "base": 2, "nice": False, "domain": ends}
    y_scale = {"type": "log", "domain": [floor, ceiling], "nice": False}
    x = quantity("x", words("batch_size"), scale=x_scale, axis={"values": sizes})
    y = quantity("y", words("step_ms"), scale=y_scale)
    hover = [
        ("cell", words("cell"), None),
        ("x", words("batch_size"), None),
        ("y", words("step_ms"), ",.4~r"),
    ]
    hue = colour("series", labels, None)
    layers = [
        *band_and_line(rows, x, y, hue, zoomed=["x", "y"], filters=[of_kind("fitted")]),
        {
            "transform": [of_kind("measured")],
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": hue, "tooltip": tooltip(hover)},
        },
    ]
    return chart(rows, layers, 260)


def _scaling_rows(line: ScalingLine, label: str, floor: float, ceiling: float) -> Iterator[Spec]:
    for cell, size, time in line.measured:
        yield {"cell": cell, "series": label, "kind": "measured", "x": size, "y": time}
    for size, fit in line.fitted:
        row = {"cell": "", "series": label, "kind": "fitted", "x": size, "y": fit.value}
        if fit.interval is not None:
            row |= cut_band(fit.interval.low, fit.interval.high, floor, ceiling)
        yield row
