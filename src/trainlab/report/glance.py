"""A run at a glance: the answer, its tables and a few charts, for a place smaller than a report."""

from collections.abc import Iterator

from trainlab.analysis.answer import answer_section, notices
from trainlab.analysis.charts import COSTS, cost_values
from trainlab.analysis.cost import cost_table
from trainlab.analysis.diagnosis import diagnosis_section
from trainlab.analysis.document import Block, Figure
from trainlab.analysis.factors import cost_figure, metric_figure
from trainlab.analysis.finding import RunData
from trainlab.analysis.learning import curve_figure, learn_table
from trainlab.analysis.metrics import compared_metrics
from trainlab.analysis.overview import trouble_section
from trainlab.analysis.probes import probe_figures, probed_quantities
from trainlab.analysis.scripts import script_times, time_table
from trainlab.errors import SpecError
from trainlab.spec.base import did_you_mean
from trainlab.words import Words

MOST_PROBED = 2
"""Quantities of probes that are drawn; the report has more."""


def glance(data: RunData, words: Words) -> tuple[str, list[Block]]:
    """A title, and what stands below it: what went wrong, the answer, tables, charts."""
    evidence = data.evidence
    blocks: list[Block] = [*notices(data, words)]
    answer = diagnosis_section(data, words) or answer_section(data, words)
    blocks += [block for block in answer.blocks if not isinstance(block, Figure)]
    if (trouble := trouble_section(data, words)) is not None:
        blocks += trouble.blocks
    blocks += [learn_table(evidence, words)] if evidence.learned else []
    blocks += [cost_table(evidence, words)] if evidence.measured else []
    if all_times := script_times(evidence):
        blocks.append(time_table(all_times, words))
    figures = {block.id: block for block in answer.blocks if isinstance(block, Figure)}
    figures |= {figure.id: figure for figure in _charts(data, words)}
    title = words.builtin(evidence.study.title) or evidence.name
    return title, [*blocks, *figures.values()]


def _charts(data: RunData, words: Words) -> Iterator[Figure]:
    for metric in compared_metrics(data.evidence)[:1]:
        yield chart_of(data, metric, words)
    for number, one in enumerate(probed_quantities(data)[:MOST_PROBED], start=1):
        yield from probe_figures(one, words, f"probe-{number}", num_settings=1)


def chart_of(data: RunData, name: str, words: Words, *, by_depth: bool = False) -> Figure:
    """A metric over training, or where each cell ended if that is all there is; a cost by cell; a probe
    over training, or by depth if asked for or if that is all there is. SpecError, naming what there is, for
    a name that the run has no values of."""
    figure: Figure | None = None
    probed = {probe: one for one in probed_quantities(data) for probe in one.probes}
    if name in data.evidence.metrics:
        figure = curve_figure(data, name, words) or metric_figure(data, name, words)
    elif name in COSTS and (values := cost_values(data.evidence, name)) is not None:
        figure = cost_figure(values, words)
    elif name in probed:
        figures = probe_figures(probed[name], words, "probe", num_settings=1)
        figure = next(iter(figures if by_depth else reversed(figures)), None)
    if figure is not None:
        return figure
    there = [*data.evidence.metrics, *probed]
    there += [cost for cost in COSTS if cost_values(data.evidence, cost) is not None]
    if name in there:
        raise SpecError([f"plot: {name}: has no finite value in this run"])
    has = f"it has {', '.join(there)}" if there else "no trial of it has ended"
    raise SpecError(
        [f"plot: got {name!r}, which this run has not{did_you_mean(name, there)}; {has}"]
    )
