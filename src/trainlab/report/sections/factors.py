"""Comparison by factor: every cell's figures, plots, and what each level does, in words."""

from trainlab.analyse.findings.cost import MODES
from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.findings.learning import subjects
from trainlab.report.document import Block, Figure, Paragraph, Row, Section, Table, table
from trainlab.report.entries import comparison_row, estimate, number, points, text
from trainlab.report.figures.charts import dot_chart
from trainlab.report.figures.dots import Dots, cost_dots, memory_dots
from trainlab.report.material import Material
from trainlab.report.sections.cost import memory_told
from trainlab.report.sections.learning import metric_figure
from trainlab.words import Words
from trainlab.words.numbers import figure

QUANTITIES = ("step_ms", "sample_us", "epoch_s", "samples_per_s")
KINDS = ("effect", "no_reset", "cost", "memory")
SHOWN = 20


def comparison_section(material: Material, words: Words) -> Section | None:
    """All cells side by side, then a part per factor; None where there is nothing to compare."""
    blocks: list[Block] = []
    if material.evidence.measured:
        blocks.append(cost_table(material, words))
        blocks += _plots(material, words)
    if len(material.evidence.learned) > 1:
        metrics = subjects(material.evidence)
        drawn = [metric_figure(material, metric, words) for metric in metrics[:2]]
        blocks += [one for one in drawn if one is not None]
    found = [one for one in material.findings if one.kind in KINDS and one.factor]
    sections = [
        _factor_section(factor, [one for one in found if one.factor == factor], words)
        for factor in dict.fromkeys(one.factor for one in found if one.factor)
    ]
    if not blocks and not sections:
        return None
    key = "comparison" if material.evidence.study.cells else "cost"
    intro = (Paragraph(words("comparison_intro")),) if sections else ()
    return Section("comparison", words(key), (*intro, *blocks), tuple(sections))


def _plots(material: Material, words: Words) -> list[Block]:
    found = [(q, cost_dots(material, q)) for q in QUANTITIES]
    found.append(("peak_mib", memory_dots(material)))
    return [cost_figure(q, dots, words) for q, dots in found if dots is not None]


def cost_figure(quantity: str, dots: Dots, words: Words) -> Figure:
    """One figure over all cells."""
    told = words("list_comma").join(
        f"{dot.cell}{'' if dot.mode is None else ' ' + words(f'mode_{dot.mode}')}: "
        f"{figure(dot.value)}"
        for dot in dots.dots[:24]
    )
    notes = [words("memory_dots_note" if quantity == "peak_mib" else "cost_dots_note")]
    if dots.num_left_out:
        notes.append(words("left_out", number=dots.num_left_out))
    return Figure(
        id=f"cost-{quantity.replace('_', '-')}",
        caption=words(f"{quantity}_caption"),
        alt=words("final_alt", metric=words(quantity), values=told),
        spec=dot_chart(dots, words(quantity), words),
        note=words.sentences(*notes),
    )


def cost_table(material: Material, words: Words) -> Table:
    """Each cell's cost by mode, from bare processes."""
    rows = []
    order = {cell.id: number for number, cell in enumerate(material.evidence.cells)}
    measured = sorted(
        material.evidence.measured,
        key=lambda one: (
            order.get(one.trial.cell, 0),
            MODES.index(one.summary.mode),
            one.is_trained,
            one.trial.again,
        ),
    )
    for one in measured:
        summary = one.summary
        notes = [words("again")] if one.trial.again else []
        notes += [words("trained")] if one.is_trained else []
        told = f" ({words('list_comma').join(notes)})" if notes else ""
        entries = (
            text(one.trial.cell + told),
            text(words(f"mode_{summary.mode}")),
            text(one.trial.resolved.get("device_name", "")),
            number(summary.step_ms.value),
            estimate(summary.sample_us),
            number(summary.epoch_s.value),
            number(summary.samples_per_s.value),
            memory_told(one),
        )
        rows.append(Row(entries, cell=one.trial.cell))
    headings = (
        (words("cell"), False),
        (words("mode"), False),
        (words("device"), False),
        (words("step_ms"), True),
        (words("sample_us"), True),
        (words("epoch_s"), True),
        (words("samples_per_s"), True),
        (words("peak_mib"), True),
    )
    return table(
        words("cost_table"),
        headings,
        rows,
        note=words("cost_table_note"),
        is_sortable=True,
        num_shown=SHOWN if len(rows) > SHOWN else None,
        is_code=True,
    )


def _factor_section(factor: str, found: list[Finding], words: Words) -> Section:
    name = factor.removeprefix("model.").replace(",", " + ")
    # Where nothing else varies, or where levels are told by cells, a cell's name only repeats them.
    is_alone = all("," not in one.cells[1] or one.levels == (None, None) for one in found)
    rows = [comparison_row(one, words, with_cell=not is_alone) for one in found]
    headings = (
        (words("level"), False),
        *(() if is_alone else ((words("cell"), False),)),
        (words("figure"), False),
        (words("reference"), True),
        (words("here"), True),
        (words("difference"), True),
        (words("interval"), True),
        (words("n"), True),
        (words("verdict"), False),
    )
    blocks: list[Block] = [
        table(
            words("factor_table", factor=name),
            headings,
            rows,
            note=words("factor_note"),
            is_sortable=True,
            num_shown=SHOWN if len(rows) > SHOWN else None,
            is_code=True,
        )
    ]
    told = told_first(found)
    blocks.append(points(told[:SHOWN], words))
    if len(told) > SHOWN:
        blocks.append(Paragraph(words("findings_left_out", number=len(told) - SHOWN)))
    slug = "".join(c if c.isalnum() and c.isascii() else "-" for c in factor)
    return Section(f"factor-{slug}", words("factor", factor=name), tuple(blocks))


def told_first(found: list[Finding]) -> list[Finding]:
    """All of a few; of many, what was decided before what could not be."""
    if len(found) <= SHOWN:
        return found
    return sorted(found, key=lambda one: one.verdict in (None, "cannot tell"))
