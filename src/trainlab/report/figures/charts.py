"""Charts: figures as Vega-Lite. The same spec is drawn by the browser and by vl-convert.

Names from data are values of the chart, never part of an expression or a field name. Every row has a
`cell`, and every chart a parameter `hidden` with the cells not to draw.
"""

import math
from collections.abc import Callable, Sequence

from trainlab.report.figures.bars import OUTSIDE, REST, Bars
from trainlab.report.figures.cell_values import CellValues
from trainlab.report.figures.vega import (
    PALETTE,
    Spec,
    chart,
    colour,
    of_kind,
    quantity,
    scale_for,
    tooltip,
)
from trainlab.words import Words
from trainlab.words.numbers import is_share

PHASES = [
    "data",
    "transfer",
    "zero_grad",
    "forward",
    "loss",
    "backward",
    "optimizer",
    "other",
    "prepare",
]
MEMORY = ["parameters", "buffers", "gradients", "optimizer", "input", "activations", "other"]
"""In the order of their colours."""
MEAN_MARK = {"type": "point", "filled": True, "size": 80, "opacity": 1, "color": PALETTE[0]}
MODE_COLOURS = (PALETTE[6], PALETTE[7])
SEED_MARK = {"type": "tick", "thickness": 2, "size": 12, "color": PALETTE[-1]}
CELL_AXIS = {"labelLimit": 170, "ticks": False, "domain": False}


def dot_chart(
    cell_values: CellValues, title: str, words: Words, *, is_by_run: bool = False
) -> Spec:
    """A dot per cell with its interval, and a faint tick per seed; by mode, or by run."""
    mode_name = str if is_by_run else words.mode
    mode_title = words("run" if is_by_run else "mode")
    modes = list(dict.fromkeys(mode_name(v.mode) for v in cell_values.values if v.mode is not None))
    cells = list(dict.fromkeys(value.cell for value in cell_values.values))
    x = quantity("x", title, scale=_dot_axis(cell_values))
    place = _dot_place(cells, modes, mode_title)
    seed_hover = [("cell", words("cell"), None), ("x", title, ",.4~r")]
    mean_hover = [
        ("cell", words("cell"), None),
        *([("mode", mode_title, None)] if len(modes) > 1 else []),
        ("x", title, ",.4~r"),
        ("low", words("interval_low"), ",.4~r"),
        ("high", words("interval_high"), ",.4~r"),
    ]
    layers = [_intervals(x, place)]
    if cell_values.seed_values:
        layers.append(_marks("one", SEED_MARK, {**place, "x": x, "tooltip": tooltip(seed_hover)}))
    layers.append(_marks("mean", MEAN_MARK, {**place, "x": x, "tooltip": tooltip(mean_hover)}))
    height = 24 + len(cells) * (10 + 16 * max(1, len(modes)))
    return chart(_dot_rows(cell_values, mode_name), layers, height)


def _dot_rows(cell_values: CellValues, mode_name: Callable[[str], str]) -> list[Spec]:
    """Means first, then single seeds."""
    scale = _scale(cell_values)
    means = [
        {
            "cell": value.cell,
            "mode": "" if value.mode is None else mode_name(value.mode),
            "x": scale * value.value,
            "low": None if value.low is None else scale * value.low,
            "high": None if value.high is None else scale * value.high,
            "kind": "mean",
        }
        for value in cell_values.values
    ]
    seeds = [
        {"cell": cell, "mode": "", "x": scale * value, "kind": "one"}
        for cell, value in cell_values.seed_values
    ]
    return [*means, *seeds]


def _dot_place(cells: Sequence[str], modes: Sequence[str], mode_title: str) -> Spec:
    """A row per cell, and within it one per mode."""
    axis = {**CELL_AXIS, "grid": True}
    y = {"field": "cell", "type": "nominal", "sort": cells, "title": None, "axis": axis}
    if len(modes) < 2:
        return {"y": y}
    offset = {"field": "mode", "type": "nominal", "sort": modes}
    # Not the colours of settings, which stand on the same page.
    return {"y": y, "yOffset": offset, "color": colour("mode", modes, mode_title, MODE_COLOURS)}


