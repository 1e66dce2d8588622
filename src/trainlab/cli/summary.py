"""What a run came to, for people and for programs; read from its records."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainlab.analyse.evidence import Evidence
from trainlab.analyse.findings.all import findings
from trainlab.analyse.findings.finding import Finding
from trainlab.cli.cost_tables import print_measurement
from trainlab.cli.study_tables import cost_table, learn_table
from trainlab.record.folder import RunFolder
from trainlab.record.schema import DataRecord, TrialRecord
from trainlab.report.sentences import sentence
from trainlab.words.numbers import metric_value

MOST_WAITING_TOLD = 5


def summary(folder: RunFolder, evidence: Evidence) -> dict[str, Any]:
    """The run as one JSON object."""
    return {"run": str(folder.path), **evidence_told(evidence)}


def evidence_told(evidence: Evidence) -> dict[str, Any]:
    """Trials and findings, of one run or of several that were pooled."""
    return {
        "study": evidence.name,
        "trials": [_trial_told(trial) for trial in evidence.trials],
        "findings": [
            {**asdict(one), "numbers": dict(one.numbers), "sentence": sentence(one)}
            for one in findings(evidence)
        ],
    }


def print_summary(
    console: Console, folder: RunFolder, evidence: Evidence, lang: str = "en"
) -> None:
    """Tables of what was learned and what it costs, findings, the data used, and what to do next."""
    trials = list(evidence.trials)
    if not evidence.study.cells:
        console.width = max(console.width, 80)
        learned = [trial for trial in trials if trial.kind == "learn"]
        if learned and (table := _table(folder, learned)).row_count:
            console.print(table)
        for measured in evidence.measured:
            print_measurement(console, evidence.name, measured)
    print_study(console, evidence, lang)
    for told in dict.fromkeys(data_told(trial.data) for trial in trials if trial.data is not None):
        console.print(told, soft_wrap=True)
    path = escape(str(folder.path))
    console.print(f"Run folder: [bold]{path}[/bold]", soft_wrap=True, highlight=False)
    if any(folder.trial(trial.id).tensorboard_folder.exists() for trial in trials):
        command = escape(shlex.join(["trainlab", "board", str(folder.path)]))
        console.print(f"Look at it: {command}", soft_wrap=True, highlight=False)


def print_study(console: Console, evidence: Evidence, lang: str) -> None:
    """The cells side by side, what went wrong, and the findings."""
    # Never narrower than its numbers: a terminal may wrap lines, but must not cut figures.
    console.width = max(console.width, 80)
    if evidence.study.cells and evidence.learned:
        console.print(learn_table(evidence))
    if evidence.study.cells and evidence.measured:
        console.print(cost_table(evidence))
    waiting = [trial for trial in evidence.trials if trial.state == "pending"]
    for trial in evidence.trials:
        # Many that never ran are told by their number, in the findings.
        if trial.state != "pending" or len(waiting) <= MOST_WAITING_TOLD:
            for line in _remarks(trial):
                console.print(line, soft_wrap=True)
    print_findings(console, findings(evidence), lang)


def print_findings(console: Console, found: Sequence[Finding], lang: str) -> None:
    """A line each, marked by verdict."""
    marks = {
        "different": "[green]≠[/green]",
        "equivalent": "[cyan]=[/cyan]",
        "cannot tell": "[yellow]?[/yellow]",
    }
    if found:
        console.print("[bold]Findings[/bold]")
    subjects = list(dict.fromkeys(one.subject for one in found if one.kind == "effect"))
    shown = [
        one
        for one in found
        # Open comparisons of the first metric are told; of the others, the last line tells how many.
        if one.kind != "effect" or one.verdict != "cannot tell" or one.subject == subjects[0]
    ]
    for one in shown:
        mark = marks.get(one.verdict or "", "·")
        console.print(f" {mark} {escape(sentence(one, lang))}", highlight=False)


def _trial_told(trial: TrialRecord) -> dict[str, Any]:
    return {
        "id": trial.id,
        "kind": trial.kind,
        "cell": trial.cell,
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


def data_told(data: DataRecord) -> str:
    """Which data, how much of it, and a warning where it is a subset."""
    name, source = escape(data.name), escape(data.source)
    counts = f"{data.num_train:,} training and {data.num_test:,} test samples"
    if not data.is_subset:
        return f"Data: {name}, {counts} ({source})"
    why = f" The full set was not to be had: {escape(data.note)}" if data.note else ""
    return (
        f"[yellow]Data: a subset of {name} ({source}), {counts}: accuracies are lower than on "
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
    epochs = [
        (trial, point)
        for trial in trials
        for point in folder.trial(trial.id).curve()
        if point["kind"] == "epoch"
    ]
    columns = [name for name in (epochs[0][1] if epochs else {}) if "/" in name]
    for heading in ("seed", "epoch", *columns, "train/time (s)", "test/time (s)"):
        table.add_column(heading.replace("/", "\n"), justify="right")
    for number, (trial, point) in enumerate(epochs):
        if number and epochs[number - 1][0] is not trial:
            table.add_section()
        metrics = [metric_value(name, point[name]) for name in columns]
        times = [f"{point[name]:.2f}" for name in ("train_s", "test_s")]
        table.add_row(str(trial.seed), str(point["epoch"]), *metrics, *times)
    return table


def _remarks(trial: TrialRecord) -> list[str]:
    name = f"seed {trial.seed}" if trial.kind == "learn" and trial.cell == "base" else trial.id
    told = [f"{name}: note: {escape(note)}" for note in trial.notes]
    if trial.state in ("interrupted", "pending"):
        done = f" after {trial.steps_done:,} updates" if trial.steps_done else ""
        told.append(f"[yellow]{name}: {trial.state}{done}[/yellow]")
    if trial.state == "diverged":
        told.append(
            f"[yellow]{name}: diverged: the loss of update {trial.diverged_at_step} "
            "is not finite; a smaller learning rate usually helps[/yellow]"
        )
    if trial.error is not None:
        told.append(
            f"[red]{name}: failed: {escape(trial.error.kind)}: "
            f"{escape(trial.error.message)}[/red] (traceback in its trial.json)"
        )
    return told
