"""Markdown as GitHub renders it, with the figures in files beside it."""

import base64
import re

from trainlab.analysis.document import (
    Block,
    Bullets,
    Document,
    Drawing,
    Figure,
    Gallery,
    Listing,
    Notice,
    OwnText,
    Paragraph,
    Section,
    Statement,
    Statements,
    Table,
)
from trainlab.report.pictures import Labels, file_of, picture_files, table_note
from trainlab.words import LANGUAGES, Words

FOLDER = "figures"
SMALL_SIDE = 84
"""Pixels: smaller pictures are shown larger."""
PER_ROW = 6
"""Small pictures side by side."""
ALERTS = {"warning": "NOTE", "failure": "WARNING"}
SPECIAL = re.compile(r"([\\`*\[\]|~$#])")
EDGE_UNDERSCORE = re.compile(r"(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")


def markdown_of(document: Document) -> str:
    """The text; its figures are named `figures/<id>.<suffix>`."""
    words = Words(document.lang)
    labels = Labels(document, words)
    parts = [f"# {escaped(document.title)}"]
    parts += [f"**{escaped(document.byline)}**"] if document.byline else []
    parts.append(escaped(document.subtitle))
    parts += [_notice(notice) for notice in document.notices]
    for section in document.sections:
        parts += _section(section, 2, words, labels)
    parts += ["---", f"*{escaped(document.made_by)}*"]
    parts += [origin_comment(document.origin)] if document.origin else []
    return "\n\n".join(parts) + "\n"


def origin_comment(origin: str) -> str:
    """Not shown by a viewer; in letters that cannot end the comment."""
    return f"<!-- handed-in {base64.b64encode(origin.encode()).decode()} -->"


def figure_files(document: Document) -> dict[str, bytes]:
    """Name to content of every picture the Markdown shows."""
    in_pixels = _suffix(document.lang) == "png"
    shown = picture_files(document, in_pixels=in_pixels, small_side=SMALL_SIDE)
    return {f"{FOLDER}/{name}": content for name, content in shown.items()}


def _suffix(lang: str) -> str:
    """SVG for Latin letters; pixels for others, since a viewer may lack the font."""
    return "png" if LANGUAGES[lang].is_cjk else "svg"


def escaped(text: str) -> str:
    """Text that no Markdown or HTML in it can break out of."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = EDGE_UNDERSCORE.sub(r"\\_", SPECIAL.sub(r"\\\1", text))
    # What would begin a list or a heading line.
    return re.sub(r"^(\d*)([-+.)])(?=\s)", r"\1\\\2", text)


def code(text: str) -> str:
    """Inline code for a field of a table, whatever it holds: a bar in it does not end the field."""
    text = " ".join(text.split())
    if not text:
        return ""
    fence = _fence(text, 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def _fence(text: str, shortest: int) -> str:
    """More backticks than stand together anywhere in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    return "`" * max(shortest, longest + 1)


def _section(section: Section, level: int, words: Words, labels: Labels) -> list[str]:
    parts = [f"{'#' * level} {escaped(section.title)}"]
    for block in section.blocks:
        parts += _block(block, words, labels)
    for inner in section.sections:
        parts += _section(inner, level + 1, words, labels)
    return parts


def _block(block: Block, words: Words, labels: Labels) -> list[str]:
    match block:
        case Paragraph(text):
            return [escaped(text)]
        case Notice():
            return [_notice(block)]
        case Bullets(items):
            colon = words("colon")
            lines = (f"- **{escaped(i.label)}**{colon}{escaped(i.text)}" for i in items)
            return ["\n".join(lines)]
        case Statements(items):
            return ["\n".join(_statement(item) for item in items)]
        case Table():
            return _table(block, words, labels)
        case Figure() | Drawing() | Gallery():
            return _picture(block, words, labels)
        case Listing(caption, text, language, is_folded):
            fence = _fence(text, 3)
            if is_folded:
                summary = f"<details><summary>{escaped(caption)}</summary>"
                return [summary, f"{fence}{language}\n{text}\n{fence}", "</details>"]
            return [f"**{escaped(caption)}**", f"{fence}{language}\n{text}\n{fence}"]
        case OwnText():
            return [_own_text(block)]


def _own_text(block: OwnText) -> str:
    """A quotation: what is not trainlab's is set apart on every line."""
    pieces = [f"**{escaped(block.label)}**"]
    for part in block.parts:
        match part.kind:
            case "heading":
                pieces.append(f"**{escaped(part.text)}**")
            case "item":
                pieces.append(f"- {escaped(part.text)}")
            case "code":
                fence = _fence(part.text, 3)
                pieces.append(f"{fence}\n{part.text}\n{fence}")
            case "paragraph":
                pieces.append(escaped(part.text))
    return "\n".join(f"> {line}".rstrip() for line in "\n\n".join(pieces).splitlines())


def _statement(item: Statement) -> str:
    text = f"- {escaped(item.text)}"
    if not item.command:
        return text
    remark = f" ({escaped(item.remark)})" if item.remark else ""
    return f"{text} {code(item.command)}{remark}"


def _notice(notice: Notice) -> str:
    return f"> [!{ALERTS[notice.tone]}]\n> {escaped(notice.text)}"


def _picture(block: Figure | Drawing | Gallery, words: Words, labels: Labels) -> list[str]:
    if isinstance(block, Gallery):
        return _gallery(block, words, labels)
    path = f"{FOLDER}/{block.id}.{_suffix(words.lang)}"
    stop = words("full_stop") if block.note else ""
    caption = f"{words('colon')}{escaped(block.caption)}{stop}{escaped(block.note)}"
    return [f"![{escaped(block.alt)}]({path})", f"**{labels.of(block)}**{caption}"]


def _gallery(block: Gallery, words: Words, labels: Labels) -> list[str]:
    """A table of pictures with their texts below them."""
    lines: list[str] = []
    for first in range(0, len(block.items), PER_ROW):
        numbers = range(first, min(first + PER_ROW, len(block.items)))
        empty = [" "] * (PER_ROW - len(numbers)) if first else []
        shown = [f"![{escaped(block.items[n].alt)}]({FOLDER}/{file_of(block, n)})" for n in numbers]
        told = [
            f"{escaped(i.text)}<br>{escaped(i.remark)}"
            for i in map(block.items.__getitem__, numbers)
        ]
        lines.append("| " + " | ".join([*shown, *empty]) + " |")
        lines += [] if first else ["|" + "|".join([":---:"] * len(shown)) + "|"]
        lines.append("| " + " | ".join([*told, *empty]) + " |")
    caption = f"**{labels.of(block)}**{words('colon')}{escaped(block.caption)}"
    note = f"*{escaped(block.note)}*"
    return ["\n".join(lines), caption, *([note] if block.note else [])]


def _table(block: Table, words: Words, labels: Labels) -> list[str]:
    lines = ["| " + " | ".join(escaped(c.heading) or " " for c in block.columns) + " |"]
    lines.append("|" + "|".join("---:" if c.is_number else "---" for c in block.columns) + "|")
    for row in block.shown:
        first, *rest = (entry.text for entry in row.entries)
        texts = [code(first) if block.is_code else escaped(first), *map(escaped, rest)]
        lines.append("| " + " | ".join(texts) + " |")
    caption = f"**{labels.of(block)}**{words('colon')}{escaped(block.caption)}"
    note = table_note(block, words)
    return [caption, "\n".join(lines), *([f"*{escaped(note)}*"] if note else [])]
