"""HTML: one self-contained file that opens from disk, offline."""

import base64
import json
from functools import cache
from importlib.resources import files
from typing import Any

from trainlab.analysis.charts import PALETTE, VEGA_LITE, config
from trainlab.analysis.document import Document, chart_groups
from trainlab.extras import import_extra
from trainlab.record.learning_record import Picture
from trainlab.report.pictures import Labels, embedded_font, png_of_picture
from trainlab.words import Words

FONT = "'Trainlab Report', system-ui, sans-serif"
"""Named rather than inherited from the page: charts measure their texts before they draw them."""
GRID = {"gridColor": "#8a93a0", "gridOpacity": 0.28}
CONFIG = config(FONT, "transparent", "currentColor", "currentColor", GRID)
"""Colours are the page's own, so that a change of theme needs no new drawing."""


def html_of(document: Document) -> str:
    """The page. MissingExtraError where Jinja2 or vl-convert is not installed."""
    words = Words(document.lang)
    page: str = (
        _environment()
        .get_template("page.html.j2")
        .render(
            document=document,
            words=words,
            lang_tag=words.language.tag,
            generator="trainlab",
            palette=PALETTE if len(document.cells) <= len(PALETTE) else (),
            label_of=Labels(document, words).of,
            chart_groups=chart_groups,
            kind_of=lambda block: type(block).__name__,
            svg=lambda block: _markup(block.svg),
            embedded=_embedded,
            style=_markup(_resource("page.css") + embedded_font(document)),
            charts=_markup(_charts(document)),
            origin=_markup(_in_script(document.origin)),
            bundle=_markup(_bundle() if document.figures() else "window.trainlabEmbed = null;"),
            script=_markup(_resource("page.js")),
        )
    )
    return page


def _embedded(picture: Picture) -> str:
    """A small picture inside the page."""
    return f"data:image/png;base64,{base64.b64encode(png_of_picture(picture)).decode()}"


def _charts(document: Document) -> str:
    """The specs as JSON."""
    charts = {f"chart-{figure.id}": figure.spec for figure in document.figures()}
    value = {"config": CONFIG, "charts": charts}
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _in_script(text)


def _in_script(text: str) -> str:
    """JSON that cannot end the script element it stands in."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _environment() -> Any:
    """With the templates compiled once."""
    jinja2 = import_extra("jinja2", "an HTML report")
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed from the installed wheel, in a scope of their own."""
    converter = import_extra("vl_convert", "an HTML report")
    code: str = converter.javascript_bundle(
        "window.trainlabEmbed = vegaEmbed;", vl_version=VEGA_LITE
    )
    return "(function () {" + code.replace("</script", "<\\/script") + "\n})();"


@cache
def _resource(name: str) -> str:
    return (files("trainlab.report") / name).read_text(encoding="utf-8")


def _markup(text: str) -> Any:
    """Not escaped again: for our own files and drawings, whose texts are escaped already."""
    return import_extra("markupsafe", "an HTML report").Markup(text)
