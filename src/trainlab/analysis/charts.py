"""The chart kit: figures as Vega-Lite, drawn alike by the browser and by vl-convert.

Names from data are values of the chart, never part of an expression or a field name. Every row has a
`cell`, and every chart a parameter `hidden` with the cells not to draw.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainlab.analysis.document import Figure
from trainlab.analysis.evidence import Evidence, level_of
from trainlab.analysis.finding import MOST_CELLS, factor_name
from trainlab.analysis.measurement import MODES, Estimate
from trainlab.analysis.metrics import limits_of
from trainlab.spec import Cell
from trainlab.spec.study import level_text
from trainlab.stats.means import mean_of
from trainlab.words import Words
from trainlab.words.numbers import MIB, figure, is_share, percent

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


REST = ""
"""The name of the part that holds all other operators."""
OUTSIDE = "outside"
"""The part of a step that no operator accounts for."""


@dataclass(frozen=True)
class Part:
    """One piece of one cell's bar."""

    cell: str
    name: str
    value: float
    """In the unit of the bars."""
    share: float
    """Of the cell's bar."""


@dataclass(frozen=True)
class Bars:
    """Stacked bars, one per cell, whose parts add up to the whole."""

    mode: str
    names: tuple[str, ...]
    """The parts in the order of the stack."""
    parts: tuple[Part, ...]


