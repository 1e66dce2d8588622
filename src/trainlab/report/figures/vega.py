"""What all charts share: the frame, colours, scales, hover, and the look of axes and legends."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

Spec = dict[str, Any]
VEGA_LITE = "6.4"

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
"""Each has a contrast of at least 3 : 1 against white and against the dark page."""

MOST_COLUMNS = 3
"""Of names in a legend."""
WIDE_RANGE = 20
"""An axis is logarithmic where the largest value is more than so many times the smallest."""


def chart(rows: Sequence[Spec], layers: list[Spec], height: int) -> Spec:
    """The frame around the layers; rows of cells that the reader has hidden are not drawn."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "height": height,
        "params": [{"name": "hidden", "value": []}],
        "data": {"name": "rows", "values": [_rounded(row) for row in rows]},
        "transform": [{"filter": "indexof(hidden, datum.cell) < 0"}],
        "layer": layers,
    }


def config(font: str, background: str, ink: str, faint: str, grid: Spec) -> Spec:
    """The look of every chart; `grid` is that of the grid lines."""
    colours = {"labelColor": ink, "titleColor": ink}
    sizes = {"labelFontSize": 11.5, "titleFontSize": 12, "titleFontWeight": "normal"}
    lines = {"domainColor": faint, "tickColor": faint, **grid}
    below = {"anchor": "start", "direction": "vertical"}
    return {
        "aria": False,
        "background": background,
        "font": font,
        "view": {"stroke": "transparent"},
        "axis": {**colours, **lines, "labelSeparation": 5, **sizes},
        "legend": {**colours, **sizes, "symbolOpacity": 1, "layout": {"bottom": below}},
        "autosize": {"type": "fit-x", "contains": "padding"},
    }


def quantity(field: str, title: str, **more: Spec) -> Spec:
    """The encoding of a number; `more` is its scale and its axis."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def of_kind(kind: str) -> Spec:
    """Keeps the rows of one kind."""
    return {"filter": f"datum.kind === '{kind}'"}


def _rounded(row: Spec) -> Spec:
    """Six digits: more are noise, and make the file larger."""
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in row.items()
        if value is not None
    }


def zoom(encodings: list[str]) -> Spec:
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


def band_and_line(
    rows: Sequence[Spec],
    x: Spec,
    y: Spec,
    hue: Spec,
    *,
    zoomed: list[str],
    filters: Sequence[Spec] = (),
) -> list[Spec]:
    """Layers: the band from `band_low` to `band_high` of rows that have one, the line through `y`.

    `filters` apply to both. Where no row has a band its layer is left out: Vega would complain.
    """
    low = {"field": "band_low", "type": "quantitative", "scale": y["scale"], "title": y["title"]}
    band = {
        "transform": [*filters, {"filter": "isValid(datum.band_low)"}],
        "mark": {"type": "area", "opacity": 0.16, "clip": True},
        "encoding": {"x": x, "y": low, "y2": {"field": "band_high"}, "color": hue},
    }
    line = {
        "transform": list(filters),
        "params": [zoom(zoomed)],
        "mark": {"type": "line", "strokeWidth": 2, "clip": True},
        "encoding": {"x": x, "y": y, "color": hue},
    }
    return [band, line] if any(row.get("band_low") is not None for row in rows) else [line]


def colour(
    field: str, names: Sequence[str], title: str | None, palette: Sequence[str] = PALETTE
) -> Spec:
    """The same name has the same colour in every chart that lists the same names."""
    colours = [palette[number % len(palette)] for number in range(len(names))]
    legend = {"title": title, "orient": "bottom", "columns": MOST_COLUMNS, "labelLimit": 260}
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(names), "range": colours},
        "legend": legend if len(names) > 1 else None,
    }


def fit_legends(spec: Spec, width: int) -> None:
    """As many columns of names as a chart so many pixels wide has room for; the page does the same."""
    for layer in spec["layer"]:
        hue = layer["encoding"].get("color", {})
        if (legend := hue.get("legend")) and (names := hue["scale"].get("domain")):
            widest = max(
                sum(12.0 if letter > "\u2e7f" else 6.6 for letter in name) for name in names
            )
            legend["columns"] = max(1, min(MOST_COLUMNS, int(width / (widest + 34))))


def scale_for(values: Iterable[float], *, fits_zero: bool) -> Spec:
    """Logarithmic where the range of values is wide; else from zero, or close to the values."""
    finite = [value for value in values if math.isfinite(value)]
    if finite and min(finite) > 0 and max(finite) / min(finite) > WIDE_RANGE:
        return {"type": "log", "nice": True}
    return {"zero": fits_zero, "nice": True}


def tooltip(fields: Sequence[tuple[str, str, str | None]]) -> list[Spec]:
    """What the hover shows: field, title, and the format of a number or None for text."""
    return [
        {"field": field, "title": title, "type": "nominal"}
        if pattern is None
        else {"field": field, "title": title, "type": "quantitative", "format": pattern}
        for field, title, pattern in fields
    ]
