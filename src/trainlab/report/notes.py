"""Notes: what an author wrote in Markdown, as parts that every format shows, and what none of them does."""

import base64
import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from textwrap import dedent
from typing import Literal
from unicodedata import normalize
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference
from markdown_it.tree import SyntaxTreeNode
from mdit_py_plugins.dollarmath import dollarmath_plugin
from PIL import Image, ImageOps

from trainlab.analysis.document import MOST_PIXELS, OwnPart, OwnPicture
from trainlab.errors import SpecError
from trainlab.extras import import_extra
from trainlab.record.files import reading
from trainlab.report.pictures import compressed
from trainlab.words import LANGUAGES, Words

NUMBERING = re.compile(r"^[\s(第]*(?:\d+(?:\.\d+)*|[一二三四五六七八九十]+)[\s.、):节章部分]*")
"""What may stand before a heading: `2.`, `(3)`, `四、`, `第五部分`."""
PARTS: dict[str, tuple[str, ...]] = {
    "conclusion": (),
    "purpose": (),
    "environment": ("environment",),
    "method": ("seen", "network", "method"),
    "results": (),
    "discussion": (),
    "appendix": ("repeat",),
}
"""In the order of a lab report, its conclusion first, with the sections of the run's report that stand in
each, by their ids; the results have every section that no other part has."""

MOST_BYTES, MOST_READ_PIXELS, DEEPEST, LONGEST_FORMULA = 5_000_000, 50_000_000, 8, 2000
"""Of a picture's file; of a picture; lists, quotations and emphasis in each other; letters of a formula."""

Picture = OwnPicture | str
"""A picture of the notes, or the key of the words that say why it is not shown."""


@dataclass(frozen=True)
class Unshown:
    """What is written in the notes and shown only as plain text."""

    line: int
    key: str
    """Of the words that say what it is, and what to write instead."""
    text: str


@dataclass(frozen=True)
class Notes:
    """What the author wrote, by the part it belongs to; what names no part is discussion."""

    placed: dict[str, list[OwnPart]]
    unshown: tuple[Unshown, ...]


def part_named(heading: str) -> str | None:
    """The part that a heading of the author's notes names, in any language, numbered or not."""
    plain = normalize("NFKC", heading).strip().rstrip(":").lower()
    text = NUMBERING.sub("", plain).strip()
    for part, words in product(PARTS, map(Words, LANGUAGES)):
        names = words(f"lab_{part}_names").split(words("list_comma"))
        if text in (words(f"lab_{part}").lower(), *names):
            return part
    return None


def read_notes(path: Path) -> tuple[str, dict[str, OwnPicture], tuple[Unshown, ...]]:
    """The text of a notes file, its pictures by their addresses, and what is not shown; SpecError where the
    file is not text."""
    with reading(path):
        content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise SpecError([f"--notes: {path} is not UTF-8 text; save it as UTF-8"]) from None
    pictures: dict[str, OwnPicture] = {}

    def picture_at(address: str) -> Picture:
        found = pictures.get(address) or _picture(path.parent, address)
        if isinstance(found, OwnPicture):
            pictures[address] = found
        return found

    return text, pictures, notes_of(text, picture_at).unshown


def _picture(folder: Path, address: str) -> Picture:
    """From its file: turned the right way up, no larger than a page can show, and without what a camera
    writes beside it, such as the place."""
    if re.match(r"[a-z][a-z0-9+.-]+:|//", address, re.I):
        return "notes_remote"
    path = (folder / unquote(address)).resolve()
    if not path.is_relative_to(folder.resolve()):
        return "notes_outside"
    if not path.is_file():
        return "notes_missing"
    try:
        if path.stat().st_size > MOST_BYTES:
            return "notes_large"
        with Image.open(path, formats=("PNG", "JPEG")) as opened:
            if opened.width * opened.height > MOST_READ_PIXELS:
                return "notes_large"
            kind: Literal["png", "jpeg"] = "jpeg" if opened.format == "JPEG" else "png"
            image = ImageOps.exif_transpose(opened).convert("RGB" if kind == "jpeg" else "RGBA")
    except (OSError, ValueError, SyntaxError):  # what Pillow raises for a broken file
        return "notes_broken"
    image.thumbnail((MOST_PIXELS, MOST_PIXELS))
    image.info.clear()
    return OwnPicture(
        image.width, image.height, kind, base64.b64encode(compressed(image, kind)).decode()
    )


