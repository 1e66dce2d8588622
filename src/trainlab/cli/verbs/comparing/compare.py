"""trainlab compare: two runs of one workload side by side, say a laptop's and a server's."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainlab.analysis.comparison import (
    SideBySide,
    beside_table,
    difference_table,
    labels_of,
    side_by_side,
)
from trainlab.analysis.document import Block, Paragraph
from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption
from trainlab.cli.summary import print_damaged
from trainlab.errors import RecordError
from trainlab.lab import open_run
from trainlab.report.terminal import print_blocks
from trainlab.words import Words


def command(
    first: Annotated[Path, typer.Argument(help="A run folder.")],
    second: Annotated[Path, typer.Argument(help="Another, of the same workload.")],
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write it as one HTML file.")
    ] = None,
    lang: LangOption = None,
) -> None:
    """Lay two runs side by side; what else differs between them is listed."""
    words = words_in(lang)
    if first.resolve() == second.resolve():
        raise RecordError(f"{first}: is compared with itself; name two run folders")
    a, b = (open_run(path).evidence() for path in (first, second))
    comparison = side_by_side(a, b)
    console, named = Console(), (("A", first), ("B", second))
    labels = [Paragraph(f"{run}{words('colon')}{path}") for run, path in named]
    print_blocks(console, labels, words)
    for evidence in (a, b):
        print_damaged(console, evidence, words)
    print_blocks(console, _blocks(comparison, words), words)
    if report is not None:
        from trainlab.report.writing import write_comparison

        write_comparison(a, b, report, words.lang, labels_of((a, b), (first, second)))
        print_blocks(console, [Paragraph(words("report_at", path=report))], words)


def _blocks(comparison: SideBySide, words: Words) -> list[Block]:
    blocks: list[Block] = []
    if comparison.costs:
        blocks.append(beside_table(words("compare_costs_table"), comparison.costs, words))
    if comparison.learned:
        blocks.append(beside_table(words("compare_learned_table"), comparison.learned, words))
    for run, cells in (("A", comparison.only_a), ("B", comparison.only_b)):
        if cells:
            blocks.append(Paragraph(words("compare_only", run=run, cells=words.listed(cells))))
    if comparison.confounds:
        return [*blocks, difference_table(comparison.confounds, words)]
    return [*blocks, Paragraph(words("compare_nothing"))]
