"""Two runs beside each other, as tables; the first is A, the second B."""

from collections.abc import Sequence

from trainlab.analyse.confounds import Confound
from trainlab.analyse.side_by_side import CellComparison
from trainlab.record.environment import Environment
from trainlab.report.bullets import mark_label
from trainlab.report.document import Entry, Table
from trainlab.report.tables.columns import MANY_ROWS, Field, name, table_of, value, within
from trainlab.report.tables.environment import environment_rows
from trainlab.report.tables.factors import difference_within, subject_text
from trainlab.words import Words
from trainlab.words.numbers import figure, metric_difference, metric_value

MANY_DIFFERENCES = 30


def beside_table(
    caption: str, found: Sequence[CellComparison], words: Words, note: str = ""
) -> Table:
    """One figure of one cell per row, in both runs."""

    def interval(one: CellComparison) -> Entry:
        is_cost = one.is_cost
        return within(one.interval) if is_cost else difference_within(one.subject, one.interval)

    return table_of(
        caption,
        [
            name(words("cell"), lambda one: one.cell),
            name(words("figure"), lambda one: subject_text(one.subject, words)),
            value("A", lambda one: Entry(value_text(one, one.a), one.a)),
            value("B", lambda one: Entry(value_text(one, one.b), one.b)),
            value(words("compare_b_over_a"), lambda one: Entry(change_text(one, words))),
            value(words("interval"), interval),
            name(
                words("verdict"),
                lambda one: Entry(mark_label(one.verdict, words), mark=one.verdict),
            ),
        ],
        found,
        note,
        cell=lambda one: one.cell,
        num_shown=MANY_ROWS,
        is_sortable=True,
    )


def value_text(one: CellComparison, given: float) -> str:
    """One of the two figures."""
    return figure(given) if one.is_cost else metric_value(one.subject, given)


def change_text(one: CellComparison, words: Words) -> str:
    """From A to B: how many times as much, or the difference."""
    if one.is_cost:
        return words("times", value=figure(one.change))
    return metric_difference(one.subject, one.change, words("points"))


def machine_table(first: Environment, second: Environment, words: Words) -> Table:
    """What explains a number, of both machines."""
    a, b = (environment_rows(one, words) for one in (first, second))

    def of(rows: Sequence[tuple[str, str]], fact: str) -> str:
        return words("list_semicolon").join(found for known, found in rows if known == fact)

    fields: list[Field[str]] = [
        name(words("what"), str),
        name("A", lambda fact: of(a, fact)),
        name("B", lambda fact: of(b, fact)),
    ]
    facts = dict.fromkeys(fact for fact, _ in (*a, *b))
    return table_of(words("compare_machines"), fields, facts)


def difference_table(confounds: Sequence[Confound], words: Words) -> Table:
    """Whatever differs between the runs."""
    return table_of(
        words("compare_differs"),
        [
            name(words("what"), lambda one: words.differing(one.what)),
            name("A", lambda one: words.level(one.first)),
            name("B", lambda one: words.level(one.second)),
        ],
        confounds,
        num_shown=MANY_DIFFERENCES,
        is_sortable=True,
    )
