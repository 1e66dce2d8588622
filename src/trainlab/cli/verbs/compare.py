"""trainlab compare: two runs of one workload side by side, say a laptop's and a server's."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainlab.analyse.side_by_side import SideBySide, side_by_side
from trainlab.lab import open_run
from trainlab.report.document import Block, Paragraph
from trainlab.report.render.terminal import print_blocks
from trainlab.report.tables.comparison import beside_table, difference_table
from trainlab.words import Words


def command(
    first: Annotated[Path, typer.Argument(help="A run folder.")],
    second: Annotated[Path, typer.Argument(help="Another, of the same workload.")],
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write it as one HTML file.")
    ] = None,
    lang: Annotated[str, typer.Option(metavar="en|zh", help="The language.")] = "en",
) -> None:
    """Lay two runs side by side; what else differs between them is listed."""
    words = Words(lang)
    a, b = (open_run(path).evidence() for path in (first, second))
    console, found = Console(), side_by_side(a, b)
    print_blocks(console, [Paragraph(f"A: {first}"), Paragraph(f"B: {second}")], words)
    print_blocks(console, _blocks(found, words), words)
    if report is not None:
        from trainlab.report.writing import write_comparison

        write_comparison(a, b, report, lang)
        print_blocks(console, [Paragraph(words("report_at", path=report))], words)


def _blocks(found: SideBySide, words: Words) -> list[Block]:
    blocks: list[Block] = []
    if found.costs:
        blocks.append(beside_table(words("compare_costs_table"), found.costs, words))
    if found.learned:
        blocks.append(beside_table(words("compare_learned_table"), found.learned, words))
    for run, cells in (("A", found.only_a), ("B", found.only_b)):
        if cells:
            blocks.append(Paragraph(words("compare_only", run=run, cells=words.listed(cells))))
    if found.confounds:
        blocks.append(difference_table(found.confounds, words))
    else:
        blocks.append(Paragraph(words("compare_nothing")))
    return blocks
