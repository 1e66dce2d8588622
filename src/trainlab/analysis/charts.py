"""The chart kit: figures as Vega-Lite, drawn alike by the browser and by vl-convert.

Names from data are values of the chart, never part of an expression or a field name. Every row has a
`cell`, and every chart a parameter `hidden` with the cells not to draw.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainlab.analysis.document import Figure
from trainlab.analysis.finding import MOST_CELLS
from trainlab.words import Words
from trainlab.words.numbers import figure, is_share, percent

Spec = dict[str, Any]
Hover = list[tuple[str, str, str | None]]
"""Field, title, and the format of a number or None for text."""
VEGA_LITE = "6.4"

PALETTE = (
    *("#3b82c4", "#d9730d", "#2e9e5b", "#d64550", "#9467bd"),
    *("#a0703c", "#6b6fe0", "#5f9127", "#b5533c", "#4f6fb5"),
)
"""Of settings, in the order of the study: clear. These and those below, which nothing else has, have a
contrast of at least 3 : 1 against white and against the dark page."""
OTHERS = (
    *("#696797", "#bb856d", "#4c7a56", "#b6819e", "#2d7a82", "#a6925d"),
    *("#7b618e", "#5fa391", "#945b5b", "#899c69", "#4b7097", "#b48a62"),
)
"""Of operators and layers: dusty."""
GREY, PALE = "#7f8792", "#939ba6"
FORWARD, BACKWARD, DATA, STEP = "#1a9aa6", "#5b8f9f", "#8a8f1a", "#d4569c"
COLOURS = {
    "data": DATA,
    "input": DATA,
    "transfer": "#b08a3a",
    "prepare": "#7a7a3c",
    "zero_grad": "#b07a9a",
    "forward": FORWARD,
    "activations": FORWARD,
    "inference": "#4a8a5f",
    "loss": "#3c9c86",
    "backward": BACKWARD,
    "gradients": BACKWARD,
    "optimizer": STEP,
    "parameters": "#7c6fc4",
    "buffers": "#a083b8",
    "startup": "#687a94",
    "first_step": "#8f9aae",
    "other": GREY,
}
"""Of phases, and of the memory that belongs to them."""

MOST_COLUMNS, MOST_LABELLED = 3, 8
"""Of names in a legend; lines up to which each has its name at its end instead."""
WIDE_RANGE = 20
"""An axis is logarithmic where the largest value is more than so many times the smallest."""


def chart(rows: Sequence[Spec], layers: list[Spec], height: int) -> Spec:
    """The frame around the layers; rows of cells that the reader has hidden are not drawn."""
    # Six digits: more are noise, and make the file larger.
    rounded = [
        {
            name: float(f"{value:.6g}") if isinstance(value, float) else value
            for name, value in row.items()
            if value is not None
        }
        for row in rows
    ]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "height": height,
        "params": [{"name": "hidden", "value": []}],
        "data": {"name": "rows", "values": rounded},
        "transform": [{"filter": "indexof(hidden, datum.cell) < 0"}],
        "layer": layers,
    }


def layer(mark: str, encoding: Spec, *filters: Spec, **look: Any) -> Spec:
    """Marks of one kind, for the rows that pass the filters."""
    return {"transform": list(filters), "mark": {"type": mark, **look}, "encoding": encoding}


def dots(encoding: Spec, *filters: Spec, size: float, **look: Any) -> Spec:
    return layer(
        "point", encoding, *filters, **{"filled": True, "opacity": 1, "size": size, **look}
    )


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
        "text": {"color": ink},
        "axis": {**colours, **lines, "labelSeparation": 5, **sizes},
        "legend": {**colours, **sizes, "symbolOpacity": 1, "layout": {"bottom": below}},
        "autosize": {"type": "fit-x", "contains": "padding"},
    }


def quantity(field: str, title: str, **more: Any) -> Spec:
    """The encoding of a number; `more` is its scale, its axis, or how it is stacked."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def nominal(field: str, title: str | None, order: Sequence[str], axis: Spec) -> Spec:
    return {"field": field, "type": "nominal", "sort": list(order), "title": title, "axis": axis}


def colour(
    field: str,
    names: Sequence[str],
    title: str | None,
    palette: Sequence[str] = PALETTE,
    among: Sequence[str] = (),
) -> Spec:
    """The same name has the same colour in every chart; `among`: of which names these are some, as long as
    each of them has a colour of its own."""
    known = among if len(among) <= len(palette) else ()
    places = {name: number for number, name in enumerate(dict.fromkeys([*known, *names]))}
    colours = [palette[places[name] % len(palette)] for name in names]
    legend = {"title": title, "orient": "bottom", "columns": MOST_COLUMNS, "labelLimit": 260}
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(names), "range": colours},
        "legend": legend if len(names) > 1 else None,
    }


