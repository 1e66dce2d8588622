"""A study over a script: its own arguments are the factors, and each trial is the script itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from trainlab.analysis.diagnosis import (
    Hypothesis,
    asked_for,
    cell_of,
    chosen,
    diagnosis_of,
    hypotheses_of,
    left_out,
    update_parts_ms,
)
from trainlab.analysis.scripts import growth
from trainlab.errors import RecordError, SpecError
from trainlab.execute.planned_run import add_groups
from trainlab.lab.driving import Outcome, drive
from trainlab.lab.opened import Run
from trainlab.lab.run_progress import Watcher
from trainlab.machine.host import usable_vcpus
from trainlab.plan import Group, bench_of, count_trials
from trainlab.record.script_record import DiagnosisRecord, WatchedRecord
from trainlab.record.trial_record import SCRIPT_EXIT
from trainlab.resolve import check_number
from trainlab.spec import Cell, CostSpec, Study, TrainSpec, checked
from trainlab.spec.base import field_problems
from trainlab.spec.question import level_problems
from trainlab.spec.script import (
    BATCH_SIZE_OPTION,
    SEED_OPTION,
    DiagnosisSpec,
    ScriptSpec,
    change_parts,
    first_option,
    misspelt_option,
    option_of,
)
from trainlab.spec.settings import Scalar
from trainlab.spec.study import BASE, cell_id, combinations, cost_margins, with_levels
from trainlab.watching.script_process import module_file, source_of

NO_SEED = "none"
"""As the seed argument of a script that takes none."""
OF_MODULE = "-m"
"""In place of a script's path: a module follows."""


def script_study(
    path: Path | str,
    arguments: Sequence[str] = (),
    *,
    vary: Mapping[str, Sequence[Scalar]] | None = None,
    design: str = "grid",
    seeds: Sequence[int] | None = None,
    seed_argument: str | None = None,
    threads: int | None = None,
    workdir: Path | None = None,
    cost: CostSpec | None = None,
    learn: bool = True,
    many: bool = False,
    **fields: Any,
) -> Study:
    """The study; SpecError with all problems. `path`: the script's file, or `-m` where the first argument
    names a module. `seeds`: None for one run of each cell, without a seed. `seed_argument`: the script's
    option that takes the seed; `none` where it has none, None for one that its text shows. `workdir`: the
    folder that all run in; None: a single run in the current one, each of several in a copy of it. All
    else is a field of ScriptSpec or Study."""
    path, module, source = found_script(path, arguments)
    if module:
        arguments = arguments[1:]
    is_seeded, seeds = seeds is not None, seeds or (1,)
    if seed_argument == NO_SEED or not is_seeded:
        seed_argument = None
    elif seed_argument is None:
        seed_argument = first_option(SEED_OPTION, source)
    if workdir is not None and not workdir.is_dir():
        raise SpecError([f"--workdir {workdir}: no such folder"])
    own: dict[str, Any] = {
        "path": str(path.absolute()),
        "module": module,
        "arguments": tuple(arguments),
        "folder": str(Path.cwd()),
        "workdir": "" if workdir is None else str(workdir.resolve()),
        "is_seeded": is_seeded,
        "seed_argument": seed_argument,
    }
    of_script = {name: fields.pop(name) for name in ScriptSpec.model_fields.keys() & fields}
    script = checked(ScriptSpec, own | of_script)
    if script.gives_seed and len(seeds) > 1:
        rule = "is among the script's arguments, so that every seed would be the same"
        raise SpecError([f"{seed_argument}: {rule}; leave it out, and give --seeds"])
    cells = _cells(vary or {}, source, design, threads)
    if cost is not None and (problems := list(_check_cost(cost, script.processes))):
        raise SpecError(problems)
    check_number(count_trials(len(cells), len(seeds), learn=learn, cost=cost), many=many)
    # As a run folder can be called.
    own_name = re.sub(r"[^A-Za-z0-9._-]", "-", module or path.stem).lstrip("._-")
    values: dict[str, Any] = {
        "name": own_name or "script",
        "workload": str(path),
        "settings": cells[0].settings,
        "cells": cells if len(cells) > 1 or cells[0].levels else (),
        "seeds": tuple(seeds),
        "learn": learn,
        "cost": cost,
        "margins": cost_margins(cost),
        "script": script,
    }
    return checked(Study, values | fields)


def found_script(path: Path | str, arguments: Sequence[str]) -> tuple[Path, str, str]:
    """A script's file, the name of the module that it is, where the first argument names one, and its text.
    SpecError where there is none."""
    module = ""
    if str(path) == OF_MODULE:
        if not arguments:
            raise SpecError(["-m: got no value, needs one; give a module, as -m package.train"])
        module, path = module_file(arguments[0], Path.cwd())
    return Path(path), module, source_of(Path(path))


def _check_cost(cost: CostSpec, processes: int) -> Iterator[str]:
    """What cannot be measured of a script: it is timed as it trains, with its own weights."""
    if processes != 1:
        several = "but steps of several processes are not timed in turns; leave --profile out"
        yield f"--nproc: got {processes}, {several}"
    if cost.mode != "train":
        yield f"--mode: got {cost.mode}, but a script is timed as it trains; leave it out"
    if cost.weights != "untrained":
        yield f"--weights: got {cost.weights}, but a script makes its own weights; leave it out"


