"""Comparison by factor: every cell's figures, plots, and what each level does, in words."""

from trainlab.analyse.findings.finding import Finding
from trainlab.analyse.findings.learning import compared_metrics
from trainlab.report.bullets import MOST, first_bullets
from trainlab.report.document import Block, Figure, Paragraph, Section
from trainlab.report.figures.cell_values import COSTS, CellValues, cost_values, memory_values
from trainlab.report.figures.charts import dot_chart
from trainlab.report.run_data import RunData
from trainlab.report.sections.learning import metric_figure
from trainlab.report.tables.cost import cost_table
from trainlab.report.tables.factors import factor_table
from trainlab.words import Words
from trainlab.words.numbers import figure

MOST_VALUES = 24
"""Of a chart, told to those who do not see it."""


def comparison_section(data: RunData, words: Words) -> Section | None:
    """All cells side by side, then a part per factor; None where there is nothing to compare."""
    blocks: list[Block] = []
    if data.evidence.measured:
        blocks.append(cost_table(data.evidence, words))
        blocks += _plots(data, words)
    if len(data.evidence.learned) > 1:
        metrics = compared_metrics(data.evidence)
        drawn = [metric_figure(data, metric, words) for metric in metrics[:2]]
        blocks += [one for one in drawn if one is not None]
    found = [one for one in data.of_section("factors") if one.factor]
    sections = [
        _factor_section(factor, [one for one in found if one.factor == factor], words)
        for factor in dict.fromkeys(one.factor for one in found if one.factor)
    ]
    if not blocks and not sections:
        return None
    key = "comparison" if data.evidence.study.cells else "cost"
    intro = (Paragraph(words("comparison_intro")),) if sections else ()
    return Section("comparison", words(key), (*intro, *blocks), tuple(sections))


def _plots(data: RunData, words: Words) -> list[Block]:
    found = [(quantity, cost_values(data.evidence, quantity)) for quantity in COSTS]
    found.append(("peak_mib", memory_values(data.evidence)))
    return [cost_figure(quantity, dots, words) for quantity, dots in found if dots is not None]


def cost_figure(quantity: str, dots: CellValues, words: Words) -> Figure:
    """One figure over all cells."""
    values = words.listed(
        f"{dot.cell}{'' if dot.mode is None else ' ' + words.mode(dot.mode)}: {figure(dot.value)}"
        for dot in dots.dots[:MOST_VALUES]
    )
    notes = [words("memory_dots_note" if quantity == "peak_mib" else "cost_dots_note")]
    if dots.num_left_out:
        notes.append(words("left_out", number=dots.num_left_out))
    return Figure(
        id=f"cost-{quantity.replace('_', '-')}",
        caption=words(f"{quantity}_caption"),
        alt=words("final_alt", metric=words(quantity), values=values),
        spec=dot_chart(dots, words(quantity), words),
        note=words.sentences(*notes),
    )


def _factor_section(factor: str, found: list[Finding], words: Words) -> Section:
    name = factor.removeprefix("model.").replace(",", " + ")
    blocks: list[Block] = [factor_table(name, found, words)]
    blocks += first_bullets(decided_first(found), words)
    slug = "".join(c if c.isalnum() and c.isascii() else "-" for c in factor)
    return Section(f"factor-{slug}", words("factor", factor=name), tuple(blocks))


def decided_first(found: list[Finding]) -> list[Finding]:
    """All of a few; of many, what was decided before what could not be."""
    if len(found) <= MOST:
        return found
    return sorted(found, key=lambda one: one.verdict in (None, "cannot tell"))
