"""What all charts share: the frame, colours, scales, hover."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

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


def chart(rows: Sequence[Spec], layers: list[Spec], height: int) -> Spec:
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
    kept: Sequence[Spec] = (),
) -> list[Spec]:
    """Layers: the band from `band_low` to `band_high` of rows that have one, the line through `y`.

    `kept` are filters of both. Without any band there is no such layer: Vega would complain.
    """
    low = {"field": "band_low", "type": "quantitative", "scale": y["scale"], "title": y["title"]}
    band = {
        "transform": [*kept, {"filter": "isValid(datum.band_low)"}],
        "mark": {"type": "area", "opacity": 0.16, "clip": True},
        "encoding": {"x": x, "y": low, "y2": {"field": "band_high"}, "color": hue},
    }
    line = {
        "transform": list(kept),
        "params": [zoom(zoomed)],
        "mark": {"type": "line", "strokeWidth": 2, "clip": True},
        "encoding": {"x": x, "y": y, "color": hue},
    }
    return [band, line] if any(row.get("band_low") is not None for row in rows) else [line]


def colour(field: str, names: Sequence[str], title: str | None) -> Spec:
    """The same name has the same colour in every chart that lists the same names."""
    colours = [PALETTE[number % len(PALETTE)] for number in range(len(names))]
    longest = max(map(len, names), default=0)
    columns = 3 if longest <= 12 else 2 if longest <= 22 else 1
    legend = {"title": title, "orient": "bottom", "columns": columns, "labelLimit": 260}
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(names), "range": colours},
        "legend": legend if len(names) > 1 else None,
    }


def scale_for(values: Iterable[float], *, fits_zero: bool) -> Spec:
    """Logarithmic where values differ much; else from zero, or close to the values."""
    found = [value for value in values if math.isfinite(value)]
    if found and min(found) > 0 and max(found) / min(found) > WIDE_RANGE:
        return {"type": "log", "nice": True}
    return {"zero": fits_zero, "nice": True}


def tooltip(fields: Sequence[tuple[str, str, str | None]]) -> list[Spec]:
    return [
        {"field": field, "title": title, "type": "nominal"}
        if pattern is None
        else {"field": field, "title": title, "type": "quantitative", "format": pattern}
        for field, title, pattern in fields
    ]
