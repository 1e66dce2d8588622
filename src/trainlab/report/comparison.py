"""Two runs side by side as a document: say, a laptop's and a server's."""

import math
from collections.abc import Sequence
from dataclasses import replace

from trainlab import __version__
from trainlab.analyse.cost.measurement import MODES
from trainlab.analyse.side_by_side import CellComparison, SideBySide
from trainlab.report.bullets import mark_label
from trainlab.report.document import (
    Block,
    Bullet,
    Bullets,
    Document,
    Figure,
    Notice,
    Paragraph,
    Section,
)
from trainlab.report.figures.cell_values import CellValue, CellValues
from trainlab.report.figures.charts import dot_chart
from trainlab.report.run_data import RunData
from trainlab.report.sections.answer import notices
from trainlab.report.sections.factors import MOST_VALUES
from trainlab.report.tables.comparison import (
    beside_table,
    change_text,
    difference_table,
    machine_table,
    value_text,
)
from trainlab.report.tables.factors import subject_text
from trainlab.report.tables.operators import operator_table
from trainlab.words import Words
from trainlab.words.numbers import figure

MOST_BULLETS = 5


def comparison_of(first: RunData, second: RunData, found: SideBySide, lang: str) -> Document:
    """The report of two runs, the first called A and the second B."""
    words = Words(lang)
    sections = [
        _answer(found, words),
        _machines(first, second, words),
        _costs(found, words),
        _learned(found, words),
        _operators(first, second, words),
        _differences(found, words),
    ]
    a, b = first.evidence, second.evidence
    return Document(
        title=words("compare_title", workload=a.study.workload, first=a.name, second=b.name),
        subtitle=words(
            "compare_subtitle",
            first=a.name,
            date_a=a.record.created[:10],
            second=b.name,
            date_b=b.record.created[:10],
        ),
        lang=lang,
        made_by=words("made_by", version=__version__),
        notices=tuple(
            Notice(f"{name}: {notice.text}", notice.tone)
            for name, run in (("A", first), ("B", second))
            for notice in notices(run, words)
        ),
        sections=tuple(section for section in sections if section is not None),
        cells=tuple(dict.fromkeys(one.cell for one in (*found.costs, *found.learned))),
    )


def _answer(found: SideBySide, words: Words) -> Section:
    costs = sorted(found.costs, key=lambda one: -abs(math.log(one.b / one.a)))
    decided = [one for one in (*costs, *found.learned) if one.verdict != "cannot tell"]
    chosen = (decided or [*costs, *found.learned])[:MOST_BULLETS]
    items = tuple(_bullet(one, words) for one in chosen)
    return Section("answer", words("compare_answer"), (Bullets(items),))


def _bullet(one: CellComparison, words: Words) -> Bullet:
    a, b = (value_text(one, value) for value in (one.a, one.b))
    key = "compare_cost_point" if one.is_cost else "compare_learn_point"
    text = words(
        key,
        cell=one.cell,
        subject=subject_text(one.subject, words),
        a=a,
        b=b,
        change=change_text(one, words),
        within=""
        if one.interval is None or not one.is_cost
        else words("within", low=figure(one.interval.low), high=figure(one.interval.high)),
    )
    return Bullet(text, one.verdict, mark_label(one.verdict, words))


def _machines(first: RunData, second: RunData, words: Words) -> Section:
    table = machine_table(first.evidence.environment, second.evidence.environment, words)
    return Section("environment", words("environment"), (table,))


def _costs(found: SideBySide, words: Words) -> Section | None:
    if not found.costs:
        return None
    subjects = dict.fromkeys(one.subject for one in found.costs)
    blocks: list[Block] = [_figure(found.costs, subject, words) for subject in subjects]
    note = words("compare_costs_note")
    blocks.append(beside_table(words("compare_costs_table"), found.costs, words, note))
    return Section("costs", words("compare_costs"), tuple(blocks))


def _figure(costs: Sequence[CellComparison], subject: str, words: Words) -> Figure:
    """A and B of every cell, as two dots."""
    mine = [one for one in costs if one.subject == subject]
    dots = tuple(
        CellValue(one.cell, run, value, None, None)
        for one in mine
        for run, value in (("A", one.a), ("B", one.b))
    )
    title = subject_text(subject, words)
    values = words.listed(
        f"{one.cell} A {figure(one.a)}, B {figure(one.b)}" for one in mine[:MOST_VALUES]
    )
    return Figure(
        id=f"beside-{subject.replace('/', '-').replace('_', '-')}",
        caption=title,
        alt=words("final_alt", metric=title, values=values),
        spec=dot_chart(CellValues(subject.replace("/", "_"), dots), title, words, is_by_run=True),
    )


def _learned(found: SideBySide, words: Words) -> Section | None:
    if not found.learned:
        return None
    table = beside_table(words("compare_learned_table"), found.learned, words)
    return Section("learning", words("compare_learned"), (table,))


def _operators(first: RunData, second: RunData, words: Words) -> Section | None:
    """The top ten of the first cell of each run, by mode."""
    blocks: list[Block] = []
    for mode in MODES:
        profiled = [
            next((one for one in run.evidence.measured_in(mode) if one.operators is not None), None)
            for run in (first, second)
        ]
        for name, one in zip("AB", profiled, strict=True):
            if one is not None and None not in profiled:
                table = operator_table(one, words)
                blocks.append(replace(table, caption=f"{name}: {table.caption}"))
    if not blocks:
        return None
    return Section("operators", words("operators"), (Paragraph(words("operators_intro")), *blocks))


def _differences(found: SideBySide, words: Words) -> Section:
    blocks: list[Block] = []
    if found.confounds:
        blocks.append(Paragraph(words("compare_differs_intro")))
        blocks.append(difference_table(found.confounds, words))
    else:
        blocks.append(Paragraph(words("compare_nothing")))
    for run, cells in (("A", found.only_a), ("B", found.only_b)):
        if cells:
            blocks.append(Paragraph(words("compare_only", run=run, cells=words.listed(cells))))
    return Section("differs", words("compare_differs"), tuple(blocks))
