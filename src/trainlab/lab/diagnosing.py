"""What limits a script: it is watched, then changed from outside, one thing at a time, to see."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainlab.analysis.diagnosis import (
    Hypothesis,
    asked_for,
    cell_of,
    chosen,
    diagnosis_of,
    growth_bytes,
    hypotheses_of,
    update_parts_ms,
)
from trainlab.errors import RecordError, SpecError
from trainlab.lab.driving import Outcome, run_in_stages
from trainlab.lab.opened import Run
from trainlab.lab.scripts import script_study
from trainlab.lab.watcher import Watcher
from trainlab.record.script_record import DiagnosisRecord, WatchedRecord
from trainlab.record.trial_record import SCRIPT_EXIT
from trainlab.spec import Cell, CostSpec, Study, TrainSpec, checked
from trainlab.spec.script import DiagnosisSpec, batch_size_argument_of, change_parts
from trainlab.spec.study import BASE

if TYPE_CHECKING:
    from trainlab.plan import Group

STEPS, OBSERVED_S = 200, 20.0
"""The script is watched for so many updates, or so long if that is sooner."""
MOST_TRIED = 4
TURNS_S = 2.0
"""The turns of a process take about so long."""
PROCESSES, MOST_PROCESSES = 3, 5
EXTRA_S = 45.0
RATIO_WITHIN = 0.08
MEMORY_SHARE = 0.25
"""Of the memory that is free, what the processes of a script that leaks may take."""
MIN_TURNS_S = 0.3


@dataclass(frozen=True)
class Diagnosed:
    """The run, and what it shows; None where it was cut short."""

    run: Run
    record: DiagnosisRecord | None
    was_interrupted: bool


def diagnose(
    path: Path | str,
    arguments: Sequence[str] = (),
    *,
    steps: int = STEPS,
    tries: Sequence[str] = (),
    most: int = MOST_TRIED,
    processes: int = PROCESSES,
    budget_s: float | None = None,
    out: Path | None = None,
    watcher: Watcher | None = None,
) -> Diagnosed:
    """What limits a training script, and the proof: a run whose folder holds diagnosis.json.

    `steps` are the updates that are watched; `tries` is what to try, as `data` or `threads=1`, in place of
    what promises most, of which `most` are tried, each in so many fresh `processes`. SpecError where the
    script fails or makes too few updates.
    """
    asked = {"tries": tuple(tries), "most": most, "processes": processes}
    study = diagnosis_study(path, arguments, steps, checked(DiagnosisSpec, asked))
    stage = DiagnosisStage(study)
    outcome = run_in_stages(study, stage.groups, out=out, budget_s=budget_s, watcher=watcher)
    return Diagnosed(outcome.run, stage.written(outcome), outcome.was_interrupted)


def diagnosis_study(
    path: Path | str, arguments: Sequence[str], steps: int, asked: DiagnosisSpec
) -> Study:
    """The study that a diagnosis begins with: the script, watched. SpecError for what cannot be tried."""
    asked_for((), asked.tries)  # mistakes are told before anything runs
    study = script_study(path, arguments, max_steps=steps, tensorboard=False)
    assert study.script is not None
    changes = {
        "max_s": OBSERVED_S,
        "is_searched": True,
        "has_whole_turns": True,
        "diagnosis": asked,
    }
    return study.model_copy(update={"script": study.script.model_copy(update=changes)})


class DiagnosisStage:
    """From the record of the watched run to the cells that are measured, and from those to the answer."""

    def __init__(self, study: Study) -> None:
        assert study.script is not None
        assert study.script.diagnosis is not None
        self._study, self._script, self._asked = study, study.script, study.script.diagnosis
        self._watched: WatchedRecord | None = None
        self._hypotheses: tuple[Hypothesis, ...] = ()
        self._cores = 1

    def groups(self, run: Run) -> "tuple[Group, ...]":
        """Adds the cells of changes to the run, and gives what measures them; nothing where the run has
        them already."""
        from trainlab.execute.run import add_cells
        from trainlab.machine.environment import usable_vcpus
        from trainlab.plan import bench_of

        asked, watched = self._asked, _watched(run)
        if watched is None:
            return ()
        source = Path(self._script.path).read_text(encoding="utf-8")
        self._watched, self._cores = watched, usable_vcpus()
        found = hypotheses_of(watched, cores=self._cores, source=source)
        tried = asked_for(found, asked.tries) if asked.tries else chosen(found, asked.most)
        self._hypotheses = tried if asked.tries else (*tried, *_left_out(found, tried))
        changes = [change for one in tried for change in (*one.changes, *one.remedies)]
        if not changes or run.study().to_study(str(run.study_file)).cells:
            return ()
        cells = (
            Cell(id=BASE, levels={"change": "none"}, settings=self._study.settings),
            *(_cell(change, source) for change in dict.fromkeys(changes)),
        )
        cost = _cost(watched, len(cells), asked.processes)
        study = self._study.model_copy(update={"cells": cells, "cost": cost})
        numbers = range(1, cost.processes + 1)
        groups = tuple(group for number in numbers for group in bench_of(study, "train", number))
        add_cells(run, study, groups)
        return groups

    def written(self, outcome: Outcome) -> DiagnosisRecord | None:
        """The answer, which the run then holds; None where it was cut short."""
        if self._watched is None or outcome.was_interrupted:
            return None
        run = outcome.run
        record = diagnosis_of(run, self._watched, self._hypotheses, self._cores)
        run.diagnosis.write(record)
        return record


def _left_out(found: Sequence[Hypothesis], tried: Sequence[Hypothesis]) -> list[Hypothesis]:
    """What promised enough, but less than others."""
    return [one for one in chosen(found, len(found)) if one not in tried]


def _watched(run: Run) -> WatchedRecord | None:
    """What was seen; None where it was cut short. SpecError where the script failed or made no update."""
    trial = next(one for one in run.trials() if one.kind == "learn")
    if trial.state == "failed" and trial.error is not None:
        said = trial.error.message.partition("\n")[0]
        kind = "" if trial.error.kind == SCRIPT_EXIT else f"failed with {trial.error.kind}: "
        raise SpecError([f"{trial.workload}: {kind}{said}; run it by itself first"])
    if trial.state == "interrupted":
        return None
    try:
        watched = run.trial(trial.id).watched.read()
    except RecordError:
        return None
    if not update_parts_ms(watched):
        rule = "too few updates were seen to say what limits it"
        raise SpecError([f"{trial.workload}: {rule}; give it more data or epochs"])
    return watched


def _cell(change: str, source: str) -> Cell:
    name, value = change_parts(change)
    settings: dict[str, object] = {"change": change}
    option = batch_size_argument_of(source)
    if name == "batch_size":
        if option is None:
            rule = "the script's text shows no argument for it, as --batch-size"
            raise SpecError([f"--try: {change}: {rule}"])
        settings["script"] = {option.lstrip("-"): int(value)}
    return Cell(
        id=cell_of(change), levels={"change": change}, settings=checked(TrainSpec, settings)
    )


def _cost(watched: WatchedRecord, num_cells: int, processes: int) -> CostSpec:
    """Short turns; shorter ones where memory would run out."""
    import psutil

    turns_s, growth = TURNS_S, growth_bytes(watched.memory)
    if growth is not None:
        update_s = sum(update_parts_ms(watched).values()) / 1e3
        room = MEMORY_SHARE * psutil.virtual_memory().available / (num_cells + 2)
        turns_s = min(turns_s, max(MIN_TURNS_S, room / growth * update_s / 4))
    values = {
        "processes": processes,
        "max_processes": max(processes, MOST_PROCESSES),
        "extra_s": EXTRA_S,
        "budget_s": turns_s,
        "ratio_within": RATIO_WITHIN,
        "tight": 0.02,
        "warmup_steps": 5,
    }
    assert math.isfinite(turns_s)
    return checked(CostSpec, values)
