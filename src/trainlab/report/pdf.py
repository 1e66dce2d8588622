"""PDF by typst, from a fixed template and data: texts are data, so nothing in them is markup."""

import json
import re
from dataclasses import replace
from importlib.resources import files
from textwrap import wrap
from typing import Any

from trainlab.analysis import document as blocks
from trainlab.analysis.document import Document, Section, Table, chart_groups
from trainlab.extras import import_extra
from trainlab.record.files import temporary_folder
from trainlab.report import pictures
from trainlab.report.wrapping import cells
from trainlab.words import Words

MONO = "DejaVu Sans Mono"
"""Comes with typst."""
MANY_COLUMNS = 6
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
    labels = pictures.labels_of(document, words)
    body = [one for one in map(_open, document.sections) if one is not None]
    more = [one for one in map(_folded, document.sections) if one is not None]
    data = {
        **vars(document),
        "font": pictures.FAMILY,
        "mono": MONO,
        "colon": words("colon"),
        "mark_width": 19 if words.language.is_cjk else 24,
        "evidence": words("evidence"),
        "page": words.template("page"),
        "notices": [_block(notice, words, labels) for notice in document.notices],
        "sections": [_section(section, words, labels) for section in body],
        "appendix_title": words("appendix"),
        "appendix": [_section(one, words, labels) for one in more],
    }
    template = (files("trainlab.report") / "report.typ").read_text(encoding="utf-8")
    with temporary_folder() as root:
        for name, content in pictures.picture_files(document, _widths(document)).items():
            (root / name).write_bytes(content)
        # Blocks of lists are written by their fields.
        (root / "data.json").write_text(json.dumps(data, default=vars), encoding="utf-8")
        (root / "report.typ").write_text(template, encoding="utf-8")
        compiled, warnings = typst.compile_with_warnings(
            str(root / "report.typ"),
            root=str(root),
            font_paths=[str(pictures.font_folder())],
            # The reader's fonts only where ours cannot show an author's name: they make other bytes.
            ignore_system_fonts=not (document.origin and pictures.lacks_glyphs(document)),
            timestamp=0,
        )
    # To typst a missing font is only a warning; a reader would see boxes.
    assert not warnings, [warning.message for warning in warnings]
    pdf: bytes = compiled
    return pdf


def _widths(document: Document) -> dict[str, int]:
    """Of the charts that stand beside others."""
    sections = (inner for section in document.sections for inner in section.with_inner())
    groups = (group for one in sections for is_chart, group in chart_groups(one.blocks) if is_chart)
    charts = (block for group in groups if len(group) > 1 for block in group)
    return {chart.id: HALF_WIDTH for chart in charts if isinstance(chart, blocks.Figure)}


def _open(section: Section) -> Section | None:
    """Without what is folded; None where that is all of it."""
    inner = tuple(one for one in map(_open, section.sections) if one is not None)
    shown = tuple(block for block in section.blocks if not blocks.is_folded(block))
    is_gone = section.is_folded or not (inner or shown)
    return None if is_gone else replace(section, blocks=shown, sections=inner)


def _folded(section: Section, is_in_folded: bool = False) -> Section | None:
    """What is folded of it; None where nothing is."""
    is_whole = is_in_folded or section.is_folded
    found = (_folded(one, is_whole) for one in section.sections)
    inner = tuple(one for one in found if one is not None)
    shown = tuple(one for one in section.blocks if is_whole or blocks.is_folded(one))
    more = replace(section, blocks=shown, sections=inner)
    if not (inner or shown):
        return None
    return more if is_whole else replace(more, id=f"{section.id}-more")


def _section(section: Section, words: Words, labels: pictures.Labels) -> dict[str, Any]:
    """Neighbouring charts are laid out together."""
    found: list[dict[str, Any]] = []
    for is_chart, group in chart_groups(section.blocks):
        values = [_block(block, words, labels) for block in group]
        found += [{"kind": "Figures", "figures": values}] if is_chart else values
    inner = [_section(one, words, labels) for one in section.sections]
    return {**vars(section), "blocks": found, "sections": inner}


def _block(block: blocks.Block, words: Words, labels: pictures.Labels) -> dict[str, Any]:
    """Its fields by their names, and what the page needs beside them."""
    values: dict[str, Any] = {**vars(block), "kind": type(block).__name__}
    if isinstance(block, Table | blocks.Figure | blocks.Drawing | blocks.Gallery):
        values["label"] = labels(block)
    match block:
        case blocks.Notice():
            values["label"] = words(f"{block.tone}_mark") + words("colon")
        case Table():
            values |= _table(block, words)
        case blocks.Figure():
            values |= {"path": f"{block.id}.svg", "spec": None, "anchor": block.anchor}
        case blocks.Drawing():
            width = float(re.search(r'width="([\d.]+)"', block.svg)[1])  # type: ignore[index]
            values |= {"path": f"{block.id}.svg", "svg": None, "percent": 100 * width / FULL_WIDTH}
        case blocks.Gallery():
            values["items"] = [
                {**vars(item), "picture": None, "path": pictures.file_of(block, number)}
                for number, item in enumerate(block.items)
            ]
    return values


def _table(block: Table, words: Words) -> dict[str, Any]:
    """Headings and texts broken where columns are many, and the column that takes the room left over: the
    widest that holds no numbers. None of many columns does: they share the room by what they hold."""
    widths = {
        number: max((cells(row.entries[number].text) for row in block.shown), default=0)
        for number, column in enumerate(block.columns)
        if not column.is_number and len(block.columns) < MANY_COLUMNS
    }
    return {
        "columns": [replace(c, heading=_heading(c.heading, block)) for c in block.columns],
        "rows": [
            [replace(entry, text=_text(entry, block), value=None) for entry in row.entries]
            for row in block.shown
        ],
        "places": [row.id for row in block.shown],
        "flexible": [max(widths, key=lambda number: widths[number])] if widths else [],
        "is_upright": block.has_upright_headings,
        "note": pictures.table_note(block, words),
    }


def _heading(text: str, block: Table) -> str:
    """`self µs per step` in two lines, to leave room for the column of names."""
    if block.is_matrix:
        return text
    lines = text.replace(" per ", "\nper ", 1).split("\n")
    if len(block.columns) < MANY_COLUMNS:
        return "\n".join(lines)
    return "\n".join(part for line in lines for part in wrap(line, WRAPPED, break_long_words=False))


def _text(entry: blocks.Entry, block: Table) -> str:
    """Long names may break where their parts end; `1.93 (0.3%)` in two lines where columns are many."""
    text = "\u200b".join(entry.parts)
    is_pair = entry.value is not None and len(block.columns) > MANY_COLUMNS
    return text.replace(" (", "\n(", 1) if is_pair else text