def notes_of(markdown: str, picture_at: Callable[[str], Picture]) -> Notes:
    """A heading that names a part opens it, at any level. Any other heading stays in the open part if it is
    deeper than the part's own, and else ends it."""
    reader = _Reader(markdown.splitlines(), picture_at)
    placed: dict[str, list[OwnPart]] = {}
    part, part_level = "discussion", 0
    for node in SyntaxTreeNode(_parser().parse(markdown)).children:
        pieces = reader.parts([node])
        if node.type == "heading":
            level, named = int(node.tag[1:]), part_named("".join(piece.plain for piece in pieces))
            if named:
                part, part_level = named, level
                continue
            if level <= part_level:
                part, part_level = "discussion", 0
        if pieces:
            placed.setdefault(part, []).extend(pieces)
    return Notes(placed, tuple(reader.unshown))


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": 100}).enable(["table", "strikethrough"])
    parser.use(dollarmath_plugin, allow_space=False, allow_digits=False, allow_labels=False)

    def no_footnote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        """A definition of a link, as which a footnote of one word would be read and vanish."""
        is_footnote = state.src.startswith("[^", state.bMarks[start] + state.tShift[start])
        return not is_footnote and reference(state, start, end, silent)

    parser.block.ruler.at("reference", no_footnote)
    return parser


KINDS = {"heading": "heading", "paragraph": "paragraph", "blockquote": "quote", "list_item": "item"}
KINDS |= {"bullet_list": "list", "ordered_list": "list", "table": "table", "tr": "row"}
KINDS |= {"th": "field", "td": "field", "strong": "strong", "em": "emphasis", "s": "deleted"}
"""What holds other parts, as Markdown's parser calls it and as we do."""
LEAVES = {"fence": "listing", "code_block": "listing", "code_inline": "code", "hr": "rule"}
INLINE = ("strong", "emphasis", "deleted")
COMMENTS = re.compile(r"(?:<!--(?:(?!-->).)*-->\s*)+", re.S)
FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]")
LINE_BREAK = re.compile(r"<br\s*/?>", re.I)


@dataclass
class _Reader:
    """From the parser's nodes to parts; what has no kind of part is plain text, and is named."""

    lines: Sequence[str]
    picture_at: Callable[[str], Picture]
    unshown: list[Unshown] = field(default_factory=list)
    line: int = 0
    depth: int = 0
    num_pictures: int = 0

    def parts(self, nodes: Iterable[SyntaxTreeNode]) -> tuple[OwnPart, ...]:
        return tuple(chain.from_iterable(map(self._parts_of, nodes)))

    def _parts_of(self, node: SyntaxTreeNode) -> Iterator[OwnPart]:
        self.line = node.map[0] + 1 if node.map else self.line
        match node.type:
            case "inline" | "link":
                yield from self._line(node.children)
                address = str(node.attrs.get("href", ""))
                if address and address != "".join(child.content for child in node.children):
                    yield OwnPart("text", f" ({address})")
            case "thead" | "tbody":
                yield from self.parts(node.children)
            case "text" | "softbreak" | "hardbreak":
                yield from self._text(node)
            case "image":
                yield self._shown_picture(node.content, str(node.attrs["src"]))
            case "math_block" | "math_inline" | "math_inline_double":
                yield self._formula(node.content.strip(), node.type)
            case "html_block" | "html_inline":
                yield from self._html(node.content.strip(), node.type)
            case leaf if leaf in LEAVES:
                yield OwnPart(LEAVES[leaf], node.content.rstrip("\n"))
            case _:
                yield self._container(node, KINDS[node.type])

    def _container(self, node: SyntaxTreeNode, kind: str) -> OwnPart:
        style = str(node.attrs.get("style", "")).removeprefix("text-align:")
        if node.type == "ordered_list":
            style = str(node.attrs.get("start", 1))
        is_inline = kind in INLINE
        is_deeper = is_inline or kind in ("list", "quote")
        if is_deeper and self.depth == DEEPEST:
            lines = (
                self.lines[slice(*node.map)] if node.map else [one.content for one in node.walk()]
            )
            return self._named(
                "notes_deep", dedent("\n".join(lines)), "text" if is_inline else "listing"
            )
        self.depth += is_deeper
        inner = self._line(node.children) if is_inline else self.parts(node.children)
        self.depth -= is_deeper
        return OwnPart(kind, parts=inner, style=style)

    def _line(self, nodes: Sequence[SyntaxTreeNode]) -> tuple[OwnPart, ...]:
        """A line break within Chinese text is no space between words."""
        made = self.parts(nodes)
        ends = ["", *(piece.plain for piece in made), ""]
        gaps = (
            "" if min(a[-1:], b[:1]) >= "\u2e80" else " "
            for a, b in zip(ends, ends[2:], strict=False)
        )
        joined = zip(made, gaps, strict=True)
        return tuple(OwnPart("text", gap) if one.plain == "\n" else one for one, gap in joined)

    def _text(self, node: SyntaxTreeNode) -> Iterator[OwnPart]:
        if node.type != "text":
            self.line += 1
            yield OwnPart("text", "\n") if node.type == "softbreak" else OwnPart("break", " ")
        elif node.content:
            for found in FOOTNOTE.findall(node.content):
                self._named("notes_footnote", found)
            if "**" in node.content:
                self._named("notes_stars", node.content)
            yield OwnPart("text", node.content)

    def _named(self, key: str, text: str, kind: str = "text") -> OwnPart:
        """The text as it stands, which the author is told of."""
        if not text.startswith("</"):
            self.unshown.append(Unshown(self.line, key, " ".join(text.split())))
        return OwnPart(kind, text)

    def _html(self, text: str, kind: str) -> Iterator[OwnPart]:
        if LINE_BREAK.fullmatch(text):
            yield OwnPart("break", " ")
        elif not COMMENTS.fullmatch(text):
            yield self._named("notes_html", text, "listing" if kind == "html_block" else "text")

    def _shown_picture(self, alt: str, address: str) -> OwnPart:
        picture = self.picture_at(address)
        if isinstance(picture, str):
            return self._named(picture, f"{alt} ({unquote(address)})")
        self.num_pictures += 1
        name = f"own-{self.num_pictures}.{picture.kind}"
        return OwnPart("picture", alt, style=name, picture=picture)

    def _formula(self, latex: str, kind: str) -> OwnPart:
        is_block = kind == "math_block"
        if not (parts := formula_parts(latex)):
            mark = "$$" if kind != "math_inline" else "$"
            source = f"{mark}{latex}{mark}"
            return self._named("notes_formula", source, "listing" if is_block else "code")
        return OwnPart("equation" if is_block else "formula", latex, parts)


