"""Document: a report as a value. Sections hold blocks; every renderer draws the same ones.

Texts are plain: no markup of any format, so a renderer must escape all of them and nothing else.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Annotated, Any, Literal

from pydantic import Field

from trainlab.record.learning_record import Picture

Mark = Literal["different", "equivalent", "identical", "cannot tell", "fact"]
Tone = Literal["warning", "failure"]


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Notice:
    """A warning or a failure that a reader must not miss."""

    text: str
    tone: Tone = "warning"


@dataclass(frozen=True)
class Bullet:
    """One finding: its sentence and how sure it is."""

    text: str
    mark: Mark
    label: str
    """The mark in words, for readers who do not see colours; empty for a fact."""


@dataclass(frozen=True)
class Bullets:
    items: tuple[Bullet, ...]


@dataclass(frozen=True)
class Statement:
    """One sentence of the answer, and where its evidence stands: a section, or what `with_live_links` finds
    in it."""

    text: str
    section: str | None = None
    command: str = ""
    """What would settle it, to copy."""
    remark: str = ""
    """Beside the command: how long it takes."""
    row: str = ""
    """The row of a table that is its evidence."""


@dataclass(frozen=True)
class Statements:
    items: tuple[Statement, ...]
    is_lead: bool = False
    """Whether they are what a reader should see first."""


@dataclass(frozen=True)
class Column:
    heading: str
    is_number: bool = False
    is_extra: bool = False
    """Whether a narrow terminal may leave it out."""


LONGEST_LYING = 3
"""Letters of the heading of a narrow column that need not be turned."""
SHORT_NAME = 20
"""Names of up to so many letters stay on one line."""


@dataclass(frozen=True)
class Entry:
    """One field of a table: its text, and the value it is sorted by."""

    text: str
    value: float | None = None
    mark: Mark | None = None
    tone: Literal["right", "wrong"] | None = None
    """The colour of its field, in a matrix; None: that of the paper."""
    shade: float = 0.0
    """How strong that colour is, from 0 to 1."""

    @property
    def parts(self) -> list[str]:
        """The text, split where a long name without spaces may wrap to fit its column."""
        if len(self.text) <= SHORT_NAME:
            return [self.text]
        return re.split(r"(?<=[_,/:])(?=\S)|(?<=\.)(?=[^\W\d])", self.text)


@dataclass(frozen=True)
class Row:
    """One row; hiding the study's cell named by `cell` hides the row."""

    entries: tuple[Entry, ...]
    cell: str | None = None
    id: str = ""
    """By which a statement leads to it."""


@dataclass(frozen=True)
class Table:
    """Rows under headings. `caption` is its title, empty only beside the answer in a terminal."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    is_sortable: bool = False
    """Whether a reader may sort and filter it where the format allows."""
    num_shown: int | None = None
    """Rows shown before a reader unfolds the table, or at all where the format cannot; None: every row."""
    is_code: bool = False
    """Whether the first column holds names from code."""
    is_matrix: bool = False
    """Whether the headings of its columns are those of its rows, and its fields are coloured."""
    is_folded: bool = False

    @property
    def verdict_column(self) -> int | None:
        """The column with marks in it, which a narrow screen never hides; None where there is none."""
        marked = (n for row in self.rows for n, entry in enumerate(row.entries) if entry.mark)
        return next(marked, None)

    @property
    def has_upright_headings(self) -> bool:
        """Whether the headings of a matrix are too long to lie beside each other."""
        return self.is_matrix and any(
            len(one.heading) > LONGEST_LYING for one in self.columns[1:-1]
        )

    @property
    def shown(self) -> tuple[Row, ...]:
        """The rows shown by a format that cannot unfold a table."""
        return self.rows[: self.num_shown]


LONGEST_ID = 80


def figure_id(kind: str, name: str) -> str:
    """The id of a chart of something named so: part of a file's name and of links, whatever the name."""
    dashed = name.replace("/", "-")
    cleaned = re.sub(r"[^\w.-]", "-", dashed)[:LONGEST_ID]
    if cleaned != dashed:
        cleaned += "-" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{kind}-{cleaned}"


@dataclass(frozen=True)
class Figure:
    """A chart: a Vega-Lite spec with its data in it."""

    id: str
    caption: str
    alt: str
    """What it shows, for readers who do not see it."""
    spec: dict[str, Any] = field(hash=False)
    note: str = ""
    is_folded: bool = False

    @property
    def anchor(self) -> str:
        """By which a statement leads to it."""
        return f"figure-{self.id}"


@dataclass(frozen=True)
class Drawing:
    """SVG drawn by trainlab in colours for white paper, with classes by which HTML styles override them."""

    id: str
    caption: str
    alt: str
    svg: str
    note: str = ""


@dataclass(frozen=True)
class GalleryItem:
    """A small picture and what is said of it."""

    picture: Picture
    alt: str
    text: str
    remark: str
    """Below the text, for who wants to look it up."""


@dataclass(frozen=True)
class Gallery:
    id: str
    caption: str
    items: tuple[GalleryItem, ...]
    note: str = ""


@dataclass(frozen=True)
class Listing:
    """Text to copy, such as a command or a file."""

    caption: str
    text: str
    language: str = ""


MOST_PIXELS = 2000
"""Of a side of a picture in somebody's own text."""
Pixels = Annotated[int, Field(ge=1, le=MOST_PIXELS)]


