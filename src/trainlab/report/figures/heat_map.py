"""Heat map: one quantity over two factors, a square for each pair of levels."""

from collections.abc import Callable

from trainlab.analysis.contrast import level_of
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.names import factor_name
from trainlab.report.figures.vega import Spec, chart, tooltip
from trainlab.spec import Cell
from trainlab.spec.cell import level_text
from trainlab.words import Words

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
