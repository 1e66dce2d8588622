"""Charts as still pictures, by vl-convert: for Markdown and PDF."""

import json
from functools import cache
from typing import Any

from trainlab.report.document import Document
from trainlab.report.render.extras import needed
from trainlab.report.render.fonts import FAMILY, font_folder

VEGA_LITE = "6.4"
WIDTH = 520
FALLBACK = "Helvetica, Arial, sans-serif"
SCALE = 2.0
INK, FAINT = "#1c2430", "#566070"
CONFIG: dict[str, Any] = {
    "aria": False,
    "font": FAMILY,
    "background": "white",
    "padding": 8,
    "view": {"stroke": "transparent"},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "domainColor": FAINT,
        "tickColor": FAINT,
        "gridColor": "#dfe4ea",
        "labelSeparation": 5,
        "labelFontSize": 11.5,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelFont": FAMILY,
        "titleFont": FAMILY,
    },
    "legend": {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 11.5,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelFont": FAMILY,
        "titleFont": FAMILY,
        "symbolOpacity": 1,
    },
    "autosize": {"type": "fit-x", "contains": "padding"},
}


def pictures(document: Document) -> dict[str, str]:
    """Every chart and drawing as SVG, by its id. MissingExtraError without vl-convert."""
    found = {one.id: one.svg for one in document.drawings()}
    found |= {one.id: _svg(json.dumps(one.spec)) for one in document.figures()}
    return found


def png_of(svg: str) -> bytes:
    """The picture in pixels, with its glyphs drawn: for readers whose machine lacks the font."""
    picture: bytes = _converter().svg_to_png(svg, scale=SCALE)
    return picture


@cache
def _svg(spec: str) -> str:
    """Kept: Markdown and PDF draw the same charts."""
    told = json.loads(spec) | {"width": WIDTH, "config": CONFIG}
    # Points that only carry a hover have nothing to show here.
    told["layer"] = [layer for layer in told["layer"] if layer["mark"].get("opacity") != 0]
    picture: str = _converter().vegalite_to_svg(told, VEGA_LITE)
    # A viewer of Markdown lacks our font; without a choice it would take its serif one.
    return picture.replace(f'font-family="{FAMILY}"', f'font-family="{FAMILY}, {FALLBACK}"')


@cache
def _converter() -> Any:
    converter = needed("vl_convert", "a chart")
    converter.register_font_directory(str(font_folder()))
    return converter
