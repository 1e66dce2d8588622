"""Diagnoses made of records alone: what is in their folders, without any script that runs."""

from collections.abc import Sequence
from pathlib import Path

from fabricate import Fabricated, made_cost
from trainlab.lab.driving import Outcome
from trainlab.lab.opened import Run
from trainlab.lab.script_study import DiagnosisStage, diagnosis_study
from trainlab.plan import Group
from trainlab.record.script_record import DiagnosisRecord, LimitRow
from trainlab.spec.script import DiagnosisSpec
from watched_runs import watched

STEP_MS = {"base": 10.0, "change=same_batch": 2.0, "change=threads=2": 12.0}
STEP_MS["change=workers=2"] = 5.0


def record_of(*limits: LimitRow) -> DiagnosisRecord:
    """What was found of a script that waits for its data most of the time."""
    where = {"script": "train.py", "device": "cpu", "cores": 2, "threads": 2, "batch_size": 64}
    times = {"update_ms": 10.0, "parts_ms": {"data": 6.2, "forward": 1.8, "backward": 2.0}}
    return DiagnosisRecord(num_updates=200, min_gain=0.1, limits=list(limits), **where, **times)


def watched_only(path: Path, tries: tuple[str, ...] = ("same_batch", "threads=2")) -> Run:
    """One that was cut short after its script had been watched."""
    script = path.parent / "train.py"
    script.write_text("parser.add_argument('--seed')\n")
    asked = DiagnosisSpec(tries=tries, most=4, processes=3)
    folder = Fabricated().write(path, diagnosis_study(script, ("--epochs", "2"), 200, asked))
    for trial in folder.trials():
        folder.trial(trial.id).watched.write(watched())
    return Run(path)


def measured(path: Path) -> Run:
    """One that was cut short when all was measured: no answer is in it."""
    run = watched_only(path)
    stage = DiagnosisStage(run.study().to_study(""))
    while groups := stage.groups(run):
        measure(run, groups)
    return run


def measure(run: Run, groups: Sequence[Group]) -> list[str]:
    """Writes what the trials of a bench would; their cells."""
    trials = [run.trial(one).read() for group in groups for one in group.ids]
    for trial in trials:
        step_ms, bench = STEP_MS[trial.cell], f"train-{trial.id.rpartition('process')[2]}"
        run.trial(trial.id).cost.write(made_cost("train", 64, step_ms, {"other": 1.0}, bench))
        run.trial(trial.id).write(trial.model_copy(update={"state": "done", "attempt": 1}))
    return [trial.cell for trial in trials]


def diagnosed(path: Path) -> Run:
    """One that has come to its end."""
    run = measured(path)
    stage = DiagnosisStage(run.study().to_study(""))
    stage.groups(run)
    stage.written(Outcome(run, was_interrupted=False))
    return run
