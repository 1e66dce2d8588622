"""A study over a script: its own arguments are the factors, and each trial is the script itself."""

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from trainlab.analysis.diagnosis import (
    Hypothesis,
    Shown,
    asked_for,
    cell_of,
    chosen,
    decided_text,
    diagnosis_of,
    hypotheses_of,
    is_rare,
    left_out,
    shown_by,
    suspicion_text,
    update_parts_ms,
)
from trainlab.analysis.scripts import growth
from trainlab.errors import RecordError, SpecError
from trainlab.execute.planned_run import add_groups
from trainlab.lab.driving import Outcome, drive
from trainlab.lab.opened import Run
from trainlab.lab.run_progress import Watcher
from trainlab.machine.host import usable_vcpus
from trainlab.measure.interleaved import MIN_TURN_STEPS
from trainlab.plan import Group, bench_of, count_trials
from trainlab.record.script_record import DiagnosisRecord, TriedRow, WatchedRecord
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
from trainlab.spec.search import SearchAsked, SearchSpec, space_of
from trainlab.spec.settings import Scalar
from trainlab.spec.study import (
    BASE,
    cell_id,
    combinations,
    cost_margins,
    objective_of,
    with_levels,
)
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


def _misspelt(names: Iterable[str], source: str, option: str) -> Iterator[str]:
    """Of the script's own options, as its text shows them."""
    for name in names:
        if (near := misspelt_option(name, source)) is not None:
            rule = f"the script has no option {option_of(name)}; did you mean {near}?"
            yield f"{option} {name}: {rule}"


def _cells(
    vary: Mapping[str, Sequence[Scalar]], source: str, design: str, threads: int | None
) -> tuple[Cell, ...]:
    """SpecError for an option, too, that the script's text shows spelt otherwise: all trials would fail."""
    problems = [*_misspelt(vary, source, "--vary")]
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


def searched(study: Study, asked: SearchAsked, source: str) -> Study:
    """The same script, whose arguments are looked for in place of compared. SpecError with all problems."""
    if study.objective is None or study.is_better_lower(objective_of(study.objective)[0]) is None:
        raise SpecError(
            ["--objective: a search needs the metric that it goes by, as accuracy or loss:min"]
        )
    problems = [*_misspelt(asked.vary, source, "--search")]
    space = space_of(asked.vary, "script.{}".format, "--search ", problems)
    if problems:
        raise SpecError(problems)
    named = objective_of(study.objective)[0]
    search = SearchSpec(
        **asked.model_dump(),
        dimensions=space,
        metric=named,
        is_lower_better=bool(study.is_better_lower(named)),
        defaults={},
        asked=study.settings.model_dump(mode="json", exclude_unset=True),
    )
    return study.model_copy(update={"search": search})


# What limits a script: it is watched, then changed from outside, one thing at a time, to see.

BUDGET_S = 120.0
STEPS, OBSERVED_S = 200, 20.0
"""The script is watched for so many updates, or so long if that is sooner."""
OBSERVED_SHARE = 0.25
"""Of the budget, at most."""
TURNS_S = 2.0
"""The turns of a process take about so long; of what happens now and then, twice as long."""
TOGETHER = 2
"""Changes in one bench: more would take longer, fewer would take more benches."""
END_S = 3.0
"""Of the budget, for what follows the last bench."""
MEMORY_SHARE = 0.25
"""Of the memory that is free, what the processes of a script that leaks may take."""
MIN_TURNS_S = 0.3
MIN_ROUNDS, WARM_STEPS = 6, 8
"""That a process makes in any case."""


def diagnose(
    path: Path | str,
    arguments: Sequence[str] = (),
    *,
    steps: int = STEPS,
    workdir: Path | None = None,
    out: Path | None = None,
    budget_s: float = BUDGET_S,
    watcher: Watcher | None = None,
    **asked: Any,
) -> tuple[Run, DiagnosisRecord | None]:
    """What limits a training script, and the proof: a run whose folder holds diagnosis.json, and what is in
    it; None where it was cut short.

    It ends after `budget_s`, with what is decided by then. `steps` are the updates that are watched; all
    run in `workdir`, each in a copy of the current folder where there is none; what else is asked is a
    field of DiagnosisSpec. SpecError where the script fails or makes too few updates.
    """
    study = diagnosis_study(
        path, arguments, steps, checked(DiagnosisSpec, asked), workdir, budget_s
    )
    stage = DiagnosisStage(study, budget_s, watcher)
    given: dict[str, Any] = {"out": out, "budget_s": budget_s, "watcher": watcher}
    outcome = drive(study, jobs=1, next_stage=stage.groups, **given)
    return outcome.run, stage.written(outcome)


