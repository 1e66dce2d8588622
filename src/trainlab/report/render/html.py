"""HTML: one self-contained file that opens from disk, offline."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from trainlab.report.document import Block, Document, Figure
from trainlab.report.figures.vega import PALETTE
from trainlab.report.render.extras import needed
from trainlab.report.render.fonts import embedded_font
from trainlab.report.render.numbering import Numbers
from trainlab.words import Words

VEGA_LITE = "6.4"
FONT = "'Trainlab Report', system-ui, sans-serif"
"""Named, not inherited: charts measure their texts before they draw them."""
CONFIG: dict[str, Any] = {
    "aria": False,
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": "transparent"},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "domainColor": "currentColor",
        "tickColor": "currentColor",
        "gridColor": "#8a93a0",
        "gridOpacity": 0.28,
        "labelSeparation": 5,
        "labelFontSize": 11.5,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
    "legend": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "labelFontSize": 11.5,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "symbolOpacity": 1,
    },
    "autosize": {"type": "fit-x", "contains": "padding"},
}
"""Colours are the page's own, so that a change of theme needs no new drawing."""


@dataclass(frozen=True)
class _Group:
    """Blocks that are laid out together: charts side by side, anything else by itself."""

    kind: str
    blocks: list[Block]


def html_of(document: Document) -> str:
    """The page. MissingExtraError where Jinja2 or vl-convert is not installed."""
    jinja2 = needed("jinja2", "an HTML report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words = Words(document.lang)
    page: str = environment.get_template("page.html.j2").render(
        document=document,
        words=words,
        lang_tag={"en": "en", "zh": "zh-CN"}[document.lang],
        generator="trainlab",
        palette=PALETTE if len(document.cells) <= len(PALETTE) else (),
        numbers=Numbers(document),
        grouped=_grouped,
        kind_of=lambda block: type(block).__name__,
        svg=lambda block: _markup(block.svg),
        style=_markup(_resource("page.css") + embedded_font(document)),
        charts=_markup(_charts(document)),
        bundle=_markup(_bundle() if document.figures() else "window.trainlabEmbed = null;"),
        script=_markup(_resource("page.js")),
    )
    return page


def _grouped(blocks: tuple[Block, ...]) -> list[_Group]:
    groups: list[_Group] = []
    for block in blocks:
        if isinstance(block, Figure):
            if not groups or groups[-1].kind != "figures":
                groups.append(_Group("figures", []))
            groups[-1].blocks.append(block)
        else:
            groups.append(_Group("block", [block]))
    return groups


def _charts(document: Document) -> str:
    """The specs as JSON that cannot end the script it stands in."""
    specs = {f"chart-{one.id}": one.spec for one in document.figures()}
    told = json.dumps(
        {"config": CONFIG, "charts": specs}, ensure_ascii=False, separators=(",", ":")
    )
    return told.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed from the installed wheel, in a scope of their own."""
    converter = needed("vl_convert", "an HTML report")
    code: str = converter.javascript_bundle(
        "window.trainlabEmbed = vegaEmbed;", vl_version=VEGA_LITE
    )
    return "(function () {" + code.replace("</script", "<\\/script") + "\n})();"


@cache
def _resource(name: str) -> str:
    return (files("trainlab.report.render") / name).read_text(encoding="utf-8")


def _markup(text: str) -> Any:
    """Our own files and drawings, whose texts are escaped already."""
    return needed("markupsafe", "an HTML report").Markup(text)