def tooltip(hover: Hover) -> list[Spec]:
    """Vega-Lite writes titles into an expression, where a line must not end and a backslash escapes."""
    return [
        {"field": field, "title": " ".join(title.split()).replace("\\", r"\\")}
        | ({"type": "quantitative", "format": pattern} if pattern else {"type": "nominal"})
        for field, title, pattern in hover
    ]


def interval_hover(words: Words, pattern: str, interval: str = "interval") -> Hover:
    """Its ends, by the name that the caption has for it: a CI, or the range of repeats."""
    return [(end, words(f"{interval}_{end}"), pattern) for end in ("low", "high")]


def axis_title(title: str, scale: Spec, words: Words) -> str:
    return words("log_scale", title=title) if scale.get("type") == "log" else title


def of_kind(kind: str) -> Spec:
    return {"filter": f"datum.kind === '{kind}'"}


def fit_legends(spec: Spec, width: int) -> None:
    """As many columns of names as a chart so many pixels wide has room for; the page does the same."""
    for layer in spec["layer"]:
        hue = layer["encoding"].get("color", {})
        if (legend := hue.get("legend")) and (names := hue["scale"].get("domain")):
            widest = max(map(text_width, names))
            legend["columns"] = max(1, min(MOST_COLUMNS, int(width / (widest + 34))))


def scale_for(values: Iterable[float], *, fits_zero: bool) -> Spec:
    """Logarithmic where the range of values is wide; else from zero, or close to the values."""
    finite = [value for value in values if math.isfinite(value)]
    if finite and min(finite) > 0 and max(finite) / min(finite) > WIDE_RANGE:
        return {"type": "log", "nice": True}
    return {"zero": fits_zero, "nice": True}


def fitted_axis(
    rows: Sequence[Spec],
    field: str = "y",
    *,
    from_zero: bool = False,
    room: float = 1.0,
    highest: float = math.inf,
) -> Spec:
    """Fits the values: intervals of few seeds, which may be far wider, must not flatten them. `room`
    multiplies its upper end, `highest` bounds it."""
    values = [row[field] for row in rows]
    bottom, top = min(values), max(values)
    axis = scale_for(values, fits_zero=from_zero)
    is_log = axis.get("type") == "log"
    bottom = 0.0 if from_zero and not is_log else bottom
    margin = 0.5 * (top - bottom) or 1.0
    lowest, farthest = (bottom / 3, 3 * top) if is_log else (bottom - margin, top + margin)
    ends = [row[end] for row in rows for end in ("low", "high") if row[end] is not None]
    low = max(lowest, min([bottom, *(end for end in ends if end > 0 or not is_log)]))
    high = min(farthest, max([top, *ends])) * room
    if low == high:
        low, high = low - margin, high + margin
    return axis | {"domain": [max(0.0, low) if bottom >= 0 else low, min(high, highest)]}


# Lines over something, with the band of an interval where there is one.


def band_and_line(
    rows: Sequence[Spec],
    x: Spec,
    y: Spec,
    hue: Spec,
    *,
    zoomed: Sequence[str] = ("x",),
    filters: Sequence[Spec] = (),
) -> list[Spec]:
    """Layers: the band of rows that have one, and the line through `y`; `filters` apply to both. Zoomed by
    wheel with Shift held, so that a page still scrolls; dragging moves, a double click resets."""
    place = {"x": x, "y": y, "color": hue}
    selection = {
        "type": "interval",
        "encodings": list(zoomed),
        "zoom": "wheel![event.shiftKey]",
        "translate": "[mousedown, window:mouseup] > window:mousemove!",
    }
    line = layer("line", place, *filters, strokeWidth=2, clip=True)
    line["params"] = [{"name": "zoom", "select": selection, "bind": "scales"}]
    return [*band("area", rows, place, *filters, opacity=0.16), line]


def band(mark: str, rows: Sequence[Spec], place: Spec, *filters: Spec, **look: Any) -> list[Spec]:
    """The layer of the bands of rows that have one; none where no row has."""
    if not any("band_low" in row for row in rows):
        return []
    ends = {"y": {**place["y"], "field": "band_low"}, "y2": {"field": "band_high"}}
    has_band = {"filter": "isValid(datum.band_low)"}
    return [layer(mark, {**place, **ends}, *filters, has_band, clip=True, **look)]


