"""HTML: one self-contained file that opens from disk, offline."""

import base64
import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from trainlab.analysis.charts import PALETTE, VEGA_LITE, config
from trainlab.analysis.document import Block, Document, chart_groups
from trainlab.extras import import_extra
from trainlab.report.pictures import embedded_font, labels_of, png_of_picture
from trainlab.words import Words

FONT = "'Trainlab Report', system-ui, sans-serif"
"""Named rather than inherited from the page: charts measure their texts before they draw them."""
GRID = {"gridColor": "#8a93a0", "gridOpacity": 0.28}
CONFIG = config(FONT, "transparent", "currentColor", "currentColor", GRID)
"""Colours are the page's own, so that a change of theme needs no new drawing."""


def html_of(document: Document) -> str:
    """The page. MissingExtraError where Jinja2 or vl-convert is not installed."""
    words = Words(document.lang)
    charts = {f"chart-{figure.id}": figure.spec for figure in document.figures()}
    specs = json.dumps(
        {"config": CONFIG, "charts": charts}, ensure_ascii=False, separators=(",", ":")
    )
    page: str = (
        _environment()
        .get_template("page.html.j2")
        .render(
            **_means(words, labels_of(document, words)),
            document=document,
            lang_tag=words.language.tag,
            generator="trainlab",
            palette=PALETTE if len(document.cells) <= len(PALETTE) else (),
            style=_markup(_resource("page.css") + embedded_font(document)),
            charts=_markup(_in_script(specs)),
            origin=_markup(_in_script(document.origin)),
            bundle=_markup(_bundle() if charts else "window.trainlabEmbed = null;"),
            script=_markup(_resource("page.js")),
        )
    )
    return page


def blocks_html(blocks: Sequence[Block], words: Words) -> str:
    """Blocks by themselves, without numbers, for another page; not charts, which need its script."""
    template = _environment().get_template("blocks.html.j2")
    return str(template.make_module(_means(words, lambda block: "")).blocks(blocks))


def _means(words: Words, label_of: Callable[[Any], str]) -> dict[str, Any]:
    """What the templates of blocks call."""
    return {
        "words": words,
        "label_of": label_of,
        "chart_groups": chart_groups,
        "kind_of": lambda block: type(block).__name__,
        "svg": lambda block: _markup(block.svg),
        "base64_png": lambda picture: base64.b64encode(png_of_picture(picture)).decode(),
    }


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
