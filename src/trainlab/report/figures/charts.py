"""Charts: figures as Vega-Lite. The same spec is drawn by the browser and by vl-convert.

Names from data are values of the chart, never part of an expression or a field name. Every row has a
`cell`, and every chart a parameter `hidden` with the cells not to draw.
"""

import math
from collections.abc import Callable, Sequence

from trainlab.report.figures.bars import OUTSIDE, REST, Bars
from trainlab.report.figures.cell_values import CellValues
from trainlab.report.figures.vega import PALETTE, Spec, chart, colour, scale_for, tooltip
from trainlab.words import Words
from trainlab.words.numbers import is_share

PHASES = ("data", "transfer", "zero_grad", "forward", "loss", "backward", "optimizer", "other")
DOT = {"type": "point", "filled": True, "size": 80, "opacity": 1, "color": PALETTE[0]}
SINGLE = {"type": "tick", "thickness": 2, "size": 12, "color": PALETTE[-1]}
MEMORY = ("parameters", "buffers", "gradients", "optimizer", "input", "activations", "other")


def dot_chart(dots: CellValues, title: str, words: Words, *, is_by_run: bool = False) -> Spec:
    """A dot per cell with its interval, and faint ones for single seeds; by mode, or by run."""
    name = str if is_by_run else words.mode
    kind = words("run" if is_by_run else "mode")
    modes = list(dict.fromkeys(name(dot.mode) for dot in dots.dots if dot.mode is not None))
    cells = list(dict.fromkeys(dot.cell for dot in dots.dots))
    rows = _dot_rows(dots, name)
    scale = _dot_axis(dots)
    x = {"field": "x", "type": "quantitative", "title": title, "scale": scale}
    place = _dot_place(cells, modes, kind)
    hover = [
        ("cell", words("cell"), None),
        *([("mode", kind, None)] if len(modes) > 1 else []),
        ("x", title, ",.4~r"),
        ("low", words("interval_low"), ",.4~r"),
        ("high", words("interval_high"), ",.4~r"),
    ]
    layers = [_intervals(x, place)]
    if dots.singles:
        single = [("cell", words("cell"), None), ("x", title, ",.4~r")]
        layers.append(_marks("one", SINGLE, {**place, "x": x, "tooltip": tooltip(single)}))
    layers.append(_marks("mean", DOT, {**place, "x": x, "tooltip": tooltip(hover)}))
    return chart(rows, layers, 24 + len(cells) * (10 + 16 * max(1, len(modes))))


def _dot_rows(dots: CellValues, name: Callable[[str], str]) -> list[Spec]:
    """Means first, then single seeds."""
    scale = _scale(dots)
    means = [
        {
            "cell": dot.cell,
            "mode": "" if dot.mode is None else name(dot.mode),
            "x": scale * dot.value,
            "low": None if dot.low is None else scale * dot.low,
            "high": None if dot.high is None else scale * dot.high,
            "kind": "mean",
        }
        for dot in dots.dots
    ]
    singles = [
        {"cell": cell, "mode": "", "x": scale * value, "low": None, "high": None, "kind": "one"}
        for cell, value in dots.singles
    ]
    return [*means, *singles]


def _dot_place(cells: Sequence[str], modes: Sequence[str], kind: str) -> Spec:
    """A row per cell, and within it one per mode."""
    axis = {"labelLimit": 170, "ticks": False, "domain": False, "grid": True}
    y = {"field": "cell", "type": "nominal", "sort": cells, "title": None, "axis": axis}
    if len(modes) < 2:
        return {"y": y}
    offset = {"field": "mode", "type": "nominal", "sort": modes}
    return {"y": y, "yOffset": offset, "color": colour("mode", modes, kind)}


def _intervals(x: Spec, place: Spec) -> Spec:
    """From `low` to `high` of every mean that has an interval."""
    return {
        "transform": [_of_kind("mean"), {"filter": "isValid(datum.low)"}],
        "mark": {"type": "rule", "strokeWidth": 2, "clip": True, "color": PALETTE[0]},
        "encoding": {**place, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
    }


def _marks(kind: str, mark: Spec, encoding: Spec) -> Spec:
    return {"transform": [_of_kind(kind)], "mark": mark, "encoding": encoding}


def _of_kind(kind: str) -> Spec:
    return {"filter": f"datum.kind === '{kind}'"}


def _scale(dots: CellValues) -> int:
    return 100 if is_share(dots.quantity) else 1


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
            "color": _part_colours(bars.names, told),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": tooltip(hover),
        },
    }
    return chart(rows, [layer], 34 + 30 * len(cells))


def _part_colours(names: Sequence[str], told: dict[str, str]) -> Spec:
    """A phase or kind of memory has one colour in every chart; what is left over is grey."""
    found = colour("part", list(told.values()), None)
    known = PHASES if "forward" in names else MEMORY if "parameters" in names else names
    places = {name: number for number, name in enumerate(known)}
    greys = {REST: PALETTE[-1], OUTSIDE: "#a3abb6"}
    found["scale"]["range"] = [
        greys.get(name) or PALETTE[places.get(name, len(places)) % len(PALETTE)] for name in names
    ]
    return found


def _dot_axis(dots: CellValues) -> Spec:
    """Wide enough for every value; an interval wider than that is cut, or it would hide the values."""
    scale, metric = _scale(dots), "/" in dots.quantity
    values = [scale * dot.value for dot in dots.dots]
    axis = scale_for(values, fits_zero=not metric)
    lows = [scale * dot.low for dot in dots.dots if dot.low is not None]
    highs = [scale * dot.high for dot in dots.dots if dot.high is not None]
    if axis.get("type") == "log":
        positive = [low for low in lows if low > 0]
        bottom = max(min(values) / 4, min([*positive, min(values)]))
        return axis | {"domain": [bottom, min(max(values) * 4, max([*highs, *values]))]}
    singles = [scale * value for _, value in dots.singles]
    width = max([*values, *singles]) - min([*values, *singles])
    top = min(
        max(values) + max(width, 0.5 * max(values) if not metric else 0.0), max([*highs, *values])
    )
    top = max(top, max([*values, *singles]))
    if is_share(dots.quantity):
        top = min(top, 100.0)
    if not metric:
        return axis | {"domain": [0, top or 1]}
    bottom = max(min(values) - width, min([*lows, *values]), 0.0 if min(values) >= 0 else -math.inf)
    return axis | {"domain": [min(bottom, *values, *singles) if singles else bottom, top]}


def _part(part: str, words: Words, name: Callable[[str], str]) -> str:
    if part == REST:
        return words("rest_of_operators")
    return words("outside_operators") if part == OUTSIDE else name(part)