def line_chart(
    rows: Sequence[Spec], x: Spec, y: Spec, hue: Spec, hover: Hover, seeds: Sequence[Spec] = ()
) -> Spec:
    """Curves with their bands, and their names at their ends; points are drawn where there are few, many
    are there only to hover over. `seeds`: rows of single ones, drawn thin."""
    is_few = len(rows) / max(1, len({(row["cell"], row["line"]) for row in rows})) <= 30
    size, opacity = (34, 1) if is_few else (60, 0)
    encoding = {"x": x, "y": y, "color": hue, "tooltip": tooltip(hover)}
    is_mean = {"filter": "!isValid(datum.seed)"}
    points = dots(encoding, is_mean, size=size, opacity=opacity, clip=True)
    one = {"x": x, "y": y, "color": hue, "detail": {"field": "seed", "type": "nominal"}}
    is_seed = {"filter": "isValid(datum.seed)"}
    thin = [layer("line", one, is_seed, strokeWidth=0.8, opacity=0.5, clip=True)] if seeds else []
    lines = band_and_line(rows, x, y, hue, filters=[is_mean])
    return named_lines([*rows, *seeds], [*thin, *lines, points], x, y, hue)


HEIGHT = 260
APART = 0.066
"""Of the height, between the names of two lines."""


def named_lines(rows: Sequence[Spec], layers: list[Spec], x: Spec, y: Spec, hue: Spec) -> Spec:
    """The chart with the name of each line at its end instead of a legend, where they are few; none where
    there is one line."""
    field, names = hue["field"], hue["scale"]["domain"]
    if not 1 < len(names) <= MOST_LABELLED:
        return chart(rows, layers, HEIGHT)
    hue["legend"] = None
    ends = {r[field]: r for r in rows if r.get("seed") is None}
    is_log = y["scale"].get("type") == "log"
    values = [value for value in (r["y"] for r in rows) if value > 0 or not is_log]
    bottom, top = y["scale"].get("domain", (min(values), max(values)))
    place, back = (math.log, math.exp) if is_log else (float, float)
    low, span = place(bottom), place(top) - place(bottom) or 1.0
    above = -math.inf
    order = sorted(ends, key=lambda name: ends[name]["y"])
    spots = {}
    for number, name in enumerate(order):
        own = (place(min(max(ends[name]["y"], bottom), top)) - low) / span
        spots[name] = above = max(min(own, 1 - APART * (len(order) - 1 - number)), above + APART)
    for name, spot in spots.items():
        ends[name] |= {"name": name, "name_y": back(low + span * spot)}
    place_of_name = {"x": x, "y": {**y, "field": "name_y"}, "color": hue, "text": {"field": "name"}}
    look = {
        "align": "left",
        "dx": 7,
        "fontSize": 11,
        "fontWeight": 600,
        "limit": LONGEST_NAME,
        "clip": False,
    }
    has_name = {"filter": "isValid(datum.name)"}
    return chart(rows, [*layers, layer("text", place_of_name, has_name, **look)], HEIGHT)


LONGEST_NAME = 150


def text_width(text: str, size: float = 11.5) -> float:
    """About how wide a text is drawn, in the unit of the size of its letters; that of a chart is in pixels.
    Chinese characters are as wide as high."""
    return sum(size * (1.0 if letter > "\u2e7f" else 0.57) for letter in text)


FEWEST_FOR_BAND = 3


def add_bands(rows: Sequence[Spec], axis: Spec) -> None:
    """To curves of three seeds or more whose median band is at most a quarter of the axis: wider ones hide
    the rest."""
    bottom, top = axis["domain"]
    place = math.log if axis.get("type") == "log" else float
    bands: dict[tuple[str, str], list[tuple[Spec, Spec]]] = defaultdict(list)
    for row in rows:
        if row["low"] is not None and row["n"] >= FEWEST_FOR_BAND:
            cut = cut_band(row["low"], row["high"], bottom, top)
            bands[row["cell"], row["line"]].append((row, cut))
    for own in bands.values():
        heights = [place(cut["band_high"]) - place(cut["band_low"]) for _, cut in own]
        if statistics.median(heights) <= (place(top) - place(bottom)) / 4:
            for row, cut in own:
                row.update(cut)


def cut_band(low: float, high: float, bottom: float, top: float) -> Spec:
    """The band at one x, cut where it leaves the chart."""
    return {"band_low": min(max(low, bottom), top), "band_high": min(max(high, bottom), top)}


# Dots: one quantity over cells.