def _intervals(x: Spec, place: Spec) -> Spec:
    """From `low` to `high` of every mean that has an interval."""
    return {
        "transform": [of_kind("mean"), {"filter": "isValid(datum.low)"}],
        "mark": {"type": "rule", "strokeWidth": 2, "clip": True, "color": PALETTE[0]},
        "encoding": {**place, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
    }


def _marks(kind: str, mark: Spec, encoding: Spec) -> Spec:
    return {"transform": [of_kind(kind)], "mark": mark, "encoding": encoding}


def _scale(cell_values: CellValues) -> int:
    return 100 if is_share(cell_values.quantity) else 1


def _dot_axis(cell_values: CellValues) -> Spec:
    """Wide enough for every value; an interval wider than that is cut, or it would hide the values."""
    scale, is_metric = _scale(cell_values), "/" in cell_values.quantity
    values = [scale * value.value for value in cell_values.values]
    axis = scale_for(values, fits_zero=not is_metric)
    lows = [scale * value.low for value in cell_values.values if value.low is not None]
    highs = [scale * value.high for value in cell_values.values if value.high is not None]
    if axis.get("type") == "log":
        positive = [low for low in lows if low > 0]
        bottom = max(min(values) / 4, min([*positive, min(values)]))
        return axis | {"domain": [bottom, min(max(values) * 4, max([*highs, *values]))]}
    with_seeds = [*values, *(scale * value for _, value in cell_values.seed_values)]
    width = max(with_seeds) - min(with_seeds)
    margin = width if is_metric else max(width, 0.5 * max(values))
    top = max(min(max(values) + margin, max([*highs, *values])), *with_seeds)
    if is_share(cell_values.quantity):
        top = min(top, 100.0)
    if not is_metric:
        return axis | {"domain": [0, top or 1]}
    floor = 0.0 if min(values) >= 0 else -math.inf
    bottom = max(min(values) - width, min([*lows, *values]), floor)
    return axis | {"domain": [min(bottom, *with_seeds) if cell_values.seed_values else bottom, top]}


def bar_chart(
    bars: Bars,
    unit: str,
    words: Words,
    part_name: Callable[[str], str],
    value_axis: str | None = None,
) -> Spec:
    """Bars of equal length whose parts are shares; with `value_axis`, its title, as long as their values.
    The hover has both."""
    labels = part_labels(bars, words, part_name)
    cells = list(dict.fromkeys(part.cell for part in bars.parts))
    rows = [
        {
            "cell": part.cell,
            "part": labels[part.name],
            "value": part.value,
            "share": part.share,
            "order": bars.names.index(part.name),
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
                "axis": CELL_AXIS,
            },
            "x": _share_axis(words) if value_axis is None else _value_axis(value_axis),
            "color": _part_colours(bars.names, list(labels.values())),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": tooltip(hover),
        },
    }
    return chart(rows, [layer], 34 + 30 * len(cells))


def part_labels(bars: Bars, words: Words, part_name: Callable[[str], str]) -> dict[str, str]:
    """What each part is called, in the order of the stack."""
    others = {REST: words("rest_of_operators"), OUTSIDE: words("outside_operators")}
    return {part: others.get(part) or part_name(part) for part in bars.names}


def _share_axis(words: Words) -> Spec:
    ticks, ends = {"format": "%", "tickCount": 6}, {"domain": [0, 1], "nice": False}
    return quantity("share", words("share_of_whole"), axis=ticks, scale=ends) | {"stack": "zero"}


def _value_axis(title: str) -> Spec:
    return quantity("value", title, axis={"tickCount": 6}) | {"stack": "zero"}


def _part_colours(names: Sequence[str], labels: Sequence[str]) -> Spec:
    """A phase or kind of memory has one colour in every chart; what is left over is grey."""
    fixed = PHASES if "forward" in names else MEMORY if "parameters" in names else names
    places = {name: number for number, name in enumerate(fixed)}
    greys = {REST: PALETTE[-1], OUTSIDE: "#a3abb6", "startup": PALETTE[-1], "first_step": "#a3abb6"}
    encoding = colour("part", labels, None)
    encoding["scale"]["range"] = [
        greys.get(name) or PALETTE[places.get(name, len(places)) % len(PALETTE)] for name in names
    ]
    return encoding
