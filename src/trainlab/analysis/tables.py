"""How tables and lists of findings are made, whatever they are about."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from trainlab.analysis.document import (
    Block,
    Bullet,
    Bullets,
    Column,
    Entry,
    Mark,
    Paragraph,
    Row,
    Table,
)
from trainlab.analysis.finding import Finding
from trainlab.analysis.measurement import Estimate
from trainlab.stats.means import Interval, Mean
from trainlab.words import Words
from trainlab.words.numbers import figure, metric_value, percent

T = TypeVar("T")
EMPTY = Entry("")
MANY_ROWS = 20
"""Rows of a sortable table that are shown at first, unless it says otherwise; more are folded away."""


@dataclass(frozen=True)
class Field(Generic[T]):
    """One column of a table of items: its heading, and what it shows of an item."""

    heading: str
    read: Callable[[T], Entry | str | float | None]
    """A number is shown with three digits; an Entry brings its own text."""
    is_number: bool = False
    is_extra: bool = False
    """Whether a narrow terminal may leave it out."""

    def entry(self, item: T) -> Entry:
        value = self.read(item)
        if isinstance(value, Entry):
            return value
        return Entry(value) if isinstance(value, str) else number(value)


def name(heading: str, read: Callable[[T], Entry | str], *, is_extra: bool = False) -> Field[T]:
    return Field(heading, read, is_extra=is_extra)


def value(
    heading: str, read: Callable[[T], Entry | float | None], *, is_extra: bool = False
) -> Field[T]:
    return Field(heading, read, is_number=True, is_extra=is_extra)


FEWEST_FOLDED = 4
"""Fewer rows more than are shown are shown, too."""


def table_of(
    caption: str,
    fields: Iterable[Field[T]],
    items: Iterable[T],
    note: str = "",
    *,
    cell: Callable[[T], str] | None = None,
    row: Callable[[T], str] = lambda item: "",
    num_shown: int = MANY_ROWS,
    is_sortable: bool = False,
) -> Table:
    """A row per item; `cell` gives the cell that it is about, `row` its id. A sortable table has names from
    code in its first column, and folds rows beyond `num_shown` away."""
    fields = list(fields)
    rows = tuple(
        Row(tuple(f.entry(item) for f in fields), None if cell is None else cell(item), row(item))
        for item in items
    )
    return Table(
        caption,
        tuple(Column(field.heading, field.is_number, field.is_extra) for field in fields),
        rows,
        note,
        is_sortable=is_sortable,
        num_shown=num_shown if is_sortable and len(rows) >= num_shown + FEWEST_FOLDED else None,
        is_code=is_sortable,
    )


def number(value: float | None, text: str | None = None) -> Entry:
    """A number as `text`, or with three digits; empty where there is none."""
    if value is None:
        return EMPTY
    return Entry(figure(value) if text is None else text, float(value))


def count(value: int) -> Entry:
    """A whole number, thousands separated by commas."""
    return Entry(f"{value:,}", float(value))


def share(value: float) -> Entry:
    return Entry(percent(value), value)


def estimate(cost: Estimate) -> Entry:
    """`12.3 [11.9, 12.8]`: the interval in which the same measurement, repeated, falls; none for one."""
    if cost.low is None or cost.high is None:
        return number(cost.value)
    return Entry(f"{figure(cost.value)} [{figure(cost.low)}, {figure(cost.high)}]", cost.value)


def mean(metric: str, over_seeds: Mean | None, missing: str) -> Entry:
    """`97.41% [96.90, 97.92]`; without an interval for a single seed; `missing` where there is none."""
    if over_seeds is None:
        return Entry(missing)
    widest = max(map(abs, (over_seeds.value, *filter(None, over_seeds.ends))))
    text = metric_value(metric, over_seeds.value, widest)
    if over_seeds.interval is not None:
        ends = (over_seeds.interval.low, over_seeds.interval.high)
        low, high = (metric_value(metric, end, widest).removesuffix("%") for end in ends)
        text = f"{text} [{low}, {high}]"
    return Entry(text, over_seeds.value)


def within(interval: Interval | None) -> Entry:
    """`0.98, 1.02`; empty where there is none."""
    return EMPTY if interval is None else Entry(f"{figure(interval.low)}, {figure(interval.high)}")


Parts = tuple[str, Mapping[str, float]]
"""A setting and its parts, in seconds or milliseconds."""


def part_of(row: Parts, part: str) -> Entry:
    """`0.62 (2.1%)`: a part and its share of all parts together; empty where there is none."""
    if part not in row[1]:
        return EMPTY
    share = row[1][part] / (sum(row[1].values()) or 1.0)
    return Entry(f"{figure(row[1][part])} ({percent(share)})", row[1][part])


def part_columns(rows: Sequence[Parts], words: Words) -> list[Field[Parts]]:
    """The setting, and a column for each part that any of them has."""
    parts = dict.fromkeys(part for _, own in rows for part in own)
    columns = [value(words.phase(part), partial(part_of, part=part)) for part in parts]
    return [name(words("cell"), lambda row: row[0]), *columns]


MOST_FINDINGS = 30
"""Findings listed in one place; the tables and data files have the numbers of all."""


def bullets(findings: Iterable[Finding], words: Words) -> Bullets:
    # What was measured and not tested is a fact.
    marked = [(finding.sentence(words), finding.verdict or "fact") for finding in findings]
    return Bullets(tuple(Bullet(text, mark, mark_label(mark, words)) for text, mark in marked))


def first_bullets(findings: Sequence[Finding], words: Words) -> list[Block]:
    """The first MOST_FINDINGS, and how many more there are; empty where there are none."""
    blocks: list[Block] = [bullets(findings[:MOST_FINDINGS], words)] if findings else []
    if (num_left_out := len(findings) - MOST_FINDINGS) > 0:
        blocks.append(Paragraph(words("findings_left_out", number=num_left_out)))
    return blocks


def mark_label(mark: Mark, words: Words) -> str:
    """Of what is no fact."""
    return "" if mark == "fact" else words(f"mark_{mark.replace(' ', '_')}")
