"""Tables for the terminal, all alike."""

from rich.box import SIMPLE_HEAD
from rich.table import Table

from trainlab.words.numbers import figure


def plain_table(
    title: str, *headings: str, num_names: int = 1, name_width: int | None = None
) -> Table:
    """The first `num_names` columns to the left, figures to the right; what is long wraps, uncut.

    `name_width` is how much of a name stays on one line.
    """
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        is_name = number < num_names
        table.add_column(
            heading,
            justify="left" if is_name else "right",
            overflow="fold",
            min_width=name_width if is_name else None,
        )
    return table


def measured(value: float) -> str:
    """Four digits: on a quiet machine intervals are that narrow."""
    return figure(value, digits=4)
