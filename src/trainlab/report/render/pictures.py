"""Charts as still pictures, by vl-convert: for Markdown and PDF."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from trainlab.analysis.charts import VEGA_LITE, config, fit_legends
from trainlab.analysis.document import Document, Figure
from trainlab.extras import import_extra
from trainlab.report.render.fonts import FAMILY, font_folder

WIDTH = 520
FALLBACK = "Helvetica, Arial, sans-serif"
SCALE = 2.0
CONFIG = config(FAMILY, "white", "#1c2430", "#566070", {"gridColor": "#dfe4ea"}) | {"padding": 8}


def pictures(document: Document, widths: Mapping[str, int] | None = None) -> dict[str, str]:
    """Every chart and drawing as SVG, by its id; `widths` of charts in pixels where they are not the usual.
    MissingExtraError without vl-convert."""
    widths = widths or {}
    drawings = {drawing.id: drawing.svg for drawing in document.drawings()}
    charts = {
        figure.id: _svg(json.dumps(figure.spec), widths.get(figure.id, WIDTH))
        for figure in document.figures()
    }
    return drawings | charts


def picture(figure: Figure, width: int = WIDTH) -> str:
    """One chart as SVG."""
    return _svg(json.dumps(figure.spec), width)


def png_of(svg: str) -> bytes:
    """The picture in pixels, with its glyphs drawn: for readers whose machine lacks the font."""
    picture: bytes = _converter().svg_to_png(svg, scale=SCALE)
    return picture


@cache
def _svg(spec: str, width: int) -> str:
    """Cached, since a report that is checked is drawn again."""
    still = json.loads(spec) | {"width": width, "config": CONFIG}
    fit_legends(still, width)
    if still["layer"][0]["encoding"]["y"]["type"] == "quantitative":
        # Charts of curves keep their proportions; all others are as high as their rows need.
        still["height"] = round(still["height"] * width / WIDTH)
    # Points that are there only to hover over have nothing to show here.
    still["layer"] = [layer for layer in still["layer"] if layer["mark"].get("opacity") != 0]
    picture: str = _converter().vegalite_to_svg(still, VEGA_LITE)
    # A viewer of Markdown lacks our font; without a fallback it would use its serif one.
    return picture.replace(f'font-family="{FAMILY}"', f'font-family="{FAMILY}, {FALLBACK}"')


@cache
def _converter() -> Any:
    converter = import_extra("vl_convert", "a chart")
    converter.register_font_directory(str(font_folder()))
    return converter
