"""Charts with lines: metrics over training, time by batch size, the first steps."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from trainlab.report.figures.curves import Curves, exploding
from trainlab.report.figures.first_steps import FirstSteps
from trainlab.report.figures.scaling import ScalingLine
from trainlab.report.figures.vega import (
    Spec,
    band_and_line,
    chart,
    colour,
    of_kind,
    quantity,
    scale_for,
    tooltip,
)
from trainlab.words import Words
from trainlab.words.numbers import is_share

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


def fitted_axis(rows: Sequence[Spec], *, room: float = 1.0, highest: float = math.inf) -> Spec:
    """Fits the means: intervals of few seeds, which may be far wider, must not flatten the curves. `room`
    multiplies its upper end."""
    means = [row["y"] for row in rows]
    lows = [row["low"] for row in rows if row["low"] is not None]
    highs = [row["high"] for row in rows if row["high"] is not None]
    axis = scale_for(means, fits_zero=False)
    if axis.get("type") == "log":
        bottom = max(min(means) / 3, min([low for low in lows if low > 0] + means))
        top = min(3 * max(means), max([*highs, *means]))
        return axis | {"domain": [bottom, room * top]}
    margin = 0.5 * (max(means) - min(means)) or 1.0
    bottom = max(min(means) - margin, min([*lows, min(means)]))
    top = min(max(means) + margin, max([*highs, max(means)])) * room
    if bottom == top:
        bottom, top = bottom - margin, top + margin
    top = min(top, highest)
    domain = [max(0.0, bottom) if min(means) >= 0 else bottom, top]
    return axis | {"domain": domain, "nice": True}


def add_bands(rows: Sequence[Spec], axis: Spec) -> None:
    """To curves whose median interval is at most a quarter of the axis: wider bands hide the rest."""
    bottom, top = axis["domain"]
    is_log = axis.get("type") == "log"

    def height(low: float, high: float) -> float:
        return math.log(high / low) if is_log else high - low

    heights: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["low"] is not None:
            is_finite = row["low"] > 0 or not is_log
            own = height(row["low"], row["high"]) if is_finite else math.inf
            heights[row["cell"], row["line"]].append(own)
    limit = height(bottom, top) / 4
    narrow = {curve for curve, own in heights.items() if statistics.median(own) <= limit}
    for row in rows:
        if (row["cell"], row["line"]) in narrow and row["low"] is not None:
            row.update(_band(row["low"], row["high"], bottom, top))


def _band(low: float, high: float, bottom: float, top: float) -> Spec:
    """The band at one x, cut where it leaves the chart."""
    return {"band_low": min(max(low, bottom), top), "band_high": min(max(high, bottom), top)}


def point_mark(rows: Sequence[Spec]) -> Spec:
    """Points are drawn where there are few; many are invisible and there only to hover over."""
    is_few = len(rows) / max(1, len({(row["cell"], row["line"]) for row in rows})) <= 30
    size, opacity = (34, 1) if is_few else (60, 0)
    return {"type": "point", "filled": True, "size": size, "opacity": opacity, "clip": True}


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
            row |= _band(fit.interval.low, fit.interval.high, floor, ceiling)
        yield row


def first_steps_chart(steps: FirstSteps, words: Words) -> Spec:
    """How many times as long as a settled step each of the first steps takes."""
    rows = [{"cell": cell, "x": step, "y": times} for cell, step, times in steps.points]
    cells = list(dict.fromkeys(cell for cell, _, _ in steps.points))
    axis = scale_for([times for _, _, times in steps.points], fits_zero=True)
    ticks = {"tickMinStep": 1, "format": "d"}
    hover = [
        ("cell", words("cell"), None),
        ("x", words("step_number"), None),
        ("y", words("times_settled"), ".3~r"),
    ]
    layer = {
        "mark": {"type": "line", "point": {"filled": True, "size": 34}, "strokeWidth": 2},
        "encoding": {
            "x": quantity("x", words("step_number"), axis=ticks, scale={"nice": False}),
            "y": quantity("y", words("times_settled"), scale=axis),
            "color": colour("cell", cells, words("cell")),
            "tooltip": tooltip(hover),
        },
    }
    return chart(rows, [layer], 220)
