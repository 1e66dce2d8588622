"""Charts of what probes recorded: over training, and by depth."""

from collections.abc import Sequence

from trainlab.analysis.charts import (
    PALETTE,
    WIDE_RANGE,
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
from trainlab.report.figures.curves import Curves, curve_rows
from trainlab.report.figures.probed_quantities import FIRST, LAST, MIDDLE, DepthPoint
from trainlab.words import Words

VALUE = ",.4~g"
HEIGHT = 260
DASHED, SOLID = [5, 4], [1, 0]
MOMENTS = {FIRST: "probe_first", MIDDLE: "probe_middle", LAST: "probe_last"}
"""What each is called, by the key of its words."""
SHAPES = ("circle", "square", "triangle-up")


def probe_axis(rows: Sequence[Spec]) -> tuple[Spec, bool]:
    """Logarithmic where the range is wide, zeros apart; and whether those are to be drawn at its lower
    edge: a gradient that is exactly zero must not hide the others."""
    positive = [row for row in rows if row["y"] > 0]
    means = [row["y"] for row in positive]
    has_only_zeros_beside = len(positive) < len(rows) and min(row["y"] for row in rows) == 0
    if has_only_zeros_beside and means and max(means) > WIDE_RANGE * min(means):
        axis = fitted_axis(positive)
        bottom, top = axis["domain"]
        return axis | {"domain": [bottom / 3, top]}, True
    return fitted_axis(rows), False


def time_chart(
    curves: Curves, names: Sequence[str], words: Words, *, is_by_cell: bool, axis: Spec | None
) -> Spec:
    """A line per layer of one cell, or per cell of one layer; `axis` is that of other charts beside it."""
    rows = curve_rows(curves)
    axis = axis or probe_axis(rows)[0]
    _lift_zeros(rows, axis)
    add_bands(rows, axis)
    x = quantity("x", words("updates"), scale={"nice": False}, axis={"tickCount": 6})
    y = quantity("y", curves.metric, scale=axis)
    field, title = ("cell", words("cell")) if is_by_cell else ("line", words("layer"))
    hue = colour(field, names, title)
    hover = [
        ("cell", words("cell"), None),
        *([] if is_by_cell else [("line", words("layer"), None)]),
        ("x", words("updates"), ",.2~f"),
        *_value_hover(curves.metric, words),
    ]
    encoding = {"x": x, "y": y, "color": hue, "tooltip": tooltip(hover)}
    points = {"mark": point_mark(rows), "encoding": encoding}
    return chart(rows, [*band_and_line(rows, x, y, hue, zoomed=["x"]), points], HEIGHT)


def depth_rows(points: Sequence[DepthPoint]) -> list[Spec]:
    """A row per point."""
    return [
        {
            "cell": point.cell,
            "moment": point.moment,
            "step": point.step,
            "x": point.layer,
            "name": point.name or None,
            "y": point.mean,
            "low": point.low,
            "high": point.high,
            "n": point.n,
        }
        for point in points
    ]


def depth_chart(
    points: Sequence[DepthPoint],
    layers: Sequence[str],
    cells: Sequence[str],
    title: str,
    words: Words,
) -> Spec:
    """The layers from left to right in the order of the forward pass. A line per moment of the only cell,
    or per cell; of several cells the first moment is dashed."""
    rows = depth_rows(points)
    axis, _ = probe_axis(rows)
    _lift_zeros(rows, axis)
    hue = _name_lines(rows, cells, words)
    add_bands(rows, axis)
    drawn = {point.layer for point in points}
    x = {
        "field": "x",
        "type": "ordinal",
        "scale": {"domain": [layer for layer in layers if layer in drawn]},
        "title": words("probe_depth_axis"),
        "axis": {"labelAngle": -40, "labelLimit": 110, "labelOverlap": True},
    }
    y = quantity("y", title, scale=axis)
    names = list(dict.fromkeys(point.name for point in points))
    hover = [
        ("cell", words("cell"), None),
        ("x", words("layer"), None),
        *([("name", words("probe_parameter"), None)] if len(names) > 1 else []),
        ("step", words("updates"), ",.0f"),
        *_value_hover(title, words),
    ]
    ends = {"y": {**y, "field": "band_low"}, "y2": {"field": "band_high"}}
    bars = {
        "transform": [{"filter": "isValid(datum.band_low)"}],
        "mark": {"type": "rule", "opacity": 0.35, "strokeWidth": 2, "clip": True},
        "encoding": {"x": x, **ends, "color": hue},
    }
    line = {
        "mark": {"type": "line", "strokeWidth": 2, "clip": True},
        "encoding": {"x": x, "y": y, "color": hue, **_kinds_of_line(rows, names, words)},
    }
    dots = {
        "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1, "clip": True},
        "encoding": {"x": x, "y": y, "color": hue, **_shapes(names), "tooltip": tooltip(hover)},
    }
    has_bars = any("band_low" in row for row in rows)
    return chart(rows, [bars, line, dots] if has_bars else [line, dots], HEIGHT)


def _name_lines(rows: Sequence[Spec], cells: Sequence[str], words: Words) -> Spec:
    """Gives every row the name of its line and its moment in words; the colours of the lines."""
    is_by_cell = len({row["cell"] for row in rows}) > 1
    labels = {}
    for row in rows:
        labels[row["moment"]] = words("probe_update", step=row["step"])
        row["line"] = row["cell"] if is_by_cell else labels[row["moment"]]
        row["moment"] = words(MOMENTS[row["moment"]])
    if is_by_cell:
        return colour("line", cells, words("cell"))
    return colour("line", list(labels.values()), words("probe_moments"))


def _kinds_of_line(rows: Sequence[Spec], names: Sequence[str], words: Words) -> Spec:
    """Lines join parameters of the same name: a bias beside its weight would make them zigzag."""
    kinds: Spec = {"detail": {"field": "name", "type": "nominal"}} if len(names) > 1 else {}
    moments = [words(MOMENTS[moment]) for moment in (FIRST, LAST)]
    is_by_cell = len({row["cell"] for row in rows}) > 1
    if is_by_cell and {row["moment"] for row in rows} == set(moments):
        kinds["strokeDash"] = {
            "field": "moment",
            "type": "nominal",
            "scale": {"domain": moments, "range": [DASHED, SOLID]},
            "legend": {
                "title": words("probe_moments"),
                "orient": "bottom",
                "symbolType": "stroke",
                "symbolStrokeColor": PALETTE[-1],
            },
        }
    return kinds


def _shapes(names: Sequence[str]) -> Spec:
    """Of the points: what parameters are called at their layer."""
    if len(names) < 2:
        return {}
    scale = {"domain": list(names), "range": list(SHAPES[: len(names)])}
    legend = {
        "title": None,
        "orient": "bottom",
        "symbolFillColor": PALETTE[-1],
        "symbolStrokeWidth": 0,
    }
    return {"shape": {"field": "name", "type": "nominal", "scale": scale, "legend": legend}}


def _value_hover(title: str, words: Words) -> list[tuple[str, str, str | None]]:
    return [
        ("value", title, VALUE),
        ("low", words("interval_low"), VALUE),
        ("high", words("interval_high"), VALUE),
        ("n", words("seeds"), None),
    ]


def _lift_zeros(rows: Sequence[Spec], axis: Spec) -> None:
    """On a logarithmic axis a zero is drawn at the lower edge; `value` is what it is."""
    for row in rows:
        row["value"] = row["y"]
        if axis.get("type") == "log" and row["y"] <= 0:
            row["y"] = axis["domain"][0]
