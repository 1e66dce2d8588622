"""Operators: the top ten of every cell, by mode and device."""

from trainlab.analysis.document import Block, Figure, Listing, Paragraph, Section
from trainlab.analysis.finding import RunData
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.analysis.operators import OperatorFinding, classic_table
from trainlab.analysis.tables import bullets
from trainlab.report.figures.bars import operator_bars
from trainlab.report.sections.cost import bar_figure
from trainlab.report.tables.operators import operator_table
from trainlab.words import Words

MOST_CLASSIC = 4
"""Tables in PyTorch's own form; `trainlab profile --classic` prints that of any setting."""
MOST_TABLES = 12
"""Operator tables of one mode; the files have them all."""


def operator_figure(data: RunData, mode: str, words: Words) -> Figure | None:
    """The largest shares of every cell's step; None where nothing was profiled."""
    bars = operator_bars(data.evidence, mode)
    return None if bars is None else bar_figure(bars, "operators", words("per_cent"), words, str)


def classic_listing(measurement: Measurement, words: Words) -> Listing:
    """The table that people know from PyTorch, to compare with an old report."""
    assert measurement.operators is not None
    caption = words(
        "classic_caption", step=words.step(measurement.summary.mode), cell=measurement.trial.cell
    )
    return Listing(caption, classic_table(measurement.operators), is_folded=True)


def operator_section(data: RunData, words: Words) -> Section | None:
    """The top ten of every cell, by mode and device; None where nothing was profiled."""
    sections = []
    for mode in MODES:
        profiled = data.profiled(mode)
        if not profiled:
            continue
        blocks: list[Block] = []
        if (figure := operator_figure(data, mode, words)) is not None:
            blocks.append(figure)
        findings = [
            finding
            for finding in data.findings_in("operators")
            if isinstance(finding, OperatorFinding) and finding.of_mode == mode
        ]
        if findings:
            blocks.append(bullets(findings, words))
        blocks += [operator_table(measurement, words) for measurement in profiled[:MOST_TABLES]]
        blocks += [classic_listing(measurement, words) for measurement in profiled[:MOST_CLASSIC]]
        if (num_left_out := len(profiled) - MOST_TABLES) > 0:
            blocks.append(Paragraph(words("operators_left_out", number=num_left_out)))
        title = words.capital(words.mode(mode))
        sections.append(Section(f"operators-{mode}", title, tuple(blocks)))
    if not sections:
        return None
    intro = Paragraph(words("operators_intro"))
    return Section("operators", words("operators"), (intro,), tuple(sections))
