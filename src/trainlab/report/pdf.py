"""PDF by typst, from a fixed template and data: texts are data, so nothing in them is markup."""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from textwrap import wrap
from typing import Any

from trainlab.analysis.document import (
    Block,
    Bullets,
    Document,
    Drawing,
    Entry,
    Figure,
    Gallery,
    Listing,
    Notice,
    OwnText,
    Paragraph,
    Section,
    Statements,
    Table,
    chart_groups,
)
from trainlab.extras import import_extra
from trainlab.record.files import temporary_folder
from trainlab.report.pictures import (
    FAMILY,
    Labels,
    font_folder,
    lacks_glyphs,
    pictures,
    png_of_picture,
    table_note,
)
from trainlab.report.wrapping import cells
from trainlab.words import Words

MONO = "DejaVu Sans Mono"
"""Comes with typst."""
MANY_COLUMNS = 6
LISTING_PT = 8.2
LISTING_WIDTH_PT = 484
HALF_WIDTH = 370
"""Pixels of a chart that stands beside another: its letters are still those of a footnote."""
WRAPPED = 14
"""Letters of a line in the heading of one of many columns."""
FULL_WIDTH = 800
"""A drawing so wide, in its own units, fills the page's width."""


def pdf_of(document: Document) -> bytes:
    """The same document gives the same bytes. MissingExtraError without typst or vl-convert."""
    typst = import_extra("typst", "a PDF report")
    words = Words(document.lang)
    with temporary_folder() as root:
        for name, svg in pictures(document, _widths(document)).items():
            (root / f"{name}.svg").write_text(svg, encoding="utf-8")
        for gallery in document.galleries():
            for number, item in enumerate(gallery.items):
                (root / _file_of(gallery, number)).write_bytes(png_of_picture(item.picture))
        (root / "data.json").write_text(json.dumps(_data(document, words)), encoding="utf-8")
        template = (files("trainlab.report") / "report.typ").read_text(encoding="utf-8")
        (root / "report.typ").write_text(template, encoding="utf-8")
        compiled, warnings = typst.compile_with_warnings(
            str(root / "report.typ"),
            root=str(root),
            font_paths=[str(font_folder())],
            # The reader's fonts only where ours cannot show an author's name: they make other bytes.
            ignore_system_fonts=not (document.origin and lacks_glyphs(document)),
            timestamp=0,
        )
    # To typst a missing font is only a warning; a reader would see boxes.
    assert not warnings, [warning.message for warning in warnings]
    pdf: bytes = compiled
    return pdf


def _data(document: Document, words: Words) -> dict[str, Any]:
    labels = Labels(document, words)
    return {
        "title": document.title,
        "subtitle": document.subtitle,
        "byline": document.byline,
        "origin": document.origin,
        "lang": document.lang,
        "font": FAMILY,
        "mono": MONO,
        "mark_width": 19 if words.language.is_cjk else 24,
        "footer": document.made_by,
        "evidence": words("evidence"),
        "page": words.template("page"),
        "notices": [_notice(notice, words) for notice in document.notices],
        "sections": [_section(section, words, labels) for section in document.sections],
    }


def _widths(document: Document) -> dict[str, int]:
    """Of the charts that stand beside others."""
    sections = (inner for section in document.sections for inner in section.with_inner())
    groups = (group for one in sections for is_chart, group in chart_groups(one.blocks) if is_chart)
    charts = (block for group in groups if len(group) > 1 for block in group)
    return {chart.id: HALF_WIDTH for chart in charts if isinstance(chart, Figure)}


def _section(section: Section, words: Words, labels: Labels) -> dict[str, Any]:
    return {
        "id": section.id,
        "title": section.title,
        "blocks": list(_blocks(section.blocks, words, labels)),
        "sections": [_section(inner, words, labels) for inner in section.sections],
    }


def _blocks(blocks: tuple[Block, ...], words: Words, labels: Labels) -> Iterator[dict[str, Any]]:
    """Neighbouring charts are laid out together."""
    for is_chart, group in chart_groups(blocks):
        values = [_block(block, words, labels) for block in group]
        yield from [{"kind": "figures", "figures": values}] if is_chart else values


