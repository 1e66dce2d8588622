"""Entries: numbers and findings as fields of tables and as points."""

from collections.abc import Iterable

from trainlab.analyse.cost.summary import Estimate
from trainlab.analyse.findings.finding import Finding, Number
from trainlab.report.document import Entry, Mark, Point, Points, Row
from trainlab.report.sentences import sentence
from trainlab.stats.means import Interval, Mean
from trainlab.words import Words
from trainlab.words.numbers import (
    figure,
    is_share,
    level,
    metric_difference,
    metric_value,
    percent,
)


def text(told: object) -> Entry:
    """A field that is no number."""
    return Entry(str(told))


def number(value: float | None, told: str | None = None) -> Entry:
    """A number as people read it; empty where there is none."""
    if value is None:
        return Entry("")
    return Entry(figure(value) if told is None else told, float(value))


def count(value: int) -> Entry:
    """A whole number, thousands apart."""
    return Entry(f"{value:,}", float(value))


def share(value: float) -> Entry:
    """In per cent."""
    return Entry(percent(value), value)


def estimate(value: Estimate) -> Entry:
    """`12.3 [11.9, 12.8]`: the interval in which the same measurement, repeated, falls."""
    return Entry(f"{figure(value.value)} [{figure(value.low)}, {figure(value.high)}]", value.value)


def mean(metric: str, found: Mean | None, words: Words) -> Entry:
    """`97.41 % [96.90, 97.92]`; without an interval for a single seed."""
    if found is None:
        return Entry(words("none_finite"))
    told = metric_value(metric, found.value)
    if found.interval is not None:
        low, high = (
            metric_value(metric, end).removesuffix(" %")
            for end in (found.interval.low, found.interval.high)
        )
        told = f"{told} [{low}, {high}]"
    return Entry(told, found.value)


def verdict(found: Finding, words: Words) -> Entry:
    """In words; a figure that was not tested has none."""
    mark = mark_of(found)
    return Entry("" if found.verdict is None else words(mark_word(mark)), mark=mark)


def mark_of(found: Finding) -> Mark:
    """How sure a finding is."""
    return "fact" if found.verdict is None else found.verdict


def mark_word(mark: Mark) -> str:
    """The key of its word."""
    return f"mark_{mark.replace(' ', '_')}"


def points(found: Iterable[Finding], words: Words) -> Points:
    """Findings as their sentences."""
    return Points(tuple(point(one, words) for one in found))


def point(found: Finding, words: Words) -> Point:
    """One finding as its sentence."""
    mark = mark_of(found)
    return Point(sentence(found, words.lang), mark, words(mark_word(mark)))


def change(found: Finding) -> str:
    """`1 → 64`, or the cells where several settings change at once."""
    if found.levels == (None, None):
        return f"{found.cells[0]} → {found.cells[1]}"
    first, second = (level(one) for one in found.levels)
    return f"{first} → {second}"


def comparison_row(found: Finding, words: Words, *, with_cell: bool) -> Row:
    """One comparison of two cells: an effect, a cost or memory."""
    told = _effect(found, words) if "mean_a" in found.numbers else _ratio(found, words)
    return Row(
        (
            text(change(found)),
            *((text(found.cells[1]),) if with_cell else ()),
            text(subject_told(found.subject, words)),
            *told,
            count(found.n),
            verdict(found, words),
        ),
        cell=found.cells[1],
    )


def subject_told(subject: str, words: Words) -> str:
    """A metric by its own name, a cost in words."""
    key = f"subject_{subject.replace('/', '_')}"
    return words(key) if words.knows(key) else subject


def _effect(found: Finding, words: Words) -> tuple[Entry, ...]:
    metric, points_word = found.subject, words("points")
    a, b, difference = (_number(found.numbers[k]) for k in ("mean_a", "mean_b", "difference"))
    ends = found.interval
    unit = f" {points_word}" if is_share(metric) else ""
    reach = "" if ends is None else _ends(metric, ends, points_word).replace(unit, "")
    return (
        Entry("" if a is None else metric_value(metric, a), a),
        Entry("" if b is None else metric_value(metric, b), b),
        Entry(
            "" if difference is None else metric_difference(metric, difference, points_word),
            difference,
        ),
        Entry(reach),
    )


def _ends(metric: str, ends: Interval, points_word: str) -> str:
    low, high = (metric_difference(metric, end, points_word) for end in (ends.low, ends.high))
    return f"{low}, {high}"


def _ratio(found: Finding, words: Words) -> tuple[Entry, ...]:
    keys = ("sample_us_a", "sample_us_b") if found.kind == "cost" else ("mib_a", "mib_b")
    a, b, ratio = (_number(found.numbers[key]) for key in (*keys, "ratio"))
    ends = found.interval
    reach = "" if ends is None else f"{figure(ends.low)}, {figure(ends.high)}"
    told = "" if ratio is None else words("times", value=figure(ratio))
    return number(a), number(b), Entry(told, ratio), Entry(reach)


def _number(value: Number) -> float | None:
    return value if isinstance(value, int | float) else None
