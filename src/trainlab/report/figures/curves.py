"""Curves: metrics over training, the mean over seeds of each cell, from the curves of the trials."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainlab.analysis.charts import (
    Spec,
    add_bands,
    band_and_line,
    chart,
    colour,
    fitted_axis,
    point_mark,
    quantity,
    tooltip,
)
from trainlab.analysis.metrics import limits_of
from trainlab.analysis.run_data import RunData
from trainlab.spec.study import lower_is_better
from trainlab.stats.means import Interval, mean_of
from trainlab.words import Words
from trainlab.words.numbers import is_share

MOST_POINTS = 120
"""Points of one curve; a longer one is thinned out and keeps its last point."""


@dataclass(frozen=True)
class CurvePoint:
    """The mean over seeds at one moment of training, and its 95% interval."""

    cell: str
    epoch: float
    """How many times the training set had been seen, or the updates made."""
    mean: float
    low: float | None
    high: float | None
    n: int
    line: str = ""
    """Which curve of the cell it is on, where a cell has several."""


@dataclass(frozen=True)
class Curves:
    """One metric over training, a curve per cell, or several."""

    metric: str
    points: tuple[CurvePoint, ...]
    by_step: bool
    """Whether the points lie within epochs."""
    over_updates: bool = False
    """Whether they are counted in updates instead: no loader of a script tells what an epoch is."""
    num_each: int | None = None
    """Of a script: so many recorded updates of which a point is the mean."""

    def peaks(self) -> dict[str, float]:
        """The largest mean of each cell."""
        found: dict[str, float] = {}
        for point in self.points:
            found[point.cell] = max(point.mean, found.get(point.cell, point.mean))
        return found


RISES, FAR = 5.0, 100.0
"""A loss explodes that rises to so many times its first value and that of others, or lies so far above."""


def exploding(curves: Curves) -> tuple[str, ...]:
    """The cells of a loss that rise so far that the others could not be read beside them."""
    peaks = curves.peaks()
    if not lower_is_better(curves.metric) or min(peaks.values()) <= 0:
        return ()
    first: dict[str, float] = {}
    for point in curves.points:
        first.setdefault(point.cell, point.mean)
    usual = sorted(peaks.values())[(len(peaks) - 1) // 4]
    return tuple(
        cell
        for cell, peak in peaks.items()
        if peak > FAR * usual or peak > RISES * max(usual, first[cell])
    )


def metric_curves(data: RunData, metric: str) -> Curves | None:
    """By step where steps have the metric, else by epoch; None where no trial reached a first point."""
    is_script = data.evidence.study.script is not None
    over_updates = is_script and not _tells_samples(data)
    seed_curves = {
        cell: [
            list(_step_points(data, cell, seed, metric, over_updates=over_updates))
            for seed in seeds
        ]
        for cell, seeds in data.step_lines.items()
    }
    by_step = any(points for curves in seed_curves.values() for points in curves)
    num_each = None
    if is_script and by_step:
        longest = max(len(points) for curves in seed_curves.values() for points in curves)
        num_each = math.ceil(longest / MOST_POINTS)
        seed_curves = {
            cell: [[*_means(points, num_each)] for points in curves]
            for cell, curves in seed_curves.items()
        }
    if not by_step:
        seed_curves = {
            cell: [
                [(float(line["epoch"]), line[metric]) for line in trial.epochs if metric in line]
                for trial in data.evidence.learned[cell].values()
            ]
            for cell in data.drawn_cells
        }
    recorded = (value for curves in seed_curves.values() for one in curves for _, value in one)
    limits = limits_of(metric, (value for value in recorded if value is not None))
    points = [
        point for cell, curves in seed_curves.items() for point in _averaged(cell, curves, limits)
    ]
    if not points:
        return None
    return Curves(metric, tuple(points), by_step, over_updates and by_step, num_each)


def _tells_samples(data: RunData) -> bool:
    """Whether the loaders of a script tell how much data there is, in all settings that are drawn."""
    drawn = (one for cell in data.drawn_cells for one in data.evidence.learned[cell].values())
    return all(one.trial.resolved.get("train_samples") for one in drawn)


def _step_points(
    data: RunData, cell: str, seed: int, metric: str, *, over_updates: bool
) -> Iterator[tuple[float, float | None]]:
    trial = data.evidence.learned[cell][seed].trial
    known = trial.data.num_train if trial.data is not None else trial.resolved.get("train_samples")
    if not over_updates and not known:
        return
    for line in data.step_lines[cell][seed]:
        if metric in line:
            at = float(line["step"]) if over_updates else line["samples"] / known
            yield at, line[metric]


def _means(
    points: Sequence[tuple[float, float | None]], num_each: int
) -> Iterator[tuple[float, float | None]]:
    """Of so many points each, at the last of them: single batches differ more than training does."""
    for start in range(0, len(points), num_each):
        some = points[start : start + num_each]
        values = [value for _, value in some if value is not None]
        yield some[-1][0], math.fsum(values) / len(values) if values else None


def _averaged(
    cell: str, seed_curves: Sequence[Sequence[tuple[float, float | None]]], limits: Interval
) -> Iterator[CurvePoint]:
    """Over the seeds that have a finite value at the same moment."""
    values: dict[float, list[float]] = defaultdict(list)
    for points in seed_curves:
        for epoch, value in points:
            if value is not None and math.isfinite(value):
                values[epoch].append(value)
    for epoch in thinned(sorted(values)):
        mean = mean_of(values[epoch], limits)
        if mean is not None:
            yield CurvePoint(cell, epoch, mean.value, *mean.ends, mean.n)


def thinned(moments: Sequence[float], most: int = MOST_POINTS) -> list[float]:
    """At most so many of the moments, evenly spaced, with the last one kept."""
    if len(moments) <= most:
        return list(moments)
    stride = math.ceil(len(moments) / most)
    return list(moments[len(moments) - 1 :: -stride])[::-1]


ABOVE = 1.25
"""Of a chart that is cut above: room for the curves that leave it to be seen leaving."""


def curve_chart(curves: Curves, cells: Sequence[str], words: Words) -> Spec:
    """Curves over epochs, or updates, with the band of the interval over seeds."""
    x_title = words("updates" if curves.over_updates else "epochs_seen")
    rows = curve_rows(curves)
    axis = _curve_axis(curves, rows)
    add_bands(rows, axis)
    # Parts of an epoch only where there are few whole ones.
    is_short = curves.by_step and max((row["x"] for row in rows), default=0) < 2
    ticks: Spec = {"tickMinStep": 0.1 if is_short else 1, "tickCount": 6}
    if not curves.by_step:
        ticks |= _whole_epochs(rows)
    x = quantity("x", x_title, scale={"nice": False}, axis=ticks)
    y = quantity("y", words.metric_title(curves.metric), scale=axis)
    hover = [
        ("cell", words("cell"), None),
        ("x", x_title, ",.2~f"),
        ("y", words.metric_title(curves.metric), ".4~f"),
        ("low", words("interval_low"), ".4~f"),
        ("high", words("interval_high"), ".4~f"),
        ("n", words("seeds"), None),
    ]
    hue = colour("cell", cells, words("cell"))
    encoding = {"x": x, "y": y, "color": hue, "tooltip": tooltip(hover)}
    points = {"mark": point_mark(rows), "encoding": encoding}
    return chart(rows, [*band_and_line(rows, x, y, hue, zoomed=["x"]), points], 260)


def _whole_epochs(rows: Sequence[Spec]) -> Spec:
    """A tick at each epoch where there are few: of two or three, `tickMinStep` makes halves."""
    ends = [row["x"] for row in rows]
    epochs = range(math.ceil(min(ends)), math.floor(max(ends)) + 1) if ends else range(0)
    return {"values": list(epochs), "format": "d"} if 1 < len(epochs) <= 6 else {}


def curve_rows(curves: Curves) -> list[Spec]:
    """A row per point: where it is, its value and the ends of its interval."""
    scale = 100 if is_share(curves.metric) else 1
    return [
        {
            "cell": point.cell,
            "x": point.epoch,
            "y": scale * point.mean,
            "low": None if point.low is None else scale * point.low,
            "high": None if point.high is None else scale * point.high,
            "n": point.n,
            "line": point.line or None,
        }
        for point in curves.points
    ]


def _curve_axis(curves: Curves, rows: Sequence[Spec]) -> Spec:
    """Without those of a setting that explodes, which would flatten the others."""
    cut = exploding(curves)
    rows = [row for row in rows if row["cell"] not in cut]
    highest = 100.0 if is_share(curves.metric) else math.inf
    return fitted_axis(rows, room=ABOVE if cut else 1.0, highest=highest)