@dataclass(frozen=True)
class OwnPicture:
    width: Pixels
    height: Pixels
    kind: Literal["png", "jpeg"]
    content: Annotated[str, Field(max_length=0)] = field(default="", repr=False)
    """In base64. None where a report is checked: what says how it was written has the size alone."""


@dataclass(frozen=True)
class OwnPart:
    """A piece of what somebody wrote: plain text, or the parts in it."""

    kind: str
    """What it is: a paragraph, a list, emphasis, …; in a formula as MathML calls it."""
    text: str = ""
    """Of a formula its LaTeX, of a picture what it shows."""
    parts: tuple["OwnPart", ...] = ()
    style: str = ""
    """The number a list begins with, the side that a field is aligned to, the name of a picture's file; how
    a sign in a formula is drawn."""
    picture: OwnPicture | None = None

    @property
    def plain(self) -> str:
        return self.text or "".join(part.plain for part in self.parts)

    def lines(self) -> Iterator[str]:
        """As plain text: a line for each paragraph, item or field."""
        if self.kind in ("list", "item", "quote", "table", "row"):
            yield from chain.from_iterable(part.lines() for part in self.parts)
        elif self.plain.strip():
            yield self.plain

    def with_inner(self) -> Iterator["OwnPart"]:
        """Itself and all parts in it, however deep."""
        yield self
        yield from chain.from_iterable(part.with_inner() for part in self.parts)


@dataclass(frozen=True)
class OwnText:
    """What the author of a handed-in report wrote: every format shows it apart from what trainlab wrote."""

    label: str
    """Whose it is, in words."""
    parts: tuple[OwnPart, ...]

    def lines(self) -> list[str]:
        return [*chain.from_iterable(part.lines() for part in self.parts)]


Block = (  # of which those with `is_folded` a reader unfolds; a PDF has them in its appendix
    Paragraph
    | Notice
    | Bullets
    | Statements
    | Table
    | Figure
    | Drawing
    | Gallery
    | Listing
    | OwnText
)


def is_folded(block: "Block | Section") -> bool:
    return getattr(block, "is_folded", False)


def chart_groups(blocks: Iterable[Block]) -> list[tuple[bool, list[Block]]]:
    """Neighbouring charts, which a page shows side by side, apart from the other blocks (False) and from
    those that are folded."""
    groups = groupby(blocks, lambda block: (isinstance(block, Figure), is_folded(block)))
    return [(is_chart, list(group)) for (is_chart, _), group in groups]


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    blocks: tuple[Block, ...] = ()
    sections: tuple["Section", ...] = ()
    is_folded: bool = False

    def with_inner(self) -> Iterator["Section"]:
        """Itself and all sections in it, however deep."""
        yield self
        for section in self.sections:
            yield from section.with_inner()

    def all_blocks(self) -> Iterator[Block]:
        """Its own, then those of the sections in it."""
        return (block for section in self.with_inner() for block in section.blocks)


def with_live_links(sections: Iterable[Section]) -> tuple[Section, ...]:
    """The sections, with links of statements to the very row that is their evidence, else to the first
    chart of its section or to the section; without those to sections that are not among them."""
    sections = tuple(sections)
    inner = [one for section in sections for one in section.with_inner()]
    tables = (block for one in inner for block in one.blocks if isinstance(block, Table))
    rows = {row.id for table in tables for row in table.rows if row.id}
    anchors = [(s.id, b.anchor) for s in inner for b in s.all_blocks() if isinstance(b, Figure)]
    places = {one.id: one.id for one in inner} | dict(reversed(anchors))
    places |= {anchor: anchor for _, anchor in anchors}

    def linked(block: Block) -> Block:
        if not isinstance(block, Statements):
            return block
        found = (i.row if i.row in rows else places.get(i.section or "") for i in block.items)
        items = (replace(i, section=place) for i, place in zip(block.items, found, strict=True))
        return replace(block, items=tuple(items))

    def checked(section: Section) -> Section:
        blocks = tuple(map(linked, section.blocks))
        return replace(section, blocks=blocks, sections=tuple(map(checked, section.sections)))

    return tuple(map(checked, sections))


@dataclass(frozen=True)
class Document:
    """A whole report in one language."""

    title: str
    subtitle: str
    lang: str
    made_by: str
    notices: tuple[Notice, ...]
    sections: tuple[Section, ...]
    cells: tuple[str, ...] = ()
    """The cells a reader may hide; empty where there is only one."""
    byline: tuple[tuple[str, str], ...] = ()
    """Who hands the report in, for which course, when: words, and what the author says."""
    origin: str = ""
    """JSON from which a check can write the same report again; kept in the file, not shown."""

    def all_blocks(self) -> Iterator[Block]:
        """Every block in reading order."""
        return chain(self.notices, *(section.all_blocks() for section in self.sections))

    def figures(self) -> list[Figure]:
        return [block for block in self.all_blocks() if isinstance(block, Figure)]

    def drawings(self) -> list[Drawing]:
        return [block for block in self.all_blocks() if isinstance(block, Drawing)]

    def galleries(self) -> list[Gallery]:
        return [block for block in self.all_blocks() if isinstance(block, Gallery)]

    def own_texts(self) -> list[OwnText]:
        return [block for block in self.all_blocks() if isinstance(block, OwnText)]
