"""HTML: one self-contained file that opens from disk, offline."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from trainlab.analysis.charts import PALETTE, VEGA_LITE, config
from trainlab.analysis.document import Block, Document, Figure, chart_groups, is_folded
from trainlab.extras import import_extra
from trainlab.report.pictures import embedded_font, labels_of, png_of_picture
from trainlab.words import Words

FONT = "'Trainlab Latin', 'Trainlab Report', system-ui, sans-serif"
"""Named rather than inherited from the page: charts measure their texts before they draw them."""
GRID = {"gridColor": "#8a93a0", "gridOpacity": 0.28}
CONFIG = config(FONT, "transparent", "currentColor", "currentColor", GRID)
"""Colours are the page's own, so that a change of theme needs no new drawing."""


@dataclass(frozen=True)
class Part:
    """A piece of a page: its header, its contents, a section."""

    id: str
    html: str
    charts: Mapping[str, Any] = field(default_factory=dict)
    """Vega-Lite by the id of the element that it is drawn in."""


def parts_of(document: Document) -> tuple[Part, ...]:
    """The page piece by piece: header, settings to hide, contents, footer, then the sections in order."""
    words = Words(document.lang)
    palette = PALETTE if len(document.cells) <= len(PALETTE) else ()
    pieces = _template("blocks.html.j2", **_means(words, labels_of(document, words)))
    parts = [
        Part("header", pieces.header_of(document)),
        Part("cells", pieces.cells_of(document, palette)),
        Part("contents", pieces.contents_of(document)),
        Part("footer", pieces.footer_of(document)),
    ]
    for section in document.sections:
        figures = (block for block in section.all_blocks() if isinstance(block, Figure))
        charts = {f"chart-{figure.id}": figure.spec for figure in figures}
        parts.append(Part(section.id, pieces.part(section), charts))
    return tuple(parts)


def html_of(document: Document) -> str:
    """The page. MissingExtraError where Jinja2 or vl-convert is not installed."""
    words, parts = Words(document.lang), parts_of(document)
    charts = {name: spec for part in parts for name, spec in part.charts.items()}
    pieces = {part.id: _markup(part.html) for part in parts}
    page: str = (
        environment("report")
        .get_template("page.html.j2")
        .render(
            words=words,
            document=document,
            pieces=pieces,
            sections=[pieces[section.id] for section in document.sections],
            generator="trainlab",
            style=_markup(resource("page.css") + embedded_font(document)),
            charts=_markup(charts_json(charts)),
            origin=_markup(_in_script(document.origin)),
            bundle=_markup(bundle().replace("</script", "<\\/script") if charts else NO_CHARTS),
            script=_markup(resource("page.js")),
        )
    )
    return page


NO_CHARTS = "window.trainlabEmbed = null;"


def charts_json(charts: Mapping[str, Any]) -> str:
    """Charts by the ids of their places, and how all are drawn, as a script element holds them."""
    value = {"config": CONFIG, "charts": charts}
    return _in_script(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def blocks_html(blocks: Sequence[Block], words: Words) -> str:
    """Blocks by themselves, without numbers, for another page; not charts, which need its script."""
    return str(_template("blocks.html.j2", **_means(words, lambda block: "")).blocks(blocks))


def _template(name: str, **means: Any) -> Any:
    """The macros of a template."""
    return environment("report").get_template(name).make_module(means)


def _means(words: Words, label_of: Callable[[Any], str]) -> dict[str, Any]:
    """What the templates of blocks call."""
    return {
        "words": words,
        "label_of": label_of,
        "chart_groups": chart_groups,
        "is_folded": is_folded,
        "kind_of": lambda block: type(block).__name__,
        "svg": lambda block: _markup(block.svg),
        "base64_png": lambda picture: base64.b64encode(png_of_picture(picture)).decode(),
    }


def _in_script(text: str) -> str:
    """JSON that cannot end the script element it stands in."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def environment(*rooms: str) -> Any:
    """What renders the templates of rooms of trainlab, compiled once."""
    jinja2 = import_extra("jinja2", "an HTML report")
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("trainlab", room) for room in rooms]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed from the installed wheel, in a scope of their own."""
    converter = import_extra("vl_convert", "an HTML report")
    code: str = converter.javascript_bundle(
        "window.trainlabEmbed = vegaEmbed;", vl_version=VEGA_LITE
    )
    return "(function () {" + code + "\n})();"


@cache
def resource(name: str) -> str:
    return (files("trainlab.report") / name).read_text(encoding="utf-8")


def _markup(text: str) -> Any:
    """Not escaped again: for our own files and drawings, whose texts are escaped already."""
    return import_extra("markupsafe", "an HTML report").Markup(text)