def diagnosis_study(
    path: Path | str,
    arguments: Sequence[str],
    steps: int,
    asked: DiagnosisSpec,
    workdir: Path | None = None,
    budget_s: float = BUDGET_S,
) -> Study:
    """The study that a diagnosis begins with: the script, watched. SpecError for what cannot be tried."""
    asked_for((), asked.tries)  # mistakes are told before anything runs
    observed_s = min(OBSERVED_S, OBSERVED_SHARE * budget_s)
    fields: dict[str, Any] = {"max_steps": steps, "max_s": observed_s, "diagnosis": asked}
    fields |= {"is_searched": True, "has_whole_turns": True, "tensorboard": False}
    return script_study(path, arguments, workdir=workdir, **fields)


class DiagnosisStage:
    """From the record of the watched run to a bench of what promises most, from what that shows to the
    next, and from all of them to the answer."""

    def __init__(
        self, study: Study, budget_s: float = BUDGET_S, watcher: Watcher | None = None
    ) -> None:
        assert study.script is not None
        assert study.script.diagnosis is not None
        self._script, self._asked = study.script, study.script.diagnosis
        self._settings = study.settings
        self._deadline_s = time.monotonic() + budget_s
        self._tell = (watcher or Watcher()).tell
        self._told = set[str]()
        """Changes of which it is."""
        self._watched: WatchedRecord | None = None
        self._tried: tuple[Hypothesis, ...] = ()
        self._left_out: tuple[Hypothesis, ...] = ()
        self._cores, self._slowness = 1, 1.0
        """The second: how many times as long as expected benches take."""
        self._begun: tuple[float, float] | None = None
        """When the last one began, and how long it should have taken."""

    def groups(self, run: Run) -> tuple[Group, ...]:
        """Adds the next bench to the run, and gives what measures it; nothing where all is decided, time is
        up, or the run has a bench that has not ended."""
        if self._watched is None and not self._look_at(run):
            return ()
        watched, study = self._watched, run.study().to_study(str(run.study_file))
        assert watched is not None
        shown = shown_by(run, watched, self._tried)
        self._tell_decided(shown.rows)
        if any(trial.state in ("pending", "running", "interrupted") for trial in run.trials()):
            return ()
        changes = self._fitting(list(self._open(shown)))
        if not changes:
            return ()
        cells = study.cells or self._cells()
        cost = _cost(watched, 2 + len(changes), self._turns_s(changes))
        study = study.model_copy(update={"cells": cells, "cost": cost})
        wanted = (BASE, *map(cell_of, changes))
        of_bench = {"cells": tuple(one for one in cells if one.id in wanted)}
        number = 1 + len({group.bench for group in run.study().groups if group.bench})
        groups = bench_of(study.model_copy(update=of_bench), "train", number)
        add_groups(run, groups, study)
        listed = ", ".join(changes)
        self._tell(lambda words: words("diagnosis_tries", changes=listed))
        return groups

    def written(self, outcome: Outcome) -> DiagnosisRecord | None:
        """The answer, which the run then holds; None where it was cut short."""
        if outcome.was_interrupted:
            return None
        run = outcome.run
        if self._watched is None and not self._look_at(run):
            rule = "was over before the script had made enough updates to be seen"
            raise SpecError([f"--budget: {rule}; give it more, as 5m"])
        assert self._watched is not None
        tried, others = self._tried, self._left_out
        record = diagnosis_of(run, self._watched, tried, others, self._cores)
        run.diagnosis.write(record)
        return record

    def _look_at(self, run: Run) -> bool:
        """Takes in what was seen, and says what it looks like; whether there was enough."""
        self._watched = watched = _watched(run)
        if watched is None:
            return False
        source = Path(self._script.path).read_text(encoding="utf-8")
        self._cores = usable_vcpus()
        found = hypotheses_of(watched, cores=self._cores, source=source)
        asked = self._asked
        self._tried = asked_for(found, asked.tries) if asked.tries else chosen(found, asked.most)
        self._left_out = left_out(found, self._tried)
        self._tell(partial(suspicion_text, self._tried))
        return True

    def _tell_decided(self, rows: Mapping[str, TriedRow]) -> None:
        """What has been decided since it was told last."""
        limits = {c: one.limit for one in self._tried for c in (*one.changes, *one.remedies)}
        for change, row in rows.items():
            if row.verdict != "cannot tell" and change not in self._told:
                self._told.add(change)
                self._tell(partial(decided_text, limits[change], row))

    def _open(self, shown: Shown) -> Iterator[str]:
        """Changes that are still to be tried, the most promising first; remedies of what is confirmed."""
        rows, failures = shown.rows, shown.failures
        if BASE in failures:
            return

        def is_open(change: str) -> bool:
            row = rows.get(change)
            if row is None:
                return cell_of(change) not in failures
            return row.verdict == "cannot tell" and row.processes < self._asked.processes

        for one in self._tried:
            verdicts = [rows[change].verdict for change in one.changes if change in rows]
            is_confirmed = "confirmed" in verdicts
            yield from filter(is_open, one.remedies if is_confirmed else one.changes)

    def _fitting(self, changes: Sequence[str]) -> Sequence[str]:
        """As many as fit into a bench, and with it into the time that is left."""
        now_s = time.monotonic()
        if self._begun is not None:
            begun_s, expected_s = self._begun
            self._slowness *= (now_s - begun_s) / expected_s
        left_s = self._deadline_s - END_S - now_s
        for number in range(min(TOGETHER, len(changes)), 0, -1):
            expected_s = self._slowness * self._bench_s(changes[:number])
            if expected_s <= left_s:
                self._begun = now_s, expected_s
                return changes[:number]
        return ()

    def _bench_s(self, changes: Sequence[str]) -> float:
        """How long a bench of these should take: the first process starts by itself, then the others, side
        by side; then they take turns."""
        watched, num_others = self._watched, len(changes) + 1
        assert watched is not None
        update_s = sum(update_parts_ms(watched).values()) / 1e3
        start_s = watched.parts_s.get("startup", 0.0) + WARM_STEPS * update_s
        own_s = max(self._turns_s(changes), MIN_ROUNDS * max(0.25, MIN_TURN_STEPS * update_s))
        return start_s * (1 + math.ceil(num_others / self._cores)) + (1 + num_others) * own_s

    def _turns_s(self, changes: Sequence[str]) -> float:
        """What happens now and then is to happen in the turns of every process."""
        assert self._watched is not None
        limits = {one.limit for one in self._tried if {*one.changes, *one.remedies} & {*changes}}
        is_seldom = any(is_rare(self._watched, limit) for limit in limits)
        return 2 * TURNS_S if is_seldom else TURNS_S

    def _cells(self) -> tuple[Cell, ...]:
        """The script as it is, and with each change."""
        source = Path(self._script.path).read_text(encoding="utf-8")
        changes = [change for one in self._tried for change in (*one.changes, *one.remedies)]
        return (
            Cell(id=BASE, levels={"change": "none"}, settings=self._settings),
            *(_cell(change, source) for change in dict.fromkeys(changes)),
        )


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


def _cost(watched: WatchedRecord, num_processes: int, turns_s: float) -> CostSpec:
    """Of one bench, since each is planned by what the others have shown: short turns; shorter ones where
    memory would run out."""
    if (grown := growth(watched)) is not None:
        update_s = sum(update_parts_ms(watched).values()) / 1e3
        room = MEMORY_SHARE * psutil.virtual_memory().available / num_processes
        turns_s = min(turns_s, max(MIN_TURNS_S, room / grown.per_update * update_s / 4))
    return CostSpec(
        processes=1,
        max_processes=1,
        turns_s=turns_s,
        ratio_within=0.08,
        warmup_steps=5,
    )