# Formulas.

ARGUMENTS = {"mi": 0, "mn": 0, "mo": 0, "mtext": 0, "mspace": 0, "msubsup": 3, "munderover": 3}
ARGUMENTS |= {"mfrac": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "mroot": 2}
"""How many parts an element of MathML has, where the number is fixed."""
ROWS, TABLES = ("math", "mrow", "mstyle", "mpadded"), ("msqrt", "mtable", "mtr", "mtd")
"""With any number of parts; the first are all rows."""
STYLES = {
    ("mathvariant", "normal"): "upright",
    ("mathvariant", "bold"): "bold",
    ("mathvariant", "bold-italic"): "bold",
    ("stretchy", "false"): "fixed",
    ("linethickness", "0"): "bare",
    ("displaystyle", "true"): "display",
    ("form", "prefix"): "opening",
    ("columnalign", "left"): "left",
    ("columnalign", "right"): "right",
    ("width", "negativethinmathspace"): "-0.167em",
}
MACROS = re.compile(r"\\(?:re)?new|\\def\b")
ALIGNED = re.compile(r"(\\(?:begin|end)\{)(?:align|aligned|split|gather\*?|gathered|eqnarray\*?)\}")


def formula_parts(latex: str) -> tuple[OwnPart, ...]:
    """A formula in LaTeX as parts that are called as in MathML; none where it cannot be read. Only elements
    known here are in it, whatever was written."""
    converter = import_extra("latex2mathml.converter", "a formula in notes")
    if len(latex) > LONGEST_FORMULA or MACROS.search(latex):
        return ()
    try:
        found = converter.convert_to_element(ALIGNED.sub(r"\1align*}", latex))
        return (_math(found),)
    except Exception:  # noqa: BLE001  the package stumbles in many ways over what is no LaTeX
        return ()


def _math(element: Element, depth: int = 0) -> OwnPart:
    """ValueError for what is not known here, or nested too deep."""
    tag, text = element.tag, html.unescape(element.text or "")
    parts = tuple(_math(child, depth + 1) for child in element)
    is_known = tag in (*ROWS, *TABLES) or ARGUMENTS.get(tag) == len(parts)
    # The package gives back as a letter what it does not understand.
    if not is_known or depth > 2 * DEEPEST or (tag == "mi" and text[:1] in ("\\", "&", "{", "}")):
        raise ValueError(tag)
    style = next((STYLES[one] for one in element.items() if one in STYLES), "")
    if tag == "mspace" and not style:
        style = element.get("width", "" if "linebreak" in element.attrib else "0em")
        if not style or not re.fullmatch(r"-?[0-2]?(\.\d{1,4})?(em)?", style):
            raise ValueError(style)
        style = style.removesuffix("em") + "em"
    if tag not in ROWS:
        return OwnPart(tag, text, parts, style)
    if parts and parts[0].style == "opening":
        return OwnPart("mrow", parts=parts, style="fence")
    parts = tuple(_fenced(parts))
    is_plain = len(parts) == 1 and not style
    return parts[0] if is_plain else OwnPart("mrow", parts=parts, style=style)


def _fenced(parts: Sequence[OwnPart]) -> Iterator[OwnPart]:
    """Brackets around a matrix, which are as high as it, in a row of their own with it."""
    number = 0
    while number < len(parts):
        three = parts[number : number + 3]
        is_high = [one.kind == "mtable" or one.style == "bare" for one in three] == [
            False,
            True,
            False,
        ]
        if is_high and three[0].kind == three[2].kind == "mo":
            yield OwnPart("mrow", parts=tuple(three), style="fence")
            number += 3
        else:
            yield parts[number]
            number += 1
