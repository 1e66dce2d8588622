"""Comparison by factor: every cell's costs and metrics, and what each level does, in words."""

from trainlab.analysis.charts import COSTS, CellValues, cost_values, dot_chart, memory_values
from trainlab.analysis.cost import CostRatio, MemoryRatio
from trainlab.analysis.document import Block, Figure, Paragraph, Section
from trainlab.analysis.finding import Finding, by_importance, confounds_text
from trainlab.analysis.findings.effects import Effect
from trainlab.analysis.metrics import compared_metrics
from trainlab.analysis.names import factor_name, section_of
from trainlab.analysis.run_data import RunData
from trainlab.analysis.tables import first_bullets
from trainlab.report.sections.learning import metric_figure
from trainlab.report.tables.cost import cost_table
from trainlab.report.tables.factors import factor_table
from trainlab.words import Words
from trainlab.words.numbers import figure

MOST_VALUES = 24
"""Values of a chart that its alt text lists."""


def comparison_section(data: RunData, words: Words) -> Section | None:
    """All cells side by side, then a part per factor; None where there is nothing to compare."""
    blocks: list[Block] = []
    if data.evidence.measured:
        blocks.append(cost_table(data.evidence, words))
        blocks += _cost_figures(data, words)
    if len(data.evidence.learned) > 1:
        metrics = compared_metrics(data.evidence)
        figures = [metric_figure(data, metric, words) for metric in metrics[:2]]
        blocks += filter(None, figures)
    by_factor: dict[str, list[Finding]] = {}
    for finding in data.findings_in("factors"):
        if finding.factor:
            by_factor.setdefault(finding.factor, []).append(finding)
    sections = [_factor_section(factor, findings, words) for factor, findings in by_factor.items()]
    if not blocks and not sections:
        return None
    key = "comparison" if data.evidence.study.cells else "cost"
    intro = (Paragraph(words("comparison_intro")),) if sections else ()
    return Section("comparison", words(key), (*intro, *blocks), tuple(sections))


def _cost_figures(data: RunData, words: Words) -> list[Figure]:
    by_quantity = {quantity: cost_values(data.evidence, quantity) for quantity in COSTS}
    by_quantity["peak_mib"] = memory_values(data.evidence)
    return [cost_figure(cell_values, words) for cell_values in by_quantity.values() if cell_values]


def cost_figure(cell_values: CellValues, words: Words) -> Figure:
    """One cost over all cells."""
    quantity = cell_values.quantity
    values_text = words.listed(
        f"{v.cell}{'' if v.mode is None else ' ' + words.mode(v.mode)}: {figure(v.value)}"
        for v in cell_values.values[:MOST_VALUES]
    )
    notes = [words("memory_dots_note" if quantity == "peak_mib" else "cost_dots_note")]
    if cell_values.num_left_out:
        notes.append(words("left_out", number=cell_values.num_left_out))
    return Figure(
        id=f"cost-{quantity.replace('_', '-')}",
        caption=words(f"{quantity}_caption"),
        alt=words.tidy(words("final_alt", metric=words(quantity), values=values_text)),
        spec=dot_chart(cell_values, words(quantity), words),
        note=words.sentences(*notes),
    )


def _factor_section(factor: str, findings: list[Finding], words: Words) -> Section:
    name = " + ".join(factor_name(one, words) for one in factor.split(","))
    compared = [f for f in findings if isinstance(f, Effect | CostRatio | MemoryRatio)]
    table = [factor_table(name, compared, words)] if compared else []
    told = [one for one in by_importance(findings) if not one.repeats_row]
    # Of findings that are rows alone the table does not say what else differed.
    confounds = confounds_text((one for one in findings if one.repeats_row), words)
    also = [Paragraph(words("also_differ", confounds=confounds))] if confounds else []
    blocks = (*table, *also, *first_bullets(told, words))
    return Section(section_of(factor), words.tidy(words("factor", factor=name)), blocks)
