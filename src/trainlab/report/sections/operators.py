"""Operators: the top ten of every cell, by mode and device."""

from trainlab.analyse.cost.measurement import Measurement
from trainlab.analyse.cost.operators import outside_us, ranked
from trainlab.analyse.findings.cost import MODES
from trainlab.report.document import (
    Block,
    Paragraph,
    Row,
    Section,
    Table,
    table,
)
from trainlab.report.entries import count, number, points, share, text
from trainlab.report.figures.bars import operator_bars
from trainlab.report.material import Material
from trainlab.report.sections.cost import bar_figure
from trainlab.words import Words
from trainlab.words.numbers import bare_operator, percent

MOST_TABLES = 12
"""Operator tables of one mode; the files have them all."""


TOP = 10


def operator_section(material: Material, words: Words) -> Section | None:
    """The top ten of every cell, by mode and device; None where nothing was profiled."""
    sections = []
    for mode in MODES:
        found = [one for one in material.measured(mode) if one.operators is not None]
        if not found:
            continue
        blocks: list[Block] = []
        bars = operator_bars(material, mode)
        if bars is not None:
            blocks.append(bar_figure(bars, "operators", words("share_of_step"), words, plain))
        told = [one for one in material.findings if one.kind in ("dominates", "growth")]
        mine = [one for one in told if one.numbers["mode"] == mode]
        if mine:
            blocks.append(points(mine, words))
        blocks += [operator_table(one, words) for one in found[:MOST_TABLES]]
        if len(found) > MOST_TABLES:
            left = len(found) - MOST_TABLES
            blocks.append(Paragraph(words("operators_left_out", number=left)))
        sections.append(
            Section(f"operators-{mode}", words.capital(words.mode(mode)), tuple(blocks))
        )
    if not sections:
        return None
    intro = Paragraph(words("operators_intro"))
    return Section("operators", words("operators"), (intro,), tuple(sections))


def operator_table(found: Measurement, words: Words) -> Table:
    """All operators, the costliest first; ten are shown."""
    record = found.operators
    assert record is not None
    by_shape = any(row.shapes for row in record.rows)
    rows = []
    for one in ranked(record):
        entries = (
            text(bare_operator(one.name)),
            *((text(one.shapes),) if by_shape else ()),
            share(one.share),
            number(one.self_us, f"{one.self_us:,.1f}"),
            number(one.total_us, f"{one.total_us:,.1f}"),
            number(one.average_us, f"{one.average_us:,.1f}"),
            number(one.calls_per_step),
            count(round(one.memory_bytes / 1024)),
        )
        rows.append(Row(entries, cell=found.trial.cell))
    headings = (
        (words("operator"), False),
        *(((words("shapes"), False),) if by_shape else ()),
        (words("share"), True),
        (words("self_us"), True),
        (words("total_us"), True),
        (words("average_us"), True),
        (words("calls"), True),
        (words("memory_kib"), True),
    )
    outside = outside_us(record)
    notes = [
        words(
            "outside_note",
            time=f"{outside:,.1f}",
            share=percent(outside / record.profiled_step_us),
        )
    ]
    if not record.calls_are_equal:
        notes.append(words("calls_differ"))
    return table(
        words(
            "operator_table",
            cell=found.trial.cell,
            step=words(f"step_{found.summary.mode}"),
            device=found.trial.resolved.get("device_name", ""),
        ),
        headings,
        rows,
        note=words.sentences(*notes),
        is_sortable=True,
        num_shown=TOP,
        is_code=True,
    )


def plain(name: str) -> str:
    """A name as it is."""
    return name
