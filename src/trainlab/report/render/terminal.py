"""Tables and bullets for the terminal: the same values that the other renderers draw."""

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from trainlab.report.document import Block, Bullets, Entry, Mark, Paragraph, Table
from trainlab.words import Words

NARROWEST = 80
"""Columns laid out even on a narrower terminal: it may wrap lines, but numbers must not be cut."""
WIDE = 100
"""Columns of a terminal from which on every field of a table fits."""
NAME_WIDTH = 24
"""Letters of a long name that stay on one line."""
MARKS: dict[Mark, tuple[str, str]] = {
    "different": ("≠", "green"),
    "equivalent": ("=", "cyan"),
    "cannot tell": ("?", "yellow"),
    "fact": ("·", ""),
}


def print_blocks(console: Console, blocks: Iterable[Block | None], words: Words) -> None:
    """The blocks that a terminal can show, one below the other."""
    console.width = max(console.width, NARROWEST)
    for block in blocks:
        match block:
            case Table():
                console.print(terminal_table(block, console.width, words))
            case Bullets(items):
                for item in items:
                    sign, style = MARKS[item.mark]
                    console.print(
                        Text(f" {sign} ", style), Text(item.text), sep="", highlight=False
                    )
            case Paragraph(text):
                console.print(Text(text), highlight=False)


def terminal_table(table: Table, width: int, words: Words) -> RichTable:
    """Names aligned left, numbers right; long texts wrap and are not cut."""
    rich_table = RichTable(
        title=Text(table.caption),
        title_justify="left",
        caption=_caption(table, words),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    numbers = [n for n, c in enumerate(table.columns) if width >= WIDE or not c.is_extra]
    for number in numbers:
        column = table.columns[number]
        longest = max((len(row.entries[number].text) for row in table.shown), default=0)
        rich_table.add_column(
            Text(column.heading),
            justify="right" if column.is_number else "left",
            overflow="fold",
            min_width=min(longest, NAME_WIDTH) if number == 0 else None,
        )
    for row in table.shown:
        rich_table.add_row(*(_entry(row.entries[number]) for number in numbers))
    return rich_table


def _caption(table: Table, words: Words) -> Text | None:
    notes = [table.note] if table.note else []
    if len(table.shown) < len(table.rows):
        notes.append(words("and_more", number=len(table.rows) - len(table.shown)))
    return Text(words.sentences(*notes), "dim") if notes else None


def _entry(entry: Entry) -> Text:
    return Text(entry.text, MARKS[entry.mark][1] if entry.mark is not None else "")
