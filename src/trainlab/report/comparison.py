"""Two runs side by side as a document: say, a laptop's and a server's."""

from collections.abc import Sequence
from dataclasses import replace

from trainlab import __version__
from trainlab.analysis.answer.compared import compared_sentences
from trainlab.analysis.charts import CellValue, CellValues, dot_chart
from trainlab.analysis.document import (
    Block,
    Document,
    Figure,
    Notice,
    Paragraph,
    Section,
    Statement,
    Statements,
    figure_id,
)
from trainlab.analysis.measurement import MODES
from trainlab.analysis.run_data import RunData
from trainlab.analysis.side_by_side import CellComparison, SideBySide
from trainlab.report.sections.answer import notices
from trainlab.report.sections.factors import MOST_VALUES
from trainlab.report.tables.comparison import (
    beside_table,
    difference_table,
    machine_table,
)
from trainlab.report.tables.factors import subject_text
from trainlab.report.tables.operators import operator_table
from trainlab.words import Words
from trainlab.words.numbers import figure


def comparison_of(
    first: RunData, second: RunData, compared: SideBySide, lang: str, labels: Sequence[str] = ()
) -> Document:
    """The report of two runs, the first called A and the second B.

    `labels` tell them apart in the title; their studies' names where they are not given.
    """
    words = Words(lang)
    a, b = first.evidence, second.evidence
    name_a, name_b = labels or (a.name, b.name)
    machines = machine_table(a.environment, b.environment, words)
    learned = beside_table(words("compare_learned_table"), compared.learned, words)
    sections = [
        _answer(compared, words),
        Section("environment", words("environment"), (machines,)),
        _costs(compared.costs, words),
        Section("learning", words("compare_learned"), (learned,)) if learned.rows else None,
        _operators(first, second, words),
        _differences(compared, words),
    ]
    return Document(
        title=words("compare_title", workload=a.study.workload, first=name_a, second=name_b),
        subtitle=words(
            "compare_subtitle",
            first=name_a,
            date_a=a.record.created[:10],
            second=name_b,
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
        cells=tuple(dict.fromkeys(pair.cell for pair in (*compared.costs, *compared.learned))),
    )


def _answer(compared: SideBySide, words: Words) -> Section:
    """The answer in a few sentences, and the chart that shows the first of them."""
    told = tuple(Statement(one.text, one.section) for one in compared_sentences(compared, words))
    blocks: list[Block] = (
        [Statements(told, is_lead=True)] if told else [Paragraph(words("no_findings"))]
    )
    blocks += _figures(compared.costs, words)[:1]
    return Section("answer", words("compare_answer"), tuple(blocks))


def _costs(costs: Sequence[CellComparison], words: Words) -> Section | None:
    if not costs:
        return None
    # The first stands beside the answer.
    blocks: list[Block] = [*_figures(costs, words)[1:]]
    note = words("compare_costs_note")
    blocks.append(beside_table(words("compare_costs_table"), costs, words, note))
    return Section("costs", words("compare_costs"), tuple(blocks))


def _figures(costs: Sequence[CellComparison], words: Words) -> list[Figure]:
    subjects = dict.fromkeys(pair.subject for pair in costs)
    return [
        _figure(subject, [pair for pair in costs if pair.subject == subject], words)
        for subject in subjects
    ]


def _figure(subject: str, pairs: Sequence[CellComparison], words: Words) -> Figure:
    """A and B of every cell, as two dots."""
    values = tuple(
        CellValue(pair.cell, run, value)
        for pair in pairs
        for run, value in (("A", pair.a), ("B", pair.b))
    )
    title = subject_text(subject, words)
    values_text = words.listed(
        f"{pair.cell} A {figure(pair.a)}, B {figure(pair.b)}" for pair in pairs[:MOST_VALUES]
    )
    return Figure(
        id=figure_id("beside", subject.replace("_", "-")),
        caption=title,
        alt=words("final_alt", metric=title, values=values_text),
        spec=dot_chart(CellValues(subject.replace("/", "_"), values), title, words, is_by_run=True),
    )


def _operators(first: RunData, second: RunData, words: Words) -> Section | None:
    """The top ten of the first profiled cell of each run, by mode; only modes profiled in both."""
    blocks: list[Block] = []
    for mode in MODES:
        profiled = first.profiled(mode), second.profiled(mode)
        if all(profiled):
            for name, (measurement, *_) in zip("AB", profiled, strict=True):
                table = operator_table(measurement, words)
                blocks.append(replace(table, caption=f"{name}: {table.caption}"))
    if not blocks:
        return None
    return Section("operators", words("operators"), (Paragraph(words("operators_intro")), *blocks))


def _differences(compared: SideBySide, words: Words) -> Section:
    blocks: list[Block] = [Paragraph(words("compare_nothing"))]
    if compared.confounds:
        table = difference_table(compared.confounds, words)
        blocks = [Paragraph(words("compare_differs_intro")), table]
    for run, cells in (("A", compared.only_a), ("B", compared.only_b)):
        if cells:
            blocks.append(Paragraph(words("compare_only", run=run, cells=words.listed(cells))))
    return Section("differs", words("compare_differs"), tuple(blocks))
