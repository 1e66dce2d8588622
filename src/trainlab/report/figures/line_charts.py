"""Charts with lines: metrics over training, time by batch size, the first steps."""

import math
import statistics
from collections.abc import Sequence

from trainlab.report.figures.curves import Curves
from trainlab.report.figures.first_steps import FirstSteps
from trainlab.report.figures.scaling import Line
from trainlab.report.figures.vega import Spec, band_and_line, chart, colour, scale_for, tooltip
from trainlab.words import Words
from trainlab.words.numbers import is_share


def curve_chart(
    trend: Curves, cells: Sequence[str], words: Words, *, x_title: str | None = None
) -> Spec:
    """Curves with the band of the interval over seeds; over epochs unless the axis is named."""
    across = words("epochs_seen") if x_title is None else x_title
    rows = _trend_rows(trend)
    axis = _trend_axis(trend, rows)
    _add_bands(rows, axis)
    x = {
        "field": "x",
        "type": "quantitative",
        "title": across,
        "scale": {"nice": False},
        "axis": {"tickMinStep": 0.1 if trend.by_step else 1, "tickCount": 6},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "title": f"{trend.metric} (%)" if is_share(trend.metric) else trend.metric,
        "scale": axis,
    }
    hover = [
        ("cell", words("cell"), None),
        ("x", across, ",.2~f"),
        ("y", trend.metric, ".4~f"),
        ("low", words("interval_low"), ".4~f"),
        ("high", words("interval_high"), ".4~f"),
        ("n", words("seeds"), None),
    ]
    hue = colour("cell", cells, words("cell"))
    encoding = {"x": x, "y": y, "color": hue, "tooltip": tooltip(hover)}
    points = {"mark": _points(rows), "encoding": encoding}
    return chart(rows, [*band_and_line(rows, x, y, hue, zoomed=["x"]), points], 260)


def _trend_rows(trend: Curves) -> list[Spec]:
    scale = 100 if is_share(trend.metric) else 1
    return [
        {
            "cell": point.cell,
            "x": point.epoch,
            "y": scale * point.mean,
            "low": None if point.low is None else scale * point.low,
            "high": None if point.high is None else scale * point.high,
            "n": point.n,
        }
        for point in trend.points
    ]


def _trend_axis(trend: Curves, rows: Sequence[Spec]) -> Spec:
    """Intervals of few seeds may be wider than all curves together: they must not flatten them."""
    means = [row["y"] for row in rows]
    lows = [row["low"] for row in rows if row["low"] is not None]
    highs = [row["high"] for row in rows if row["high"] is not None]
    axis = scale_for(means, fits_zero=False)
    if axis.get("type") == "log":
        bottom = max(min(means) / 3, min([low for low in lows if low > 0] + means))
        return axis | {"domain": [bottom, min(3 * max(means), max([*highs, *means]))]}
    margin = 0.5 * (max(means) - min(means)) or 1.0
    bottom = max(min(means) - margin, min([*lows, min(means)]))
    top = min(max(means) + margin, max([*highs, max(means)]))
    if bottom == top:
        bottom, top = bottom - margin, top + margin
    if is_share(trend.metric):
        top = min(top, 100.0)
    domain = [max(0.0, bottom) if min(means) >= 0 else bottom, top]
    return axis | {"domain": domain, "nice": True}


def _add_bands(rows: Sequence[Spec], axis: Spec) -> None:
    """To the curves whose intervals are mostly below a quarter of the chart: wider ones hide the rest."""
    bottom, top = axis["domain"]
    is_log = axis.get("type") == "log"

    def height(low: float, high: float) -> float:
        return math.log(high / low) if is_log else high - low

    widths: dict[str, list[float]] = {}
    for row in rows:
        if row["low"] is not None:
            known = row["low"] > 0 or not is_log
            width = height(row["low"], row["high"]) if known else math.inf
            widths.setdefault(row["cell"], []).append(width)
    narrow = {
        cell for cell, mine in widths.items() if 4 * statistics.median(mine) <= height(bottom, top)
    }
    for row in rows:
        if row["cell"] in narrow and row["low"] is not None:
            row["band_low"] = min(max(row["low"], bottom), top)
            row["band_high"] = min(max(row["high"], bottom), top)


def _points(rows: Sequence[Spec]) -> Spec:
    """Of many, none is drawn; they are there to hover over."""
    is_few = len(rows) / max(1, len({row["cell"] for row in rows})) <= 30
    size, opacity = (34, 1) if is_few else (60, 0)
    return {"type": "point", "filled": True, "size": size, "opacity": opacity, "clip": True}


def scaling_chart(lines: Sequence[Line], words: Words) -> Spec:
    """Measured times, and the line through them with its band."""
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
    x = {
        "field": "x",
        "type": "quantitative",
        "title": words("batch_size"),
        "scale": {"type": "log", "base": 2, "nice": False, "domain": ends},
        "axis": {"values": sizes},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "title": words("step_ms"),
        "scale": {"type": "log", "domain": [floor, ceiling], "nice": False},
    }
    hover = [
        ("cell", words("cell"), None),
        ("x", words("batch_size"), None),
        ("y", words("step_ms"), ",.4~r"),
    ]
    hue = colour("series", labels, None)
    fitted, measured = ({"filter": f"datum.kind === '{kind}'"} for kind in ("fitted", "measured"))
    layers = [
        *band_and_line(rows, x, y, hue, zoomed=["x", "y"], kept=[fitted]),
        {
            "transform": [measured],
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": hue, "tooltip": tooltip(hover)},
        },
    ]
    return chart(rows, layers, 260)


def _scaling_rows(line: Line, label: str, floor: float, ceiling: float) -> list[Spec]:
    """The band is cut where it leaves the chart."""

    def cut(end: float | None) -> float | None:
        return None if end is None else min(max(end, floor), ceiling)

    measured = [
        {"cell": cell, "series": label, "kind": "measured", "x": size, "y": time}
        for cell, size, time in line.measured
    ]
    fitted = [
        {"cell": "", "series": label, "kind": "fitted", "x": at.batch_size, "y": at.value}
        | {"band_low": cut(at.low), "band_high": cut(at.high)}
        for at in line.fitted
    ]
    return [*measured, *fitted]


def first_steps_chart(steps: FirstSteps, words: Words) -> Spec:
    """How many times as long as a settled step each of the first steps takes."""
    rows = [{"cell": cell, "x": step, "y": times} for cell, step, times in steps.points]
    cells = list(dict.fromkeys(cell for cell, _, _ in steps.points))
    axis = scale_for([times for _, _, times in steps.points], fits_zero=True)
    hover = [
        ("cell", words("cell"), None),
        ("x", words("step_number"), None),
        ("y", words("times_settled"), ".3~r"),
    ]
    layer = {
        "mark": {"type": "line", "point": {"filled": True, "size": 34}, "strokeWidth": 2},
        "encoding": {
            "x": {
                "field": "x",
                "type": "quantitative",
                "title": words("step_number"),
                "axis": {"tickMinStep": 1, "format": "d"},
                "scale": {"nice": False},
            },
            "y": {
                "field": "y",
                "type": "quantitative",
                "title": words("times_settled"),
                "scale": axis,
            },
            "color": colour("cell", cells, words("cell")),
            "tooltip": tooltip(hover),
        },
    }
    return chart(rows, [layer], 220)
