"""Tables and bullets for the terminal: the same values that the other renderers draw."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from trainlab.analysis import document as blocks
from trainlab.analysis.document import Bullets, Mark, Paragraph, Statement, Statements, Table
from trainlab.report.wrapping import wrapped
from trainlab.words import Words

NARROWEST = 80
"""Columns laid out even on a narrower terminal: it may wrap lines, but numbers must not be cut."""
WIDE = 100
"""Columns of a terminal from which on every field of a table fits."""
NAME_WIDTH, SHORT_NAME = 24, 12
"""Letters of a long name that stay on one line; the fewest, so that a verdict stands beside its numbers."""
BETWEEN = 2
"""Blanks between two columns."""
MARKS: dict[Mark, tuple[str, str]] = {
    "different": ("≠", "green"),
    "equivalent": ("=", "cyan"),
    "identical": ("=", "cyan"),
    "cannot tell": ("?", "yellow"),
    "fact": ("·", ""),
}


def print_blocks(console: Console, shown: Iterable[blocks.Block | None], words: Words) -> None:
    """The blocks that a terminal can show, one below the other."""
    console.width = width = max(console.width, NARROWEST)
    for block in shown:
        match block:
            case Table():
                console.print(terminal_table(block, width, words))
            case Bullets(items):
                # Further lines of a text begin below its first.
                for item in items:
                    sign, style = MARKS[item.mark]
                    text = _broken(item.text, width - 3).replace("\n", "\n   ")
                    console.print(Text.assemble((f" {sign} ", style), text), soft_wrap=True)
            case Statements(items, is_lead):
                for number, statement in enumerate(items):
                    style = "bold" if is_lead and number == 0 else ""
                    for line in _statement(statement, width, style, words):
                        console.print(line, soft_wrap=True)
            case Paragraph(text):
                console.print(Text(_broken(text, width)), highlight=False)


def _statement(item: Statement, width: int, style: str, words: Words) -> Iterator[Text]:
    remark = f"{item.remark}{words('colon')}".rstrip() if item.command and item.remark else ""
    for line in wrapped(words.sentences(item.text, remark), width - 1):
        yield Text(f" {line}", style)
    if item.command:  # on a line of its own, to be copied whole
        yield Text(f"   {item.command}", "cyan")


def _broken(text: str, width: int) -> str:
    """With its lines broken where Chinese may be, too."""
    return "\n".join(line for part in text.split("\n") for line in wrapped(part, width))


def terminal_table(table: Table, width: int, words: Words) -> RenderableType:
    """Names aligned left, numbers right. Long texts wrap; a table that is too wide goes on below, with its
    first column again. Nothing is cut."""
    numbers = [n for n, c in enumerate(table.columns) if width >= WIDE or not c.is_extra]
    longest, narrowest = dict[int, int](), dict[int, int]()

    def room(part: Sequence[int]) -> int:
        """Blanks left on a line if every column is as narrow as it can be."""
        return width - 1 - sum(narrowest[number] + BETWEEN for number in part)

    for name_width in (NAME_WIDTH, SHORT_NAME if table.verdict_column else NAME_WIDTH):
        for number in numbers:
            column, texts = table.columns[number], [row.entries[number].text for row in table.shown]
            longest[number] = widest = max(map(cell_len, texts), default=0)
            # Below this width numbers would be broken, or words of the heading; texts may wrap.
            heading = max(map(cell_len, column.heading.split()), default=0)
            is_text = number == 0 or not column.is_number
            least = min(widest, name_width) if is_text else widest
            narrowest[number] = max(least, min(heading, NAME_WIDTH))
        if room(numbers) >= 0:
            break

    # The columns that fit beside each other, each part led by those that say what a row is about.
    lead = _leading(table, numbers)
    parts = [lead]
    for number in numbers[len(lead) :]:
        if len(parts[-1]) > len(lead) and room([*parts[-1], number]) < 0:
            parts.append(lead)
        parts[-1] = [*parts[-1], number]
    shown: list[RenderableType] = [Text(table.caption, "italic")] if table.caption else []
    for part in parts:
        widths, left = {}, max(0, room(part))
        for number in part:
            wanted = max(longest[number], cell_len(table.columns[number].heading))
            widths[number] = narrowest[number] + min(left, wanted - narrowest[number])
            left -= widths[number] - narrowest[number]
        shown.append(_rich_table(table, widths))
    left_out = len(table.rows) - len(table.shown)
    note = words.sentences(table.note, words("and_more", number=left_out) if left_out else "")
    return Group(*shown, *([Text(_broken(note, width), "dim")] if note else []))


def _leading(table: Table, numbers: Sequence[int]) -> list[int]:
    """The first columns, as many as tell every row from the others, as far as they are words."""
    lead = [numbers[0]]
    for number in numbers[1:]:
        keys = {tuple(row.entries[one].text for one in lead) for row in table.shown}
        if len(keys) == len(table.shown) or table.columns[number].is_number:
            break
        lead.append(number)
    return lead


def _rich_table(table: Table, widths: Mapping[int, int]) -> RichTable:
    """These columns of it, each so wide."""
    has_edge = bool(table.caption)
    rich_table = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=has_edge)
    for number, width in widths.items():
        heading = table.columns[number].heading
        justify: JustifyMethod = "right" if table.columns[number].is_number else "left"
        rich_table.add_column(Text(heading), justify=justify, overflow="fold", width=width)
    for row in table.shown:
        entries = ((row.entries[number], width) for number, width in widths.items())
        rich_table.add_row(
            *(
                Text(_broken(entry.text, width), MARKS[entry.mark][1] if entry.mark else "")
                for entry, width in entries
            )
        )
    return rich_table
