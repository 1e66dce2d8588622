"""How tables are made: a field says its heading and how a thing reads in it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from trainlab.analyse.cost.summary import Estimate
from trainlab.report.document import Column, Entry, Row, Table
from trainlab.stats.means import Interval, Mean
from trainlab.words import Words
from trainlab.words.numbers import figure, metric_value, percent

T = TypeVar("T")
EMPTY = Entry("")
MANY_ROWS = 20
"""Of a table of cells; more are folded away at first."""


@dataclass(frozen=True)
class Field(Generic[T]):
    """One column of a table of things: its heading, and what of a thing stands in it."""

    heading: str
    read: Callable[[T], Entry | str | float | None]
    """A number reads with three digits; an entry as it says."""
    is_number: bool = False
    is_extra: bool = False
    """Whether a narrow terminal may leave it out."""

    def entry(self, thing: T) -> Entry:
        """The field of one thing."""
        value = self.read(thing)
        if isinstance(value, Entry):
            return value
        return Entry(value) if isinstance(value, str) else number(value)


def name(heading: str, read: Callable[[T], Entry | str], *, is_extra: bool = False) -> Field[T]:
    """A column of names or words."""
    return Field(heading, read, is_extra=is_extra)


def value(
    heading: str, read: Callable[[T], Entry | float | None], *, is_extra: bool = False
) -> Field[T]:
    """A column of numbers."""
    return Field(heading, read, is_number=True, is_extra=is_extra)


def table_of(
    caption: str,
    fields: Iterable[Field[T]],
    things: Iterable[T],
    note: str = "",
    *,
    cell: Callable[[T], str] | None = None,
    num_shown: int | None = None,
    is_sortable: bool = False,
) -> Table:
    """A row per thing. `cell` says which cell of the study a thing is about; a table that can be sorted is
    of things named in code. Beyond `num_shown`, rows are folded away."""
    columns = list(fields)
    rows = tuple(
        Row(tuple(one.entry(thing) for one in columns), None if cell is None else cell(thing))
        for thing in things
    )
    return Table(
        caption,
        tuple(Column(one.heading, one.is_number, one.is_extra) for one in columns),
        rows,
        note,
        is_sortable=is_sortable,
        num_shown=num_shown if num_shown is not None and len(rows) > num_shown else None,
        is_code=is_sortable,
    )


def number(given: float | None, reads: str | None = None) -> Entry:
    """A number as people read it; empty where there is none."""
    if given is None:
        return EMPTY
    return Entry(figure(given) if reads is None else reads, float(given))


def count(given: int) -> Entry:
    """A whole number, thousands apart."""
    return Entry(f"{given:,}", float(given))


def share(given: float) -> Entry:
    """In per cent."""
    return Entry(percent(given), given)


def estimate(given: Estimate) -> Entry:
    """`12.3 [11.9, 12.8]`: the interval in which the same measurement, repeated, falls."""
    return Entry(f"{figure(given.value)} [{figure(given.low)}, {figure(given.high)}]", given.value)


def mean(metric: str, given: Mean | None, words: Words) -> Entry:
    """`97.41 % [96.90, 97.92]`; without an interval for a single seed."""
    if given is None:
        return Entry(words("none_finite"))
    reads = metric_value(metric, given.value)
    if given.interval is not None:
        ends = (given.interval.low, given.interval.high)
        low, high = (metric_value(metric, end).removesuffix(" %") for end in ends)
        reads = f"{reads} [{low}, {high}]"
    return Entry(reads, given.value)


def within(interval: Interval | None) -> Entry:
    """`0.98, 1.02`; empty where there is none."""
    return EMPTY if interval is None else Entry(f"{figure(interval.low)}, {figure(interval.high)}")
