"""What a run came to, for people and for programs; read from its records."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainlab.cli.progress import value_told
from trainlab.record.folder import RunFolder
from trainlab.record.schema import DataRecord, TrialRecord

COLUMNS = ("train/loss", "train/accuracy", "test/loss", "test/accuracy")


def summary(folder: RunFolder) -> dict[str, Any]:
    """The run as one JSON object."""
    trials = folder.trials()
    return {
        "run": str(folder.path),
        "study": folder.study().name,
        "trials": [
            {
                "id": trial.id,
                "seed": trial.seed,
                "state": trial.state,
                "final": trial.final,
                "total_s": trial.total_s,
                "epochs_done": trial.epochs_done,
                "steps_done": trial.steps_done,
                "diverged_at_step": trial.diverged_at_step,
                "device": trial.resolved.get("device"),
                "data": None if trial.data is None else trial.data.model_dump(),
                "error": None if trial.error is None else trial.error.message,
                "notes": list(trial.notes),
            }
            for trial in trials
        ],
    }


def print_summary(console: Console, folder: RunFolder) -> None:
    """A table of every trial's epochs, the data used, what went wrong, and what to do next."""
    trials = folder.trials()
    console.print(_table(folder, trials))
    for trial in trials:
        for line in _remarks(trial):
            console.print(line, soft_wrap=True)
    if trials and trials[0].data is not None:
        console.print(data_told(trials[0].data), soft_wrap=True)
    console.print(f"Run folder: [bold]{escape(str(folder.path))}[/bold]", soft_wrap=True)
    console.print(f"Look at it: trainlab board {escape(str(folder.path))}", soft_wrap=True)


def data_told(data: DataRecord) -> str:
    """Which data, how much of it, and a warning where it is a subset."""
    counts = f"{data.num_train:,} training and {data.num_test:,} test samples"
    if not data.is_subset:
        return f"Data: {data.name}, {counts} ({escape(data.source)})"
    why = f" Full data was not to be had: {escape(data.note)}" if data.note else ""
    return (
        f"[yellow]Data: a bundled subset of {data.name}, {counts}: accuracies are lower than on "
        f"the full set.[/yellow]{why}"
    )


def _table(folder: RunFolder, trials: list[TrialRecord]) -> Table:
    first = trials[0]
    used, asked = first.resolved, first.settings
    caption = ", ".join(
        [
            str(used.get("device_name", asked["device"])),
            f"batch {asked['batch_size']}",
            f"{asked['optimizer']} lr {used.get('lr', asked['lr'])}",
            asked["precision"],
            *(f"{name}={value}" for name, value in asked["model"].items()),
            *([] if asked["zero_grad"] else ["gradients never reset"]),
        ]
    )
    table = Table(title=f"{escape(folder.study().name)}: {escape(caption)}", title_justify="left")
    table.add_column("seed", justify="right")
    table.add_column("epoch", justify="right")
    for name in COLUMNS:
        table.add_column(name.replace("/", "\n"), justify="right")
    table.add_column("train\ntime (s)", justify="right")
    table.add_column("test\ntime (s)", justify="right")
    for trial in trials:
        points = [p for p in folder.trial(trial.id).curve() if p["kind"] == "epoch"]
        for point in points:
            metrics = [value_told(n, point[n]) if n in point else "" for n in COLUMNS]
            times = [f"{point[name]:.2f}" for name in ("train_s", "test_s")]
            table.add_row(str(trial.seed), str(point["epoch"]), *metrics, *times)
        if points:
            table.add_section()
    return table


def _remarks(trial: TrialRecord) -> list[str]:
    told = [f"seed {trial.seed}: note: {escape(note)}" for note in trial.notes]
    if trial.state == "diverged":
        told.append(
            f"[yellow]seed {trial.seed}: diverged: the loss of update {trial.diverged_at_step} "
            "is not finite; a smaller learning rate usually helps[/yellow]"
        )
    if trial.error is not None:
        told.append(
            f"[red]seed {trial.seed}: failed: {escape(trial.error.kind)}: "
            f"{escape(trial.error.message)}[/red] (traceback in its trial.json)"
        )
    return told
