"""The main tables of a report as LaTeX with booktabs: means, costs, comparisons by factor."""

import re
from collections.abc import Iterator, Mapping
from itertools import compress

from trainlab.analysis.cost import cost_table
from trainlab.analysis.document import Table
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.factors import comparison_section
from trainlab.analysis.learning import learn_table
from trainlab.analysis.overview import data_of
from trainlab.words import Words

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
    shown = [not column.is_extra for column in table.columns]
    columns = [*compress(table.columns, shown)]
    kinds = "".join("r" if column.is_number else "l" for column in columns)
    texts = [
        [column.heading for column in columns],
        *([entry.text for entry in compress(row.entries, shown)] for row in table.shown),
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
    """Those of the report, on paper: without the columns and rows that are folded there."""
    if evidence.learned:
        yield learn_table(evidence, words)
    if evidence.measured:
        yield cost_table(evidence, words)
    comparison = comparison_section(data_of(evidence), words)
    for section in comparison.sections if comparison is not None else ():
        yield from (block for block in section.blocks if isinstance(block, Table))
