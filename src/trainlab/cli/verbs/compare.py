"""trainlab compare: two runs of one workload side by side, say a laptop's and a server's."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainlab.analyse.runs import Beside, SideBySide, side_by_side
from trainlab.cli.tables import plain_table
from trainlab.lab import open_run
from trainlab.stats.cost_ratio import CostComparison
from trainlab.words.numbers import figure, metric_difference, metric_value

MOST_CONFOUNDS = 20


def command(
    first: Annotated[Path, typer.Argument(help="A run folder.")],
    second: Annotated[Path, typer.Argument(help="Another, of the same workload.")],
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write it as one HTML file.")
    ] = None,
    lang: Annotated[str, typer.Option(metavar="en|zh", help="The language of the report.")] = "en",
) -> None:
    """Lay two runs side by side; what else differs between them is listed."""
    runs = [open_run(path) for path in (first, second)]
    found = side_by_side(*(run.evidence() for run in runs))
    console = Console()
    console.width = max(console.width, 80)
    console.print(f"A: {escape(str(first))}\nB: {escape(str(second))}", highlight=False)
    if found.costs:
        console.print(_table("what it costs, µs per sample", found.costs, _cost_told))
    if found.learned:
        title = "what it learns, mean over the seeds both have"
        console.print(_table(title, found.learned, _learned_told))
    _print_differences(console, found)
    if report is not None:
        from trainlab.report.material import read_material
        from trainlab.report.writing import write_comparison

        a, b = (read_material(run, run.evidence()) for run in runs)
        write_comparison(a, b, report, lang)
        console.print(f"Report: [bold]{escape(str(report))}[/bold]", highlight=False)


def _print_differences(console: Console, found: SideBySide) -> None:
    for name, cells in (("A", found.only_a), ("B", found.only_b)):
        if cells:
            console.print(f"Only in {name}: {escape(', '.join(cells))}", highlight=False)
    console.print("[bold]What else differs[/bold] (A against B)")
    for confound in found.confounds[:MOST_CONFOUNDS]:
        console.print(f" · {escape(str(confound))}", highlight=False, soft_wrap=True)
    more = len(found.confounds) - MOST_CONFOUNDS
    if more > 0:
        console.print(f" · and {more} more")
    if not found.confounds:
        console.print(" · nothing that was recorded")


def _table(title: str, rows: Sequence[Beside], told: Callable[[Beside], list[str]]) -> Table:
    headings = ("cell", "figure", "A", "B", "B against A", "verdict")
    table = plain_table(title, *headings, num_names=2)
    for one in rows:
        table.add_row(escape(one.cell), one.subject, *told(one), one.found.verdict)
    return table


def _cost_told(one: Beside) -> list[str]:
    assert isinstance(one.found, CostComparison)
    ratio = one.found.ratio
    reach = ratio.interval
    told = "" if reach is None else f" [{figure(reach.low)}, {figure(reach.high)}]"
    return [figure(one.a), figure(one.b), f"{figure(ratio.value)} times{told}"]


def _learned_told(one: Beside) -> list[str]:
    difference = metric_difference(one.subject, one.b - one.a, "points")
    return [metric_value(one.subject, one.a), metric_value(one.subject, one.b), difference]
