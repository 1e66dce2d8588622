"""Two runs beside each other, as tables; the first is A, the second B."""

from collections.abc import Sequence

from trainlab.analysis.confounds import Confound
from trainlab.analysis.document import Entry, Table
from trainlab.analysis.side_by_side import CellComparison
from trainlab.analysis.tables import Field, name, table_of, value, within
from trainlab.record.study_record import Environment
from trainlab.report.tables.environment import environment_rows
from trainlab.report.tables.factors import (
    at_confidence,
    difference_within,
    subject_text,
    verdict_entry,
)
from trainlab.words import Words
from trainlab.words.numbers import figure, metric_difference, metric_value

MANY_DIFFERENCES = 30


def beside_table(
    caption: str, pairs: Sequence[CellComparison], words: Words, note: str = ""
) -> Table:
    """One figure of one cell per row, in both runs."""

    def interval(pair: CellComparison) -> Entry:
        if pair.is_cost:
            return at_confidence(within(pair.interval), pair.verdict)
        return difference_within(pair.subject, pair.interval, pair.verdict)

    return table_of(
        caption,
        [
            name(words("cell"), lambda pair: pair.cell),
            name(words("figure"), lambda pair: subject_text(pair.subject, words)),
            value("A", lambda pair: Entry(value_text(pair, pair.a), pair.a)),
            value("B", lambda pair: Entry(value_text(pair, pair.b), pair.b)),
            value(words("compare_b_over_a"), lambda pair: Entry(change_text(pair, words))),
            value(words("interval"), interval),
            name(words("verdict"), lambda pair: verdict_entry(pair.verdict, words)),
        ],
        pairs,
        note,
        cell=lambda pair: pair.cell,
        is_sortable=True,
    )


def value_text(pair: CellComparison, value: float) -> str:
    """One of the two values, as a cost or as a metric."""
    return figure(value) if pair.is_cost else metric_value(pair.subject, value)


def change_text(pair: CellComparison, words: Words) -> str:
    """From A to B: how many times as much, or the difference."""
    if pair.is_cost:
        return words("times", value=figure(pair.change))
    return metric_difference(pair.subject, pair.change, words("points"))


def machine_table(first: Environment, second: Environment, words: Words) -> Table:
    """Machine and software of both runs, a row per fact."""
    a, b = environment_rows(first, words), environment_rows(second, words)

    def values(rows: Sequence[tuple[str, str]], fact: str) -> str:
        return words("list_semicolon").join(text for key, text in rows if key == fact)

    fields: list[Field[str]] = [
        name(words("what"), str),
        name("A", lambda fact: values(a, fact)),
        name("B", lambda fact: values(b, fact)),
    ]
    facts = dict.fromkeys(fact for fact, _ in (*a, *b))
    return table_of(words("compare_machines"), fields, facts)


def difference_table(confounds: Sequence[Confound], words: Words) -> Table:
    """Whatever differs between the runs."""
    return table_of(
        words("compare_differs"),
        [
            name(words("what"), lambda confound: words.differing(confound.what)),
            name("A", lambda confound: words.level(confound.first)),
            name("B", lambda confound: words.level(confound.second)),
        ],
        confounds,
        num_shown=MANY_DIFFERENCES,
        is_sortable=True,
    )