def _block(block: Block, words: Words, labels: Labels) -> dict[str, Any]:
    match block:
        case Paragraph(text):
            return {"kind": "paragraph", "text": text}
        case Notice():
            return _notice(block, words)
        case Bullets(items):
            return {"kind": "bullets", "items": [dict(vars(item)) for item in items]}
        case Statements(items, is_lead):
            values = [dict(vars(item)) for item in items]
            return {"kind": "statements", "items": values, "is_lead": is_lead}
        case Table():
            return _table(block, words, labels)
        case Figure() | Drawing():
            return _picture(block, labels)
        case Gallery():
            return _gallery(block, labels)
        case Listing(caption, text, _, is_folded):
            size = _fitting_pt(text) if is_folded else LISTING_PT
            return {"kind": "listing", "caption": caption, "text": text, "size": size}
        case OwnText(label, parts):
            return {"kind": "own", "label": label, "parts": [dict(vars(part)) for part in parts]}


def _fitting_pt(text: str) -> float:
    """The size of letters at which the longest line of a listing fits the page."""
    longest = max(map(len, text.splitlines()), default=0)
    return min(LISTING_PT, LISTING_WIDTH_PT / (0.602 * max(1, longest)))


def _notice(notice: Notice, words: Words) -> dict[str, Any]:
    label = words(f"{notice.tone}_mark") + words("colon")
    return {"kind": "notice", "tone": notice.tone, "label": label, "text": notice.text}


def _picture(block: Figure | Drawing, labels: Labels) -> dict[str, Any]:
    picture: dict[str, Any] = {
        "kind": "drawing",
        "label": labels.of(block),
        "caption": block.caption,
        "alt": block.alt,
        "note": block.note,
        "path": f"{block.id}.svg",
    }
    if isinstance(block, Drawing):
        width = float(re.search(r'width="([\d.]+)"', block.svg)[1])  # type: ignore[index]
        picture["percent"] = 100 * width / FULL_WIDTH
    return picture


def _gallery(block: Gallery, labels: Labels) -> dict[str, Any]:
    items = [
        {"path": _file_of(block, number), "alt": one.alt, "text": one.text, "remark": one.remark}
        for number, one in enumerate(block.items)
    ]
    facts = {"label": labels.of(block), "caption": block.caption, "note": block.note}
    return {"kind": "gallery", "items": items, **facts}


def _file_of(gallery: Gallery, number: int) -> str:
    return f"{gallery.id}-{number}.png"


def _table(block: Table, words: Words, labels: Labels) -> dict[str, Any]:
    return {
        "kind": "table",
        "label": labels.of(block),
        "caption": block.caption,
        "columns": [
            {"heading": _heading(column.heading, block), "is_number": column.is_number}
            for column in block.columns
        ],
        "flexible": _flexible(block),
        "rows": [
            [
                {
                    "text": _text(entry, block),
                    "mark": entry.mark,
                    "tone": entry.tone,
                    "shade": entry.shade,
                }
                for entry in row.entries
            ]
            for row in block.shown
        ],
        "is_code": block.is_code,
        "is_matrix": block.is_matrix,
        "is_upright": block.has_upright_headings,
        "note": table_note(block, words),
    }


def _heading(text: str, block: Table) -> str:
    """`self µs per step` in two lines, to leave room for the column of names."""
    if block.is_matrix:
        return text
    lines = text.replace(" per ", "\nper ", 1).split("\n")
    if len(block.columns) < MANY_COLUMNS:
        return "\n".join(lines)
    return "\n".join(part for line in lines for part in wrap(line, WRAPPED, break_long_words=False))


def _flexible(block: Table) -> list[int]:
    """The column that takes the room left over: the widest one that holds no numbers.

    None of many columns does: they share the room by what they hold.
    """
    if len(block.columns) >= MANY_COLUMNS:
        return []
    widths = {
        number: max((cells(row.entries[number].text) for row in block.shown), default=0)
        for number, column in enumerate(block.columns)
        if not column.is_number
    }
    return [max(widths, key=lambda number: widths[number])] if widths else []


def _text(entry: Entry, block: Table) -> str:
    """Long names may break where their parts end; `1.93 (0.3%)` in two lines where columns are many."""
    text = "\u200b".join(entry.parts)
    is_pair = entry.value is not None and len(block.columns) > MANY_COLUMNS
    return text.replace(" (", "\n(", 1) if is_pair else text
