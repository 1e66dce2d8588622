"""Charts with lines: metrics over training, time by batch size, the first steps."""

from collections.abc import Sequence

from trainlab.report.figures import FirstSteps, Line, Trend
from trainlab.report.numbers import is_share
from trainlab.report.vega import Spec, chart, colour, scale_for, tooltip, zoom
from trainlab.report.words import Words


def trend_chart(
    trend: Trend, cells: Sequence[str], words: Words, *, x_title: str | None = None
) -> Spec:
    """Curves with the band of the interval over seeds; over epochs unless the axis is named."""
    across = words("epochs_seen") if x_title is None else x_title
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
    axis = scale_for(means, fits_zero=False)
    if axis.get("type") != "log":
        # Intervals of few seeds may be wider than all curves together: they must not flatten them.
        reach = 0.5 * (max(means) - min(means)) or 1.0
        lows = [low for row in rows if isinstance(low := row["low"], float)]
        highs = [high for row in rows if isinstance(high := row["high"], float)]
        bottom = max(min(means) - reach, min([*lows, min(means)]))
        top = min(max(means) + reach, max([*highs, max(means)]))
        if bottom == top:
            bottom, top = bottom - reach, top + reach
        axis["domain"] = [max(0.0, bottom) if min(means) >= 0 else bottom, top]
        axis["nice"] = True
    x = {
        "field": "x",
        "type": "quantitative",
        "title": across,
        "scale": {"nice": False},
        "axis": {"tickMinStep": 0.1 if trend.by_step else 1},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "title": f"{trend.metric} ({unit})" if unit else trend.metric,
        "scale": axis,
    }
    hue = colour("cell", cells, words("cell"))
    per_curve = len(rows) / max(1, len({row["cell"] for row in rows}))
    hover = [
        ("cell", words("cell"), None),
        ("x", across, ",.2~f"),
        ("y", trend.metric, ".4~f"),
        ("low", words("interval_low"), ".4~f"),
        ("high", words("interval_high"), ".4~f"),
        ("n", words("seeds"), None),
    ]
    layers: list[Spec] = [
        {
            "params": [zoom(["x"])],
            "mark": {"type": "area", "opacity": 0.16, "clip": True},
            "encoding": {
                "x": x,
                "y": {"field": "low", "type": "quantitative", "scale": axis, "title": y["title"]},
                "y2": {"field": "high"},
                "color": hue,
            },
        },
        {
            "mark": {"type": "line", "strokeWidth": 2, "clip": True},
            "encoding": {"x": x, "y": y, "color": hue},
        },
        {
            "mark": {
                "type": "point",
                "filled": True,
                "size": 34 if per_curve <= 30 else 60,
                "opacity": 1 if per_curve <= 30 else 0,
                "clip": True,
            },
            "encoding": {"x": x, "y": y, "color": hue, "tooltip": tooltip(hover)},
        },
    ]
    return chart(rows, layers, 260)


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
    sizes = sorted({row["x"] for row in rows if row["kind"] == "measured"})
    floor, ceiling = min(times) / 3, max(times) * 3
    for row in rows:
        for end in ("low", "high"):
            if row.get(end) is not None:
                row[end] = min(max(row[end], floor), ceiling)
    x = {
        "field": "x",
        "type": "quantitative",
        "title": words("batch_size"),
        "scale": {
            "type": "log",
            "base": 2,
            "nice": False,
            "domain": [min(sizes) / 1.2, max(sizes) * 1.2],
        },
        "axis": {"values": sizes},
    }
    scale = {"type": "log", "domain": [floor, ceiling], "nice": False}
    y = {"field": "y", "type": "quantitative", "title": words("step_ms"), "scale": scale}
    hue = colour("series", labels, None)
    fitted, measured = ({"filter": f"datum.kind === '{kind}'"} for kind in ("fitted", "measured"))
    hover = [
        ("cell", words("cell"), None),
        ("x", words("batch_size"), None),
        ("y", words("step_ms"), ",.4~r"),
    ]
    layers: list[Spec] = [
        {
            "transform": [fitted, {"filter": "isValid(datum.low)"}],
            "params": [zoom(["x", "y"])],
            "mark": {"type": "area", "opacity": 0.16, "clip": True},
            "encoding": {
                "x": x,
                "y": {"field": "low", "type": "quantitative", "scale": scale, "title": y["title"]},
                "y2": {"field": "high"},
                "color": hue,
            },
        },
        {
            "transform": [fitted],
            "mark": {"type": "line", "strokeWidth": 2, "clip": True},
            "encoding": {"x": x, "y": y, "color": hue},
        },
        {
            "transform": [measured],
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": hue, "tooltip": tooltip(hover)},
        },
    ]
    return chart(rows, layers, 260)


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
