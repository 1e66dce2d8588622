"""The main tables of a run as LaTeX with booktabs: means with half-widths, costs, comparisons by factor."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from trainlab.analysis.cost import measured_cell
from trainlab.analysis.document import Entry, Table
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.factors import comparison_section
from trainlab.analysis.measurement import Estimate, Measurement
from trainlab.analysis.metrics import in_order
from trainlab.analysis.overview import data_of
from trainlab.analysis.tables import name, table_of, value
from trainlab.stats.means import mean_of
from trainlab.words import Words
from trainlab.words.numbers import figure, metric_value

TABLES, DOCUMENT = "tables.tex", "document.tex"
PREAMBLE = r"""\documentclass{article}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs}
%s\begin{document}
\input{tables}
\end{document}
"""
TABLE = r"""\begin{table}[htbp]
\centering\small
\caption{%s}
\label{tab:trainlab-%d}
\begin{tabular}{%s}
\toprule
%s
\bottomrule
\end{tabular}
%s\end{table}
"""
CHINESE = "\\usepackage{ctex} % compile with xelatex\n"
SPECIAL: Mapping[str, str] = {
    **{letter: f"\\{letter}" for letter in "{}&%$#_"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "[": "{[}",
    "]": "{]}",
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
    "\u00d7": r"$\times$",
    "·": r"$\cdot$",
    "\u2212": "$-$",
    "µ": r"$\mu$",
    "\u03bc": r"$\mu$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "…": r"\ldots{}",
}
"""Letters that LaTeX takes for commands or that its fonts lack, and what stands for them. A bracket that
begins a row would be read as an option of the line break before it."""


def latex_files(evidence: Evidence, lang: str) -> dict[str, bytes]:
    """`tables.tex`, to be read by \\input, and `document.tex`, which shows it."""
    words = Words(lang)
    tables = [latex_of(table, number) for number, table in enumerate(_tables(evidence, words), 1)]
    needs = "% \\usepackage{booktabs}\n" + (f"% {CHINESE}" if words.language.is_cjk else "")
    preamble = PREAMBLE % (CHINESE if words.language.is_cjk else "")
    return {TABLES: (needs + "\n".join(tables)).encode(), DOCUMENT: preamble.encode()}


def latex_of(table: Table, number: int) -> str:
    """A table with its caption and note; its label is `tab:trainlab-<number>`."""
    kinds = "".join("r" if column.is_number else "l" for column in table.columns)
    texts = [
        [column.heading for column in table.columns],
        *([entry.text for entry in row.entries] for row in table.rows),
    ]
    lines = [" & ".join(map(escaped, row)) + r" \\" for row in texts]
    lines.insert(1, r"\midrule")
    note = rf"\par\smallskip{{\footnotesize {escaped(table.note)}\par}}" if table.note else ""
    rows = "\n".join(lines)
    return TABLE % (escaped(table.caption), number, kinds, rows, note and note + "\n")


def escaped(text: str) -> str:
    """Text on one line that no command in it can break out of."""
    return "".join(SPECIAL.get(letter, letter) for letter in re.sub(r"\s+", " ", text).strip())


def _tables(evidence: Evidence, words: Words) -> Iterator[Table]:
    if evidence.learned:
        yield _learn_table(evidence, words)
    if evidence.measured:
        yield _cost_table(evidence.measured, words)
    comparison = comparison_section(data_of(evidence), words)
    for section in comparison.sections if comparison is not None else ():
        yield from (block for block in section.blocks if isinstance(block, Table))


def _learn_table(evidence: Evidence, words: Words) -> Table:
    """Each cell's means over seeds, with half the width of their 95% interval."""

    def final_mean(cell: str, metric: str) -> Entry:
        mean = mean_of([*evidence.values(cell, metric).values()])
        if mean is None:
            return Entry(words("none_finite"))
        half = [] if mean.interval is None else [mean.interval.high - mean.value]
        texts = (metric_value(metric, number, mean.value) for number in (mean.value, *half))
        # A share is in per cent, as the heading says.
        return Entry(" ± ".join(text.removesuffix("%") for text in texts))

    return table_of(
        words("learn_table"),
        [
            name(words("cell"), str),
            value(words("seeds"), lambda cell: Entry(str(len(evidence.learned[cell])))),
            *(
                value(words.metric_title(metric), partial(final_mean, metric=metric))
                for metric in in_order(evidence.metrics, evidence.study)
            ),
        ],
        [cell.id for cell in evidence.cells if evidence.learned.get(cell.id)],
        words("latex_learn_note"),
    )


def _cost_table(measured: Sequence[Measurement], words: Words) -> Table:
    return table_of(
        words("cost_table"),
        [
            name(words("cell"), lambda m: measured_cell(m, words)),
            name(words("mode"), lambda m: words.mode(m.summary.mode)),
            value(words("step_ms"), lambda m: Entry(_cost_text(m.summary.step_ms))),
            value(words("sample_us"), lambda m: Entry(_cost_text(m.summary.sample_us))),
            value(words("epoch_s"), lambda m: Entry(_cost_text(m.summary.epoch_s))),
            value(words("peak_mib"), lambda m: m.peak_mib),
        ],
        [m for m in measured if not m.trial.again],
        words("latex_cost_note"),
    )


def _cost_text(cost: Estimate) -> str:
    """With the larger side of the interval, which need not be symmetric."""
    if cost.low is None or cost.high is None:
        return figure(cost.value)
    return f"{figure(cost.value)} ± {figure(max(cost.high - cost.value, cost.value - cost.low), 2)}"