def _cells(
    vary: Mapping[str, Sequence[Scalar]], source: str, design: str, threads: int | None
) -> tuple[Cell, ...]:
    """SpecError for an option, too, that the script's text shows spelt otherwise: all trials would fail."""
    problems = [
        f"--vary {name}: the script has no option {option_of(name)}; did you mean {near}?"
        for name in vary
        if (near := misspelt_option(name, source)) is not None
    ]
    settings = {} if threads is None else {"threads": threads}
    if problems := [*problems, *level_problems(vary), *field_problems(TrainSpec, settings)]:
        raise SpecError(problems)
    named = {f"script.{name}": levels for name, levels in vary.items()}
    return tuple(
        Cell(
            id=cell_id(levels) if levels else BASE,
            levels=levels,
            settings=checked(TrainSpec, with_levels(settings, levels)),
        )
        for levels in combinations(named, design)
    )


# What limits a script: it is watched, then changed from outside, one thing at a time, to see.

STEPS, OBSERVED_S = 200, 20.0
"""The script is watched for so many updates, or so long if that is sooner."""
TURNS_S = 2.0
"""The turns of a process take about so long."""
MOST_PROCESSES = 5
BUDGET_S = 90.0
RATIO_WITHIN = 0.08
MEMORY_SHARE = 0.25
"""Of the memory that is free, what the processes of a script that leaks may take."""
MIN_TURNS_S = 0.3


def diagnose(
    path: Path | str,
    arguments: Sequence[str] = (),
    *,
    steps: int = STEPS,
    workdir: Path | None = None,
    out: Path | None = None,
    budget_s: float | None = None,
    watcher: Watcher | None = None,
    **asked: Any,
) -> tuple[Run, DiagnosisRecord | None]:
    """What limits a training script, and the proof: a run whose folder holds diagnosis.json, and what is in
    it; None where it was cut short.

    `steps` are the updates that are watched; all run in `workdir`, each in a copy of the current folder
    where there is none; what else is asked is a field of DiagnosisSpec. SpecError where the script fails
    or makes too few updates.
    """
    study = diagnosis_study(path, arguments, steps, checked(DiagnosisSpec, asked), workdir)
    stage = DiagnosisStage(study)
    given: dict[str, Any] = {"out": out, "budget_s": budget_s, "watcher": watcher}
    outcome = drive(study, jobs=1, next_stage=stage.groups, **given)
    return outcome.run, stage.written(outcome)


def diagnosis_study(
    path: Path | str,
    arguments: Sequence[str],
    steps: int,
    asked: DiagnosisSpec,
    workdir: Path | None = None,
) -> Study:
    """The study that a diagnosis begins with: the script, watched. SpecError for what cannot be tried."""
    asked_for((), asked.tries)  # mistakes are told before anything runs
    fields: dict[str, Any] = {"max_steps": steps, "max_s": OBSERVED_S, "diagnosis": asked}
    fields |= {"is_searched": True, "has_whole_turns": True, "tensorboard": False}
    return script_study(path, arguments, workdir=workdir, **fields)


class DiagnosisStage:
    """From the record of the watched run to the cells that are measured, and from those to the answer."""

    def __init__(self, study: Study) -> None:
        assert study.script is not None
        assert study.script.diagnosis is not None
        self._study, self._script, self._asked = study, study.script, study.script.diagnosis
        self._watched: WatchedRecord | None = None
        self._hypotheses: tuple[Hypothesis, ...] = ()
        self._cores = 1

    def groups(self, run: Run) -> tuple[Group, ...]:
        """Adds the cells of changes to the run, and gives what measures them; nothing where the run has
        them already."""
        asked, watched = self._asked, _watched(run)
        if watched is None:
            return ()
        source = Path(self._script.path).read_text(encoding="utf-8")
        self._watched, self._cores = watched, usable_vcpus()
        found = hypotheses_of(watched, cores=self._cores, source=source)
        tried = asked_for(found, asked.tries) if asked.tries else chosen(found, asked.most)
        self._hypotheses = *tried, *left_out(found, tried)
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
        add_groups(run, groups, study)
        return groups

    def written(self, outcome: Outcome) -> DiagnosisRecord | None:
        """The answer, which the run then holds; None where it was cut short."""
        if self._watched is None or outcome.was_interrupted:
            return None
        run = outcome.run
        record = diagnosis_of(run, self._watched, self._hypotheses, self._cores)
        run.diagnosis.write(record)
        return record


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
    if watched.framework:
        rule = "Keras trains it, and what is tried changes calls of PyTorch"
        raise SpecError([f"{trial.workload}: {rule}; use `trainlab watch`"])
    if not update_parts_ms(watched):
        rule = "too few updates were seen to say what limits it"
        raise SpecError([f"{trial.workload}: {rule}; give it more data or epochs"])
    return watched


def _cell(change: str, source: str) -> Cell:
    name, value = change_parts(change)
    settings: dict[str, object] = {"change": change}
    option = first_option(BATCH_SIZE_OPTION, source)
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
    turns_s, grown = TURNS_S, growth(watched)
    if grown is not None:
        update_s = sum(update_parts_ms(watched).values()) / 1e3
        room = MEMORY_SHARE * psutil.virtual_memory().available / (num_cells + 2)
        turns_s = min(turns_s, max(MIN_TURNS_S, room / grown.per_update * update_s / 4))
    return CostSpec(
        processes=processes,
        max_processes=max(processes, MOST_PROCESSES),
        budget_s=BUDGET_S,
        turns_s=turns_s,
        ratio_within=RATIO_WITHIN,
        warmup_steps=5,
    )
