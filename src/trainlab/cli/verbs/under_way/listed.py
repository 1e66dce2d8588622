"""The runs of a folder, newest first: what a verb shows that was given no run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trainlab.errors import RecordError, TrainlabError
from trainlab.lab import open_run
from trainlab.lab.run_progress import Onlooker
from trainlab.words import Words

HOME = Path("runs")
"""Where `trainlab run` puts them."""


@dataclass(frozen=True)
class ListedRun:
    """A run as it is listed."""

    path: Path
    state: str
    created: str
    num_finished: int = 0
    num_trials: int = 0
    num_failed: int = 0


def print_runs(words: Words, print_json: Any = None) -> None:
    """The runs in the current folder's `runs/`; RecordError where there is none."""
    runs = sorted(
        map(_listed, HOME.glob("*/study.json")), key=lambda run: run.created, reverse=True
    )
    if not runs:
        remedy = "name a run folder, or make one with `trainlab run mnist-lab`"
        raise RecordError(f"{HOME}: has no run; {remedy}")
    if print_json is not None:
        print_json([{**vars(run), "path": str(run.path)} for run in runs])
        return
    _print_rows([_cells(run, words) for run in runs])


def _cells(run: ListedRun, words: Words) -> tuple[str, ...]:
    trials = words("status_finished", some=run.num_finished, all=run.num_trials)
    if run.num_failed:
        failed = words("status_count", number=run.num_failed, state=words("status_failed"))
        trials = words.listed([trials, failed])
    created = run.created.replace("T", " ")[:16]
    return (str(run.path), words.named("listed", run.state), created, trials)


def _print_rows(rows: Sequence[tuple[str, ...]]) -> None:
    """A line per run; of a narrow terminal two, the path by itself: broken, it could not be copied."""
    console = Console()
    table = Table(box=None, pad_edge=False, show_header=False)
    for row in rows:
        table.add_row(*map(Text, row))
    if (
        Measurement.get(console, console.options.update(width=10_000), table).maximum
        <= console.width
    ):
        console.print(table)
        return
    for path, *rest in rows:
        console.print(Text(path), soft_wrap=True)
        console.print(Padding(Text("  ".join(rest)), (0, 0, 0, 2)))


def _listed(file: Path) -> ListedRun:
    try:
        run = open_run(file.parent)
        overview, created = Onlooker(run).look(), run.study().created
    except TrainlabError:
        changed = datetime.fromtimestamp(file.stat().st_mtime).isoformat()
        return ListedRun(file.parent, "damaged", changed)
    state = "running" if overview.is_driven else "finished" if overview.is_finished else "left"
    num_finished = sum(trial.is_finished for trial in overview.trials)
    num_failed = sum(trial.state == "failed" for trial in overview.trials)
    return ListedRun(file.parent, state, created, num_finished, len(overview.trials), num_failed)
