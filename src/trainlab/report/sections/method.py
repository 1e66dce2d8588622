"""The method: what was repeated and tested, what watching costs, what cannot be told."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from trainlab.analyse.cost.measurement import Measurement
from trainlab.analyse.cost.overhead import ledger
from trainlab.analyse.findings.cost import MODES, floor_of
from trainlab.report.document import Block, Entry, Paragraph, Row, Section, Table, table
from trainlab.report.entries import count, points, text
from trainlab.report.material import Material
from trainlab.report.sentences import confounds_told
from trainlab.words import Words
from trainlab.words.numbers import percent

MOST_WARNINGS = 50
"""Shown at first; the files have them all."""


def method_section(material: Material, words: Words) -> Section:
    """What was warmed up, repeated and tested; what it cost to watch; what cannot be told."""
    evidence, study = material.evidence, material.evidence.study
    blocks: list[Block] = []
    if study.learn and evidence.learned:
        blocks.append(Paragraph(words("method_learn", seeds=len(study.seeds))))
    if evidence.measured:
        blocks += _cost_method(material, words)
    tests = dict.fromkeys(one.test for one in material.findings if one.test)
    blocks += [Paragraph(words.test(test)) for test in tests]
    told = confounds_told(material.findings, words)
    blocks.append(Paragraph(words("confounds", told=told) if told else words("no_confounds")))
    if evidence.measured:
        blocks.append(ledger_table(material, words))
        shaky = warning_table(material, words)
        if shaky is not None:
            blocks.append(shaky)
    open_ones = [one for one in material.findings if one.kind in ("unstable", "undecided")]
    blocks.append(points(open_ones, words) if open_ones else Paragraph(words("nothing_open")))
    return Section("method", words("method"), tuple(blocks))


def _cost_method(material: Material, words: Words) -> Iterator[Block]:
    found = material.evidence.measured
    summaries = [one.summary for one in found]
    yield Paragraph(
        words(
            "method_cost",
            processes=_range((s.num_processes for s in summaries), words),
            warmups=_range((s.num_warmup_steps for s in summaries), words),
            steps=_range((s.num_steps for s in summaries), words),
        )
    )
    for mode in MODES:
        floor = floor_of(material.evidence, mode)
        if floor is not None:
            yield Paragraph(
                words(
                    "method_floor",
                    step=words(f"step_{mode}"),
                    cell=material.evidence.cells[0].id,
                    floor=percent(floor),
                )
            )


def _range(values: Iterable[int], words: Words) -> str:
    known = sorted(set(values))
    low, high = known[0], known[-1]
    return f"{low:,}" if low == high else words("range", low=f"{low:,}", high=f"{high:,}")


def ledger_table(material: Material, words: Words) -> Table:
    """What each instrument added to a step of the first cell, by mode."""
    rows = []
    for mode in MODES:
        for found in material.measured(mode)[:1]:
            for row in ledger(_with_pairs(found)):
                reach = f"{100 * row.low:+.1f} %, {100 * row.high:+.1f} %"
                entries = (
                    text(words.instrument(row.instrument)),
                    text(words(f"mode_{mode}")),
                    Entry(f"{100 * row.added:+.1f} %", row.added),
                    text(reach),
                    count(row.num_pairs),
                )
                rows.append(Row(entries))
    headings = (
        (words("instrument"), False),
        (words("mode"), False),
        (words("added"), True),
        (words("interval"), True),
        (words("pairs"), True),
    )
    cell = material.evidence.cells[0].id
    caption = words("ledger_table", cell=cell)
    return table(caption, headings, rows, note=words("ledger_note"))


def _with_pairs(found: Measurement) -> Measurement:
    """Without the instruments whose records have no bare steps to hold the watched ones against."""
    operators, layers = found.operators, found.layers
    return replace(
        found,
        operators=operators if operators and operators.bare_ms and operators.profiled_ms else None,
        layers=layers if layers and layers.bare_ms and layers.watched_ms else None,
    )


def warning_table(material: Material, words: Words) -> Table | None:
    """Every measurement that was unstable, and why."""
    rows = [
        Row(
            (
                text(one.trial.cell + (f" ({words('again')})" if one.trial.again else "")),
                text(words(f"mode_{one.summary.mode}")),
                text(words("list_semicolon").join(map(words.warning, one.summary.warnings))),
            ),
            cell=one.trial.cell,
        )
        for one in material.evidence.measured
        if one.summary.warnings
    ]
    if not rows:
        return None
    headings = ((words("cell"), False), (words("mode"), False), (words("why"), False))
    shown = MOST_WARNINGS if len(rows) > MOST_WARNINGS else None
    return table(words("warning_table"), headings, rows, num_shown=shown, is_code=True)