CELL_AXIS = {"labelLimit": 170, "labelPadding": 6, "ticks": False, "domain": False}


def dot(
    cell: str, mode: str, x: float, ends: Sequence[float | None] = (None, None), kind: str = "mean"
) -> Spec:
    """The row of a cell's value and its interval; of kind `one`, of the value of a single seed."""
    return {"cell": cell, "mode": mode, "x": x, "low": ends[0], "high": ends[1], "kind": kind}


def first_cells(rows: Sequence[Spec]) -> tuple[list[Spec], int]:
    """The rows of the first MOST_CELLS cells, and how many cells that leaves out."""
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    drawn = set(cells[:MOST_CELLS])
    return [row for row in rows if row["cell"] in drawn], len(cells) - len(drawn)


def dot_chart(
    name: str,
    title: str,
    rows: Sequence[Spec],
    words: Words,
    among: Sequence[str] = (),
    *,
    mode_title: str = "mode",
) -> Spec:
    """A dot per cell with its interval, and a faint one per seed; by mode, or by what `mode_title` is the
    key of. `name` is that of a cost or a metric, `among` are all cells of the study."""
    modes = list(dict.fromkeys(row["mode"] for row in rows if row["kind"] == "mean"))
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    highest = 100.0 if is_share(name) else math.inf
    axis = fitted_axis(rows, "x", from_zero="/" not in name, highest=highest)
    x = quantity("x", axis_title(title, axis, words), scale=axis)
    place = {"y": nominal("cell", None, cells, {**CELL_AXIS, "grid": True})}
    place["color"] = colour("cell", cells, None, among=among) | {"legend": None}
    if len({*among, *cells}) > len(PALETTE):
        place["color"] = {"value": GREY}
    look = dict(place)
    hover: Hover = [("cell", words("cell"), None)]
    seed_hover = [*hover, ("x", title, ",.4~r")]
    if len(modes) > 1:
        place["yOffset"] = {"field": "mode", "type": "nominal", "sort": modes}
        shapes = {"domain": modes, "range": ["circle", "diamond"]}
        legend = {"title": words(mode_title), "orient": "bottom", "symbolFillColor": GREY}
        look = place | {"shape": {"field": "mode", "scale": shapes, "legend": legend}}
        hover.append(("mode", words(mode_title), None))
    hover += [("x", title, ",.4~r"), *interval_hover(words, ",.4~r")]
    means, seeds = of_kind("mean"), of_kind("one")
    ends = {**place, "x": {**x, "field": "low"}, "x2": {"field": "high"}}
    has_ends = {"filter": "isValid(datum.low)"}
    layers = [layer("rule", ends, means, has_ends, strokeWidth=2, clip=True)]
    if any(row["kind"] == "one" for row in rows):
        told = {**place, "x": x, "tooltip": tooltip(seed_hover)}
        layers.append(dots(told, seeds, size=26, opacity=0.55))
    layers.append(dots({**look, "x": x, "tooltip": tooltip(hover)}, means, size=80))
    return chart(rows, layers, 24 + len(cells) * (10 + 16 * len(modes)))


NARROW = 240
"""Pixels that a phone has for the bars of a chart and what is written at them."""


def time_chart(rows: Sequence[Spec], title: str, among: Sequence[str], words: Words) -> Spec:
    """A bar per cell and mode from zero to its value, with its interval, and its `label` at its `end`."""
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    room = ((row["end"], min(0.8, text_width(row["label"]) / NARROW)) for row in rows)
    top = max(end / (1 - share) for end, share in room)
    x = quantity("x", title, scale={"domain": [0, top], "nice": False}, axis={"tickCount": 4})
    hue = colour("cell", cells, None, among=among) | {"legend": None}
    shades = {"domain": modes, "range": [1.0, 0.55][: len(modes)]}
    hover: Hover = [("cell", words("cell"), None), ("mode", words("mode"), None)]
    hover += [("x", title, ",.4~r"), *interval_hover(words, ",.4~r", "repeats")]
    place = {
        "y": nominal("cell", None, cells, CELL_AXIS),
        "yOffset": {"field": "mode", "type": "nominal", "sort": modes},
    }
    shade = {"field": "mode", "type": "ordinal", "scale": shades, "legend": None}
    bars = {**place, "x": x, "color": hue, "opacity": shade, "tooltip": tooltip(hover)}
    ends = {**place, "x": {**x, "field": "low"}, "x2": {"field": "high"}}
    labels = {**place, "x": {**x, "field": "end"}, "text": {"field": "label"}}
    has_ends = {"filter": "isValid(datum.low)"}
    layers = [
        layer("bar", bars, height={"band": 0.8}, stroke=None),
        layer("rule", ends, has_ends, strokeWidth=1.5, color=GREY),
        layer(
            "text",
            labels,
            align="left",
            dx=5,
            fontSize=11,
        ),
    ]
    return chart(rows, layers, 30 + len(cells) * (8 + 20 * len(modes)))


