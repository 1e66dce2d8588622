"""Markdown as GitHub renders it, with the figures in files beside it."""

import base64
import re
from collections.abc import Iterable, Iterator, Sequence

from trainlab.analysis import document as blocks
from trainlab.analysis.document import (
    Block,
    Document,
    Gallery,
    Listing,
    OwnPart,
    OwnText,
    Section,
    Table,
    is_folded,
)
from trainlab.report.pictures import Labels, file_of, labels_of, picture_files, table_note
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
    labels = labels_of(document, words)
    parts = [f"# {escaped(document.title)}"]
    byline = [f"{label}{words('colon')}{text}" for label, text in document.byline]
    parts += [f"**{escaped(' · '.join(byline))}**"] if byline else []
    parts.append(escaped(document.subtitle))
    for notice in document.notices:
        parts += _block(notice, words, labels)
    for section in document.sections:
        parts += _section(section, 2, words, labels)
    parts += ["---", f"*{escaped(document.made_by)}*"]
    if document.origin:
        # Not shown by a viewer; in letters that cannot end the comment.
        parts.append(f"<!-- handed-in {base64.b64encode(document.origin.encode()).decode()} -->")
    return "\n\n".join(parts) + "\n"


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


def _fenced(text: str, language: str = "") -> str:
    fence = _fence(text, 3)
    return f"{fence}{language}\n{text}\n{fence}"


def _section(section: Section, level: int, words: Words, labels: Labels) -> Iterator[str]:
    yield f"{'#' * level} {escaped(section.title)}"
    if section.is_folded:
        yield f"<details><summary>{words('unfold')}</summary>"
    for block in section.blocks:
        yield from _block(block, words, labels)
    for inner in section.sections:
        yield from _section(inner, level + 1, words, labels)
    if section.is_folded:
        yield "</details>"


def _block(block: Block, words: Words, labels: Labels) -> Iterator[str]:
    """Its paragraphs. The caption of a table stands above it, that of a picture below it."""
    if not is_folded(block):
        yield from _open_block(block, words, labels)
        return
    label = "" if isinstance(block, Listing) else labels(block) + words("colon")
    yield f"<details><summary>{label}{escaped(block.caption)}</summary>"  # type: ignore[union-attr]
    yield from _open_block(block, words, labels)
    yield "</details>"


def _open_block(block: Block, words: Words, labels: Labels) -> Iterator[str]:
    match block:
        case blocks.Paragraph(text):
            yield escaped(text)
        case blocks.Notice(text, tone):
            yield f"> [!{ALERTS[tone]}]\n> {escaped(text)}"
        case blocks.Bullets(items):
            colon = words("colon")
            marks = (f"**{i.label}**{colon}" if i.label else "" for i in items)
            texts = zip(marks, items, strict=True)
            yield "\n".join(f"- {mark}{escaped(one.text)}" for mark, one in texts)
        case blocks.Statements(items):
            yield "\n".join(map(_statement, items))
        case Listing(caption, text, language):
            yield f"**{escaped(caption)}**"
            yield _fenced(text, language)
        case OwnText():
            yield _own_text(block)
        case Table():
            note = table_note(block, words)
            yield from [] if block.is_folded else [_caption(block, words, labels)]
            yield _table(block)
            yield from [f"*{escaped(note)}*"] if note else []
        case Gallery(note=note):
            yield from (_gallery(block), _caption(block, words, labels))
            yield from [f"*{escaped(note)}*"] if note else []
        case blocks.Figure(note=note) | blocks.Drawing(note=note):
            yield f"![{escaped(block.alt)}]({FOLDER}/{block.id}.{_suffix(words.lang)})"
            note = words("full_stop") + escaped(note) if note else ""
            yield _caption(block, words, labels) + note


def _statement(item: blocks.Statement) -> str:
    remark = f" ({escaped(item.remark)})" if item.remark else ""
    command = f" {code(item.command)}{remark}" if item.command else ""
    return f"- {escaped(item.text)}{command}"


def _caption(
    block: Table | Gallery | blocks.Figure | blocks.Drawing, words: Words, labels: Labels
) -> str:
    return f"**{labels(block)}**{words('colon')}{escaped(block.caption)}"


def _own_text(block: OwnText) -> str:
    """A quotation: what is not trainlab's is set apart on every line."""
    return _quoted("\n\n".join([f"**{escaped(block.label)}**", *map(_own, block.parts)]))


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


FRAMES = {
    "strong": "**{}**",
    "emphasis": "*{}*",
    "deleted": "~~{}~~",
    "heading": "**{}**",
    "rule": "---",
    "break": "<br>",
}


def _own(part: OwnPart) -> str:
    """One part of the author's text, and those in it."""
    match part.kind:
        case "listing" | "equation":
            return _fenced(part.text, "math" if part.kind == "equation" else "")
        case "code" | "formula":
            is_math = part.kind == "formula" and "`" not in part.text
            told = code(part.text).replace("\\|", "|")
            return f"${told}$" if is_math else told
        case "picture":
            return f"![{escaped(part.text)}]({FOLDER}/{part.style})"
        case "text":
            # The blanks around it part it from what stands beside it.
            front, back = re.fullmatch(r"(\s*).*?(\s*)", part.text, re.S).groups()  # type: ignore[union-attr]
            return " " * bool(front) + escaped(part.text) + " " * bool(back)
        case "quote" | "item":
            inner = "\n\n".join(map(_own, part.parts))
            return _quoted(inner) if part.kind == "quote" else inner
        case "list":
            return _own_list(part)
        case "table":
            # A bar in code or in a formula does not end a field, either.
            rows = [
                [re.sub(r"(?<!\\)\|", r"\\|", _own(field)) for field in row.parts]
                for row in part.parts
            ]
            sides = {"right": "---:", "center": ":---:"}
            return _lines(rows, [sides.get(field.style, "---") for field in part.parts[0].parts])
    return FRAMES.get(part.kind, "{}").format("".join(map(_own, part.parts)))


def _own_list(part: OwnPart) -> str:
    items = []
    for number, item in enumerate(part.parts, start=int(part.style or 0)):
        sign = f"{number}. " if part.style else "- "
        items.append(sign + _own(item).replace("\n", "\n" + " " * len(sign)))
    return "\n".join(items)


def _gallery(block: Gallery) -> str:
    """A table of pictures with their texts below them."""
    rows, most = [], min(PER_ROW, len(block.items))
    for first in range(0, len(block.items), PER_ROW):
        items = block.items[first : first + PER_ROW]
        paths = (f"{FOLDER}/{file_of(block, first + number)}" for number in range(len(items)))
        empty = [" "] * (most - len(items))
        shown = zip(items, paths, strict=True)
        rows.append([*(f"![{escaped(i.alt)}]({path})" for i, path in shown), *empty])
        rows.append([*(f"{escaped(i.text)}<br>{escaped(i.remark)}" for i in items), *empty])
    return _lines(rows, [":---:"] * most)


def _table(block: Table) -> str:
    rows = [[escaped(column.heading) or " " for column in block.columns]]
    for row in block.shown:
        first, *rest = (entry.text for entry in row.entries)
        rows.append([code(first) if block.is_code else escaped(first), *map(escaped, rest)])
    return _lines(rows, ["---:" if column.is_number else "---" for column in block.columns])


def _lines(rows: Iterable[Sequence[str]], alignments: Sequence[str]) -> str:
    """The first row stands above the others."""
    first, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([first, f"|{'|'.join(alignments)}|", *others])
