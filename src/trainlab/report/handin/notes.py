"""The author's notes: Markdown, cut into the parts of a lab report by its headings."""

from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from trainlab.analysis.document import OwnPart
from trainlab.report.handin.parts import DISCUSSION, LabPart, part_named

Placed = dict[LabPart, tuple[OwnPart, ...]]


def placed_notes(markdown: str) -> Placed:
    """What the author wrote, by the part it belongs to; what names no part goes into the discussion.

    A heading that names a part opens it, at any level. Any other heading stays in the open part if it is
    deeper than the part's own, and else ends it.
    """
    placed: dict[LabPart, list[OwnPart]] = {}
    part, part_level = DISCUSSION, 0
    for level, piece in _pieces(MarkdownIt("commonmark").enable("table").parse(markdown), markdown):
        if piece.kind == "heading" and (named := part_named(piece.text)):
            part, part_level = named, level
            continue
        if piece.kind == "heading" and level <= part_level:
            part, part_level = DISCUSSION, 0
        placed.setdefault(part, []).append(piece)
    return {part: tuple(pieces) for part, pieces in placed.items()}


def _pieces(tokens: Sequence[Token], markdown: str) -> Iterator[tuple[int, OwnPart]]:
    """Level of heading (0 for anything else) and piece, in the order written."""
    lines, list_depth, table_end = markdown.splitlines(), 0, -1
    for number, token in enumerate(tokens):
        list_depth += token.nesting if token.type.startswith("list_item") else 0
        if token.map is not None and token.map[0] < table_end:
            continue
        if token.type == "table_open" and token.map is not None:
            start, table_end = token.map
            yield 0, OwnPart("code", "\n".join(lines[start:table_end]))
        elif token.type in ("fence", "code_block", "html_block"):
            yield 0, OwnPart("code", token.content.rstrip("\n"))
        elif token.type == "inline" and (text := _plain(token)):
            opening = tokens[number - 1]
            if opening.type == "heading_open":
                yield int(opening.tag[1:]), OwnPart("heading", text)
            else:
                yield 0, OwnPart("item" if list_depth else "paragraph", text)


def _plain(token: Token) -> str:
    """Inline Markdown as plain text: emphasis without its stars, a link followed by its address."""
    text, address = "", ""
    for child in token.children or []:
        if child.type == "link_open":
            address = str(child.attrGet("href") or "")
        elif child.type == "link_close":
            text += f" ({address})" if not text.endswith(address) else ""
        elif child.type in ("softbreak", "hardbreak"):
            text += "\n"
        else:
            text += child.content
    # A line break within Chinese text is no space between words.
    lines = [line.strip() for line in text.splitlines()]
    joined = lines[0] if lines else ""
    for line in lines[1:]:
        between_wide = joined[-1:] >= "\u2e80" and line[:1] >= "\u2e80"
        joined += line if between_wide else f" {line}"
    return joined