def bars_of(mode: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> Bars | None:
    """From the parts of each cell; None where nothing was measured."""
    names = tuple(dict.fromkeys(name for _, parts in rows for name in parts))
    parts = tuple(
        Part(cell, name, value, value / total)
        for cell, values in rows
        if (total := sum(values.values())) > 0
        for name, value in values.items()
    )
    return Bars(mode, names, parts) if parts else None


COSTS = ("step_ms", "sample_us", "epoch_s", "samples_per_s")
"""Quantities of a cost summary that are drawn over cells."""


@dataclass(frozen=True)
class CellValue:
    """The value of one cell, and its interval where there is one."""

    cell: str
    mode: str | None
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class CellValues:
    """One quantity over cells: `step_ms`, `peak_mib`, or a metric."""

    quantity: str
    values: tuple[CellValue, ...]
    seed_values: tuple[tuple[str, float], ...] = ()
    """Cell and value of each seed."""
    num_left_out: int = 0
    """Cells beyond those drawn."""


def metric_values(evidence: Evidence, metric: str) -> CellValues | None:
    """Where each cell ended: the mean over seeds and the value of every seed."""
    values, seed_values = [], []
    for cell in evidence.cells:
        by_seed = list(evidence.values(cell.id, metric).values())
        if (mean := mean_of(by_seed, limits_of(metric, by_seed))) is not None:
            values.append(CellValue(cell.id, None, mean.value, *mean.ends))
            seed_values += [(cell.id, value) for value in by_seed if math.isfinite(value)]
    return _first_cells(metric, values, seed_values)


def cost_values(evidence: Evidence, quantity: str) -> CellValues | None:
    """One of COSTS of every cell, by mode."""
    values = []
    for mode in MODES:
        for measurement in evidence.measured_in(mode):
            cost: Estimate = getattr(measurement.summary, quantity)
            cell = measurement.trial.cell
            values.append(CellValue(cell, mode, cost.value, cost.low, cost.high))
    return _first_cells(quantity, values)


def memory_values(evidence: Evidence) -> CellValues | None:
    """`peak_mib` of every cell, by mode."""
    values = [
        CellValue(measurement.trial.cell, mode, measurement.memory.peak_bytes / MIB)
        for mode in MODES
        for measurement in evidence.measured_in(mode)
        if measurement.memory is not None
    ]
    return _first_cells("peak_mib", values)


def _first_cells(
    quantity: str, values: Sequence[CellValue], seed_values: Sequence[tuple[str, float]] = ()
) -> CellValues | None:
    """The values of the first MOST_CELLS cells; None where there are no values."""
    if not values:
        return None
    cells = list(dict.fromkeys(value.cell for value in values))
    drawn = set(cells[:MOST_CELLS])
    return CellValues(
        quantity,
        tuple(value for value in values if value.cell in drawn),
        tuple((cell, value) for cell, value in seed_values if cell in drawn),
        num_left_out=len(cells) - len(drawn),
    )


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


def bar_figure(
    bars: Bars,
    kind: str,
    unit: str,
    words: Words,
    part_name: Callable[[str], str],
    value_axis: str | None = None,
) -> Figure:
    """A bar per cell, made of its parts: of shares, or with `value_axis`, its title, of values. The three
    largest parts of the first cell are in the alt text."""
    first = bars.parts[0].cell
    parts = sorted((p for p in bars.parts if p.cell == first), key=lambda part: -part.value)[:3]
    sizes = (f"{figure(p.value)} {unit}" if value_axis else percent(p.share) for p in parts)
    labels = part_labels(bars, words, part_name)
    names = (labels[part.name] for part in parts)
    largest = words.listed(map(" ".join, zip(names, sizes, strict=True)))
    caption = words(f"{kind}_caption", step=words.step(bars.mode))
    return Figure(
        id=f"{kind}-{bars.mode}",
        caption=caption,
        alt=words("bars_alt", caption=caption) + words("bars_alt_first", cell=first, parts=largest),
        spec=bar_chart(bars, unit, words, part_name, value_axis),
        note=words(f"{kind}_note"),
    )


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
            row.update(cut_band(row["low"], row["high"], bottom, top))


def cut_band(low: float, high: float, bottom: float, top: float) -> Spec:
    """The band at one x, cut where it leaves the chart."""
    return {"band_low": min(max(low, bottom), top), "band_high": min(max(high, bottom), top)}


def point_mark(rows: Sequence[Spec]) -> Spec:
    """Points are drawn where there are few; many are invisible and there only to hover over."""
    is_few = len(rows) / max(1, len({(row["cell"], row["line"]) for row in rows})) <= 30
    size, opacity = (34, 1) if is_few else (60, 0)
    return {"type": "point", "filled": True, "size": size, "opacity": opacity, "clip": True}


FEWEST_CELLS = 4
SQUARE = 34
"""Height of a row, in pixels."""


def heat_map(
    evidence: Evidence,
    value_of: Callable[[Cell], float | None],
    text_of: Callable[[float], str],
    title: str,
    words: Words,
) -> Spec | None:
    """None unless the study is a grid of two factors with two levels each or more."""
    factors = [f for f in evidence.factors if len({repr(_level(c, f)) for c in evidence.cells}) > 1]
    if len(factors) != 2 or len(evidence.cells) < FEWEST_CELLS:
        return None
    across, down = factors
    values = [value for cell in evidence.cells if (value := value_of(cell)) is not None]
    rows: list[Spec] = [
        {
            "cell": cell.id,
            "across": _level(cell, across),
            "down": _level(cell, down),
            "value": value,
            "text": text_of(value),
        }
        for cell in evidence.cells
        if (value := value_of(cell)) is not None
    ]
    if len(rows) < FEWEST_CELLS or len({(row["across"], row["down"]) for row in rows}) < len(rows):
        return None
    levels = {name: list(dict.fromkeys(row[name] for row in rows)) for name in ("across", "down")}
    place = {
        "x": _axis("across", factor_name(across, words), levels["across"]),
        "y": _axis("down", factor_name(down, words), levels["down"]),
        "tooltip": tooltip([("cell", words("cell"), None), ("text", title, None)]),
    }
    colour = {
        "field": "value",
        "type": "quantitative",
        "title": title,
        "scale": {"range": ["#dbe9f6", "#2a6fb0"], "zero": False},
    }
    middle = (min(values) + max(values)) / 2
    ink = {
        "condition": {"test": f"datum.value > {middle:.6g}", "value": "#ffffff"},
        "value": "#1c2430",
    }
    layers: list[Spec] = [
        {"mark": {"type": "rect", "stroke": "#ffffff"}, "encoding": {**place, "color": colour}},
        {
            "mark": {"type": "text", "fontSize": 12},
            "encoding": {**place, "text": {"field": "text"}, "color": ink},
        },
    ]
    return chart(rows, layers, 30 + SQUARE * len(levels["down"]))


def _level(cell: Cell, factor: str) -> str:
    level = level_of(cell, factor)
    return "" if level is None else level_text(level)


def _axis(field: str, title: str, levels: list[str]) -> Spec:
    axis = {"labelAngle": 0, "ticks": False, "domain": False, "grid": False}
    return {"field": field, "type": "nominal", "title": title, "sort": levels, "axis": axis}