# Bars: what the whole of every cell is made of.

Bars = Mapping[str, Mapping[str, float]]
"""By cell, its parts in the order of the stack."""
LEAST_BAR = 210
"""Pixels of a whole bar where a page is narrow."""
REST = ""
"""The name of the part that holds all other operators."""
OUTSIDE = "outside"
"""The part of a step that no operator accounts for."""


def bar_figure(
    bars: Bars,
    kind: str,
    mode: str,
    unit: str,
    words: Words,
    part_name: Callable[[str], str],
    value_axis: str | None = None,
    among: Sequence[str] = (),
) -> Figure:
    """A bar per cell, made of its parts: all of equal length, whose parts are shares, or with `value_axis`,
    its title, as long as their values. The hover has both, the alt text the three largest parts of the
    first cell. Parts have their names in them where there is room, the others a legend. `among`: all the
    names that have a colour, where it is none of COLOURS."""
    names = list(dict.fromkeys(name for parts in bars.values() for name in parts))
    left_over = {REST: words("rest_of_operators"), OUTSIDE: words("outside_operators")}
    labels = {name: left_over.get(name) or part_name(name) for name in names}
    rows: list[Spec] = [
        {
            "cell": cell,
            "part": labels[name],
            "value": value,
            "share": value / (sum(parts.values()) or 1.0),
            "order": names.index(name),
        }
        for cell, parts in bars.items()
        for name, value in parts.items()
    ]
    longest = max(sum(parts.values()) for parts in bars.values()) or 1.0
    for row in rows:
        whole = row["share"] if value_axis is None else row["value"] / longest
        fits = kind != "operators" and text_width(row["part"]) < whole * LEAST_BAR
        row["inside"] = row["part"] if fits else ""
    places = {name: number for number, name in enumerate(dict.fromkeys([*among, *names]))}
    fixed = {REST: GREY, OUTSIDE: PALE} | (COLOURS if kind != "operators" else {})
    hue = colour("part", list(labels.values()), None)
    hue["scale"]["range"] = [
        fixed.get(name)
        or (STEP if name.startswith("Optimizer.") else OTHERS[places[name] % len(OTHERS)])
        for name in names
    ]
    named = {row["inside"] for row in rows}
    others = [label for label in labels.values() if label not in named]
    hue["legend"] = hue["legend"] and ({**hue["legend"], "values": others} if others else None)
    ticks, ends = {"format": "%", "tickCount": 6}, {"domain": [0, 1], "nice": False}
    x = quantity("share", words("share_of_whole"), axis=ticks, scale=ends, stack="zero")
    if value_axis is not None:
        x = quantity("value", value_axis, axis={"tickCount": 6}, stack="zero")
    hover: Hover = [
        ("cell", words("cell"), None),
        ("part", words("part"), None),
        ("value", unit, ",.4~r"),
        ("share", words("share"), ".1%"),
    ]
    encoding: Spec = {
        "y": nominal("cell", None, list(bars), CELL_AXIS),
        "x": x,
        "color": hue,
        "order": {"field": "order", "type": "quantitative"},
        "tooltip": tooltip(hover),
    }
    bar = layer("bar", encoding, stroke=None, height={"band": 0.72})
    inside: Spec = {**encoding, "color": {"value": "#10151c"}, "text": {"field": "inside"}}
    inside |= {"x": x | {"bandPosition": 0.5}, "detail": {"field": "part", "type": "nominal"}}
    texts = layer("text", inside, fontSize=10.5)
    first = next(iter(bars))
    largest = sorted((row for row in rows if row["cell"] == first), key=lambda row: -row["value"])
    told = words.listed(
        f"{row['part']} {figure(row['value'])} {unit}"
        if value_axis
        else f"{row['part']} {percent(row['share'])}"
        for row in largest[:3]
    )
    caption = words(f"{kind}_caption", step=words.step(mode))
    return Figure(
        id=f"{kind}-{mode}",
        caption=caption,
        alt=words("bars_alt", caption=caption) + words("bars_alt_first", cell=first, parts=told),
        spec=chart(rows, [bar, texts], 34 + 30 * len(bars)),
        note=words(f"{kind}_note"),
    )
