"""HTML for the output of a notebook's cell: tables and still pictures; no scripts, nothing from outside."""

import base64
import os
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from urllib.parse import quote

from trainlab.analysis.answer import answer_section
from trainlab.analysis.cost import COSTS, cost_figure, cost_table
from trainlab.analysis.diagnosis import diagnosis_section
from trainlab.analysis.document import Block, Figure, Statements, Table
from trainlab.analysis.factors import metric_figure
from trainlab.analysis.finding import RunData
from trainlab.analysis.learning import curve_figure, learn_table
from trainlab.analysis.metrics import compared_metrics
from trainlab.analysis.overview import notices, trouble_section
from trainlab.analysis.probes import probe_figures, probed_quantities
from trainlab.analysis.scripts import script_times, time_table
from trainlab.errors import MissingExtraError, SpecError
from trainlab.report.html import blocks_html
from trainlab.report.pictures import picture
from trainlab.spec.base import did_you_mean, plain
from trainlab.words import Words
from trainlab.words.error_lines import error_line

MOST_ROWS = 40
"""Of a table; the report has them all."""
CHART_WIDTH = 440
STYLE = """
.trainlab-run { max-width: 72em; line-height: 1.45; }
.trainlab-run h3 { margin: 0 0 .3em; font-size: 1.15em; }
.trainlab-run p, .trainlab-run ul { margin: .35em 0; }
.trainlab-run table { border-collapse: collapse; margin: .7em 0 .3em; font-size: .92em; }
.trainlab-run caption { text-align: left; font-weight: 600; padding: .2em 0; white-space: nowrap; }
.trainlab-run th, .trainlab-run td { text-align: left; padding: .25em .9em .25em 0; vertical-align: top;
  border-bottom: 1px solid #8a93a055; background: none; }
.trainlab-run .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.trainlab-run tbody th { font-weight: 500; }
.trainlab-run .failure { border-left: 3px solid #c2410c; padding-left: .6em; }
.trainlab-run .warning { border-left: 3px solid #b7791f; padding-left: .6em; }
.trainlab-run .note { opacity: .72; font-size: .88em; max-width: 60em; }
.trainlab-run .charts { display: flex; flex-wrap: wrap; gap: 1em; }
.trainlab-run figure { margin: .5em 0; }
.trainlab-run figcaption { font-weight: 600; font-size: .92em; }
.trainlab-run pre { font-size: .85em; white-space: pre-wrap; }
"""


def notebook_html(
    title: str, blocks: Sequence[Block], run: Path, report: Path | None, words: Words
) -> str:
    """The blocks below a title, charts last, side by side; then the report, a link where there is one."""
    charts = [_figure(block, words) for block in blocks if isinstance(block, Figure)]
    others = [_shortened(block, words) for block in blocks if not isinstance(block, Figure)]
    inner = blocks_html(others, words) + f'<div class="charts">{"".join(charts)}</div>'
    folder, link = _text(words("run_folder", path=run)), _text(words("report_to_write"))
    if report is not None:
        # Relative to the notebook: that is what its server can open.
        place = quote(Path(os.path.relpath(report)).as_posix())
        link = f'<a href="{place}" target="_blank">{_text(words("report_link"))}</a>'
    return (
        f'<div class="trainlab-run" lang="{words.language.tag}"><style>{STYLE}</style>'
        f"<h3>{_text(title)}</h3>{inner}<p>{folder} &nbsp; {link}</p></div>"
    )


def _shortened(block: Block, words: Words) -> Block:
    """Of a table the first rows, of the answer the sentences alone: there is no room for more, and no
    section to lead to."""
    match block:
        case Statements(items):
            told = (replace(item, section=None, command="") for item in items)
            return replace(block, items=tuple(told))
        case Table(rows=rows, num_shown=num_shown, note=note):
            shown = rows[: min(MOST_ROWS, num_shown or MOST_ROWS)]
            if left_out := len(rows) - len(shown):
                note = words.sentences(note, words("and_more", number=left_out))
            return replace(block, rows=shown, num_shown=None, note=note, is_sortable=False)
    return block


def _figure(figure: Figure, words: Words) -> str:
    """As an image by itself: pictures that share a page would share the names in them."""
    try:
        svg = picture(figure, CHART_WIDTH)
    except MissingExtraError as error:
        return f"<p>{_text(words('no_chart', why=error_line(str(error), words.lang)))}</p>"
    source = base64.b64encode(svg.encode()).decode()
    return (
        f"<figure><figcaption>{_text(figure.caption)}</figcaption>"
        f'<img src="data:image/svg+xml;base64,{source}" alt="{_text(figure.alt)}"></figure>'
    )


def _text(text: str) -> str:
    return escape(plain(text))


# A run at a glance: the answer, its tables and a few charts, for a place smaller than a report.

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
    for metric in compared_metrics(evidence)[:1]:
        figure = chart_of(data, metric, words)
        figures[figure.id] = figure
    for number, one in enumerate(probed_quantities(data)[:MOST_PROBED], start=1):
        for figure in probe_figures(one, words, f"probe-{number}", num_settings=1):
            figures[figure.id] = figure
    title = words.builtin(evidence.study.title) or evidence.name
    return title, [*blocks, *figures.values()]


def chart_of(data: RunData, name: str, words: Words, *, by_depth: bool = False) -> Figure:
    """A metric over training, or where each cell ended if that is all there is; a cost by cell; a probe
    over training, or by depth if asked for or if that is all there is. SpecError, naming what there is, for
    a name that the run has no values of."""
    figure: Figure | None = None
    probed = {probe: one for one in probed_quantities(data) for probe in one.probes}
    if name in data.evidence.metrics:
        figure = curve_figure(data, name, words) or metric_figure(data, name, words)
    elif name in COSTS:
        figure = cost_figure(data, words, name)
    elif name in probed:
        figures = probe_figures(probed[name], words, "probe", num_settings=1)
        figure = next(iter(figures if by_depth else reversed(figures)), None)
    if figure is not None:
        return figure
    there = [*data.evidence.metrics, *probed]
    there += COSTS if data.evidence.measured else ()
    if name in there:
        raise SpecError([f"plot: {name}: has no finite value in this run"])
    has = f"it has {', '.join(there)}" if there else "no trial of it has ended"
    raise SpecError(
        [f"plot: got {name!r}, which this run has not{did_you_mean(name, there)}; {has}"]
    )
