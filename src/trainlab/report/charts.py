"""Charts: figures as Vega-Lite. The same spec is drawn by the browser and by vl-convert.

Names from data are values of the chart, never part of an expression or a field name. Every row has a
`cell`, and every chart a parameter `hidden` with the cells not to draw.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from trainlab.report.figures import (
    OUTSIDE,
    REST,
    Bars,
    Dots,
    FirstSteps,
    Line,
    Trend,
)
from trainlab.report.numbers import figure, is_share
from trainlab.report.words import Words

Spec = dict[str, Any]

PALETTE = (
    "#3b82c4",
    "#d9730d",
    "#2e9e5b",
    "#d64550",
    "#9467bd",
    "#a0703c",
    "#1a9aa6",
    "#d4569c",
    "#8a8f1a",
    "#6b6fe0",
    "#b5533c",
    "#7f8792",
)
"""Each at least 3 : 1 against white and against the dark page."""
WIDE_RANGE = 20
"""Largest over smallest from which on an axis is logarithmic."""
SHOWN = {"filter": "indexof(hidden, datum.cell) < 0"}


def trend_chart(trend: Trend, cells: Sequence[str], words: Words) -> Spec:
    """Curves with the band of the interval over seeds."""
    scale = 100 if is_share(trend.metric) else 1
    rows = [
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
    unit = "%" if is_share(trend.metric) else ""
    means = [row["y"] for row in rows if isinstance(row["y"], float)]
    axis = _scale(means, fits_zero=False)
    if axis.get("type") != "log":
        # Intervals of few seeds may be wider than all curves together: they must not flatten them.
        reach = 0.5 * (max(means) - min(means)) or 1.0
        lows = [low for row in rows if isinstance(low := row["low"], float)]
        highs = [high for row in rows if isinstance(high := row["high"], float)]
        bottom = max(min(means) - reach, min([*lows, min(means)]))
        top = min(max(means) + reach, max([*highs, max(means)]))
        axis["domain"] = [max(0.0, bottom) if min(means) >= 0 else bottom, top]
        axis["nice"] = True
    x = {
        "field": "x",
        "type": "quantitative",
        "title": words("epochs_seen"),
        "scale": {"nice": False},
        "axis": {"tickMinStep": 0.1 if trend.by_step else 1},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "title": f"{trend.metric} ({unit})" if unit else trend.metric,
        "scale": axis,
    }
    colour = _colour("cell", cells, words("cell"))
    per_curve = len(rows) / max(1, len({row["cell"] for row in rows}))
    hover = [
        ("cell", words("cell"), None),
        ("x", words("epochs_seen"), ".2f"),
        ("y", trend.metric, ".4~f"),
        ("low", words("interval_low"), ".4~f"),
        ("high", words("interval_high"), ".4~f"),
        ("n", words("seeds"), None),
    ]
    layers: list[Spec] = [
        {
            "params": [_zoom(["x"])],
            "mark": {"type": "area", "opacity": 0.16, "clip": True},
            "encoding": {
                "x": x,
                "y": {"field": "low", "type": "quantitative", "scale": axis, "title": y["title"]},
                "y2": {"field": "high"},
                "color": colour,
            },
        },
        {
            "mark": {"type": "line", "strokeWidth": 2, "clip": True},
            "encoding": {"x": x, "y": y, "color": colour},
        },
        {
            "mark": {
                "type": "point",
                "filled": True,
                "size": 34 if per_curve <= 30 else 60,
                "opacity": 1 if per_curve <= 30 else 0,
                "clip": True,
            },
            "encoding": {"x": x, "y": y, "color": colour, "tooltip": _tooltip(hover)},
        },
    ]
    return _chart(rows, layers, 260)


def dot_chart(dots: Dots, title: str, words: Words) -> Spec:
    """A dot per cell with its interval, and faint ones for single seeds."""
    scale = 100 if is_share(dots.quantity) else 1
    modes = list(dict.fromkeys(dot.mode for dot in dots.dots if dot.mode is not None))
    cells = list(dict.fromkeys(dot.cell for dot in dots.dots))
    rows = [
        {
            "cell": dot.cell,
            "mode": "" if dot.mode is None else words(f"mode_{dot.mode}"),
            "x": scale * dot.value,
            "low": None if dot.low is None else scale * dot.low,
            "high": None if dot.high is None else scale * dot.high,
            "kind": "mean",
        }
        for dot in dots.dots
    ]
    values = [float(row["x"]) for row in rows]  # type: ignore[arg-type]
    axis = _dot_axis(dots, values, scale)
    place: Spec = {
        "y": {
            "field": "cell",
            "type": "nominal",
            "sort": cells,
            "title": None,
            "axis": {"labelLimit": 170, "ticks": False, "domain": False, "grid": True},
        }
    }
    if len(modes) > 1:
        told = [words(f"mode_{mode}") for mode in modes]
        place["yOffset"] = {"field": "mode", "type": "nominal", "sort": told}
        place["color"] = _colour("mode", told, words("mode"))
    x = {"field": "x", "type": "quantitative", "title": title, "scale": axis}
    hover = [
        ("cell", words("cell"), None),
        *([("mode", words("mode"), None)] if len(modes) > 1 else []),
        ("x", title, ",.4~r"),
        ("low", words("interval_low"), ",.4~r"),
        ("high", words("interval_high"), ",.4~r"),
    ]
    means = {"filter": "datum.kind === 'mean'"}
    layers: list[Spec] = [
        {
            "transform": [means, {"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2, "clip": True, "color": PALETTE[0]},
            "encoding": {
                **place,
                "x": {"field": "low", "type": "quantitative", "scale": axis, "title": title},
                "x2": {"field": "high"},
            },
        },
        {
            "transform": [means],
            "mark": {"type": "point", "filled": True, "size": 80, "color": PALETTE[0]},
            "encoding": {**place, "x": x, "tooltip": _tooltip(hover)},
        },
    ]
    if dots.singles:
        rows += [
            {"cell": cell, "mode": "", "x": scale * value, "low": None, "high": None, "kind": "one"}
            for cell, value in dots.singles
        ]
        single = [("cell", words("cell"), None), ("x", title, ",.4~r")]
        layers.insert(
            1,
            {
                "transform": [{"filter": "datum.kind === 'one'"}],
                "mark": {"type": "tick", "thickness": 2, "size": 12, "color": PALETTE[-1]},
                "encoding": {**place, "x": x, "tooltip": _tooltip(single)},
            },
        )
    return _chart(rows, layers, 24 + len(cells) * (10 + 16 * max(1, len(modes))))


def bar_chart(bars: Bars, unit: str, words: Words, name: Callable[[str], str]) -> Spec:
    """Bars of equal length whose parts are shares; the hover tells the part itself."""
    told = {part: _part(part, words, name) for part in bars.names}
    cells = list(dict.fromkeys(part.cell for part in bars.parts))
    order = {part: number for number, part in enumerate(bars.names)}
    rows = [
        {
            "cell": part.cell,
            "part": told[part.name],
            "value": part.value,
            "share": part.share,
            "order": order[part.name],
        }
        for part in bars.parts
    ]
    hover = [
        ("cell", words("cell"), None),
        ("part", words("part"), None),
        ("value", unit, ",.4~r"),
        ("share", words("share"), ".1%"),
    ]
    layer = {
        "mark": {"type": "bar", "stroke": None, "height": {"band": 0.72}},
        "encoding": {
            "y": {
                "field": "cell",
                "type": "nominal",
                "sort": cells,
                "title": None,
                "axis": {"labelLimit": 170, "ticks": False, "domain": False},
            },
            "x": {
                "field": "share",
                "type": "quantitative",
                "stack": "zero",
                "title": words("share_of_whole"),
                "axis": {"format": "%", "tickCount": 6},
                "scale": {"domain": [0, 1], "nice": False},
            },
            "color": _colour("part", list(told.values()), None),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": _tooltip(hover),
        },
    }
    return _chart(rows, [layer], 34 + 30 * len(cells))


def scaling_chart(lines: Sequence[Line], words: Words) -> Spec:
    """Measured times, and the line through them with its band."""
    labels = [line.label or words("fitted") for line in lines]
    rows: list[Spec] = []
    for line, label in zip(lines, labels, strict=True):
        rows += [
            {"cell": cell, "series": label, "kind": "measured", "x": size, "y": time}
            for cell, size, time in line.measured
        ]
        rows += [
            {"cell": "", "series": label, "kind": "fitted", "x": at.batch_size, "y": at.value}
            | {"low": at.low, "high": at.high}
            for at in line.fitted
        ]
    times = [row["y"] for row in rows if row["kind"] == "measured"]
    floor, ceiling = min(times) / 3, max(times) * 3
    for row in rows:
        for end in ("low", "high"):
            if row.get(end) is not None:
                row[end] = min(max(row[end], floor), ceiling)
    x = {
        "field": "x",
        "type": "quantitative",
        "title": words("batch_size"),
        "scale": {"type": "log", "base": 2, "nice": False},
        "axis": {"values": sorted({row["x"] for row in rows if row["kind"] == "measured"})},
    }
    scale = {"type": "log", "domain": [floor, ceiling], "nice": False}
    y = {"field": "y", "type": "quantitative", "title": words("step_ms"), "scale": scale}
    colour = _colour("series", labels, None)
    fitted, measured = ({"filter": f"datum.kind === '{kind}'"} for kind in ("fitted", "measured"))
    hover = [
        ("cell", words("cell"), None),
        ("x", words("batch_size"), None),
        ("y", words("step_ms"), ",.4~r"),
    ]
    layers: list[Spec] = [
        {
            "transform": [fitted, {"filter": "isValid(datum.low)"}],
            "params": [_zoom(["x", "y"])],
            "mark": {"type": "area", "opacity": 0.16, "clip": True},
            "encoding": {
                "x": x,
                "y": {"field": "low", "type": "quantitative", "scale": scale, "title": y["title"]},
                "y2": {"field": "high"},
                "color": colour,
            },
        },
        {
            "transform": [fitted],
            "mark": {"type": "line", "strokeWidth": 2, "clip": True},
            "encoding": {"x": x, "y": y, "color": colour},
        },
        {
            "transform": [measured],
            "mark": {"type": "point", "filled": True, "size": 90},
            "encoding": {"x": x, "y": y, "color": colour, "tooltip": _tooltip(hover)},
        },
    ]
    return _chart(rows, layers, 260)


def first_steps_chart(steps: FirstSteps, words: Words) -> Spec:
    """How many times as long as a settled step each of the first steps takes."""
    rows = [{"cell": cell, "x": step, "y": times} for cell, step, times in steps.points]
    cells = list(dict.fromkeys(cell for cell, _, _ in steps.points))
    axis = _scale([times for _, _, times in steps.points], fits_zero=True)
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
            "color": _colour("cell", cells, words("cell")),
            "tooltip": _tooltip(hover),
        },
    }
    return _chart(rows, [layer], 220)


def _chart(rows: Sequence[Spec], layers: list[Spec], height: int) -> Spec:
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "height": height,
        "params": [{"name": "hidden", "value": []}],
        "data": {"name": "rows", "values": [_rounded(row) for row in rows]},
        "transform": [SHOWN],
        "layer": layers,
    }


def _rounded(row: Spec) -> Spec:
    """Six digits: more are noise, and make the file larger."""
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in row.items()
        if value is not None
    }


def _zoom(encodings: list[str]) -> Spec:
    """By wheel with Shift held, so that a page still scrolls; dragging moves, a double click resets."""
    return {
        "name": "zoom",
        "select": {
            "type": "interval",
            "encodings": encodings,
            "zoom": "wheel![event.shiftKey]",
            "translate": "[mousedown, window:mouseup] > window:mousemove!",
        },
        "bind": "scales",
    }


def _colour(field: str, names: Sequence[str], title: str | None) -> Spec:
    """The same name has the same colour in every chart that lists the same names."""
    colours = [PALETTE[number % len(PALETTE)] for number in range(len(names))]
    legend: Spec | None = {"title": title, "orient": "bottom", "columns": 3, "labelLimit": 240}
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(names), "range": colours},
        "legend": legend if len(names) > 1 else None,
    }


def _scale(values: Iterable[float], *, fits_zero: bool) -> Spec:
    """Logarithmic where values differ much; else from zero, or close to the values."""
    found = [value for value in values if math.isfinite(value)]
    if found and min(found) > 0 and max(found) / min(found) > WIDE_RANGE:
        return {"type": "log", "nice": True}
    return {"zero": fits_zero, "nice": True}


def _dot_axis(dots: Dots, values: Sequence[float], scale: float) -> Spec:
    """Wide enough for every value; an interval wider than that is cut, or it would hide the values."""
    metric = "/" in dots.quantity
    axis = _scale(values, fits_zero=not metric)
    lows = [scale * dot.low for dot in dots.dots if dot.low is not None]
    highs = [scale * dot.high for dot in dots.dots if dot.high is not None]
    if axis.get("type") == "log":
        positive = [low for low in lows if low > 0]
        bottom = max(min(values) / 4, min([*positive, min(values)]))
        return axis | {"domain": [bottom, min(max(values) * 4, max([*highs, *values]))]}
    singles = [scale * value for _, value in dots.singles]
    reach = max([*values, *singles]) - min([*values, *singles])
    top = min(
        max(values) + max(reach, 0.5 * max(values) if not metric else 0.0), max([*highs, *values])
    )
    top = max(top, max([*values, *singles]))
    if not metric:
        return axis | {"domain": [0, top or 1]}
    bottom = max(min(values) - reach, min([*lows, *values]))
    return axis | {"domain": [min(bottom, *values, *singles) if singles else bottom, top]}


def _tooltip(fields: Sequence[tuple[str, str, str | None]]) -> list[Spec]:
    return [
        {"field": field, "title": title, "type": "nominal"}
        if pattern is None
        else {"field": field, "title": title, "type": "quantitative", "format": pattern}
        for field, title, pattern in fields
    ]


def _part(part: str, words: Words, name: Callable[[str], str]) -> str:
    if part == REST:
        return words("rest_of_operators")
    return words("outside_operators") if part == OUTSIDE else name(part)


def range_told(low: float, high: float) -> str:
    """`1.20 to 3.40`, without words."""
    return f"{figure(low)} – {figure(high)}"
