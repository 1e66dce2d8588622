"""Markdown as GitHub renders it, with the figures in files beside it."""

import re

from trainlab.report.document import (
    Block,
    Bullets,
    Document,
    Drawing,
    Entry,
    Figure,
    Listing,
    Notice,
    Paragraph,
    Section,
    Table,
)
from trainlab.report.render.numbering import Numbers
from trainlab.report.render.pictures import pictures, png_of
from trainlab.words import Words

FOLDER = "figures"
ALERTS = {"warning": "NOTE", "failure": "WARNING"}
SPECIAL = re.compile(r"([\\`*\[\]|~$#])")
EDGE_UNDERSCORE = re.compile(r"(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")


def markdown_of(document: Document) -> str:
    """The text; its figures are named `figures/<id>.<suffix>`."""
    words, numbers = Words(document.lang), Numbers(document)
    parts = [f"# {escaped(document.title)}", escaped(document.subtitle)]
    parts += [_notice(notice) for notice in document.notices]
    for section in document.sections:
        parts += _section(section, 2, words, numbers)
    parts += ["---", f"*{escaped(document.made_by)}*"]
    return "\n\n".join(parts) + "\n"


def figure_files(document: Document) -> dict[str, bytes]:
    """Name to content of every picture the Markdown shows."""
    suffix = suffix_of(document)
    return {
        f"{FOLDER}/{name}.{suffix}": png_of(svg) if suffix == "png" else svg.encode()
        for name, svg in pictures(document).items()
    }


def suffix_of(document: Document) -> str:
    """SVG where Latin is all that is drawn; else pixels, for a viewer may lack the font."""
    return "svg" if document.lang == "en" else "png"


def escaped(text: str) -> str:
    """Text that no Markdown or HTML in it can break out of."""
    told = " ".join(text.split())
    told = told.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    told = EDGE_UNDERSCORE.sub(r"\\_", SPECIAL.sub(r"\\\1", told))
    # What would begin a list or a heading line.
    return re.sub(r"^(\d*)([-+.)])(?=\s)", r"\1\\\2", told)


def code(text: str) -> str:
    """Inline code, whatever it holds; for a table, so a bar is kept from ending the field."""
    told = " ".join(text.split())
    if not told:
        return ""
    longest = max((len(run) for run in re.findall(r"`+", told)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if told.startswith("`") or told.endswith("`") else ""
    return f"{fence}{pad}{told}{pad}{fence}".replace("|", "\\|")


def _section(section: Section, level: int, words: Words, numbers: Numbers) -> list[str]:
    parts = [f"{'#' * level} {escaped(section.title)}"]
    for block in section.blocks:
        parts += _block(block, words, numbers)
    for inner in section.sections:
        parts += _section(inner, level + 1, words, numbers)
    return parts


def _block(block: Block, words: Words, numbers: Numbers) -> list[str]:
    match block:
        case Paragraph(text):
            return [escaped(text)]
        case Notice():
            return [_notice(block)]
        case Bullets(items):
            colon = words("colon")
            lines = (f"- **{escaped(p.label)}**{colon}{escaped(p.text)}" for p in items)
            return ["\n".join(lines)]
        case Table():
            return _table(block, words, numbers)
        case Figure() | Drawing():
            return _picture(block, words, numbers)
        case Listing(caption, text, language):
            return [f"**{escaped(caption)}**", _fenced(text, language)]


def _notice(notice: Notice) -> str:
    return f"> [!{ALERTS[notice.tone]}]\n> {escaped(notice.text)}"


def _picture(block: Figure | Drawing, words: Words, numbers: Numbers) -> list[str]:
    alt = escaped(block.alt)
    name = f"{FOLDER}/{block.id}.{'svg' if words.lang == 'en' else 'png'}"
    label = words("figure_number", number=numbers.figure(block))
    stop = words("full_stop") if block.note else ""
    told = f"**{label}**{words('colon')}{escaped(block.caption)}{stop}{escaped(block.note)}"
    return [f"![{alt}]({name})", told]


def _table(block: Table, words: Words, numbers: Numbers) -> list[str]:
    label = words("table_number", number=numbers.table(block))
    lines = ["| " + " | ".join(escaped(c.heading) or " " for c in block.columns) + " |"]
    lines.append("|" + "|".join("---:" if c.is_number else "---" for c in block.columns) + "|")
    for row in block.shown:
        first, *rest = row.entries
        told = [code(first.text) if block.is_code else escaped(first.text), *map(_entry, rest)]
        lines.append("| " + " | ".join(told) + " |")
    notes = [block.note] if block.note else []
    if len(block.shown) < len(block.rows):
        notes.append(words("more_rows", shown=len(block.shown), number=len(block.rows)))
    parts = [f"**{label}**{words('colon')}{escaped(block.caption)}", "\n".join(lines)]
    if notes:
        parts.append(f"*{escaped(words.sentences(*notes))}*")
    return parts


def _entry(entry: Entry) -> str:
    return escaped(entry.text)


def _fenced(text: str, language: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
