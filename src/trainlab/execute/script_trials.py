"""Trials of a script: each in a fresh Python, whose records it leaves in the trial's folder. No torch
here."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Thread
from typing import Any

from trainlab.errors import Interrupted
from trainlab.execute.attempt import Attempt, EventWriter
from trainlab.execute.bench import TimedTrial, run_benches, take_turns
from trainlab.execute.planned_run import IsOver
from trainlab.machine.environment import machine_of, with_torch
from trainlab.machine.host import Footprint, check_capacity
from trainlab.machine.load import LoadMeter
from trainlab.plan import Group
from trainlab.record.cost_record import CostRecord
from trainlab.record.run_folder import RunFolder
from trainlab.record.schema import Note, note
from trainlab.record.script_record import WatchedRecord
from trainlab.record.study_record import Event
from trainlab.spec import Study
from trainlab.spec.script import ScriptSpec
from trainlab.watching.script_process import ScriptError, ScriptProcess, source_of

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C has ended."""


@dataclass
class ScriptExecutor:
    """This machine, one script after the other or in turns, each in a process that this one starts."""

    meanwhile: Callable[[], object]
    """Done beside the first script: it then need not be done at its end."""
    seen: "Seen | None" = None
    """Is told now and then of a script that runs alone, whose output is then passed on."""
    folder: Path = field(default_factory=Path.cwd)

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        assert study.script is not None
        settings = [cell.settings for cell in study.all_cells]
        check_capacity([one.threads for one in settings], [one.device for one in settings])
        source_of(Path(study.script.path))
        return ()

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        study = run.study().to_study(str(run.study_file))
        script, seen = study.script, self.seen if study.is_one_script else None
        assert script is not None
        Thread(target=self.meanwhile).start()
        machine = machine_of(self.folder)

        def recorded(facts: Mapping[str, Any]) -> str:
            return run.write_environment(with_torch(machine, facts))

        with closing(EventWriter(run)) as events:

            def run_bench(groups: Sequence[Group], until_s: float) -> None:
                ids = [one for group in groups for one in group.ids]
                timer = partial(ScriptTimer, script, recorded=recorded)
                seats = [
                    TimedTrial(Attempt(run.trial(one), None), timer, is_script=True) for one in ids
                ]
                try:
                    take_turns(seats, groups, events, until_s)
                finally:
                    for seat in seats:
                        seat.abandon()

            for is_timed, some in groupby(groups, lambda group: group.bench is not None):
                if is_timed:
                    run_benches(run, study, list(some), run_bench, is_over, events)
                    continue
                for group in some:
                    if is_over():
                        return
                    events.write(Event(kind="group_begins", trials=group.ids))
                    attempts = [Attempt(run.trial(one), None) for one in group.ids]
                    try:
                        run_scripts(attempts, study, script, events, recorded=recorded, seen=seen)
                    except Interrupted:
                        for attempt in attempts:
                            attempt.interrupt()
                        raise
                    events.write(Event(kind="group_ends", trials=group.ids))

    def close(self) -> None:
        pass


Recorded = Callable[[Mapping[str, Any]], str]
"""Records the machine with what a process has told of its torch; the name that trials refer to it by."""
Seen = Callable[[WatchedRecord], object]


def run_scripts(
    attempts: Sequence[Attempt],
    study: Study,
    script: ScriptSpec,
    events: EventWriter,
    threads: int | None = None,
    recorded: Recorded | None = None,
    seen: Seen | None = None,
) -> None:
    """One after the other; a script that fails is recorded and the others run. `threads`: of torch, None
    for its choice; `recorded`: where the machine is not recorded before. `seen`: see `ScriptExecutor`."""
    for attempt in attempts:
        attempt.begin()
        with attempt:
            if attempt.trial.kind != "cost":
                _run_learn(attempt, study, script, threads, events, recorded, seen)
            else:
                process = ScriptProcess(script, attempt.trial, attempt.folder, "operators")
                with closing(process):
                    _tell(attempt, process.answer(), recorded)
                    process.wait()
                if not attempt.folder.operators.path.exists():
                    attempt.notes.append(note("script_no_operators"))
            attempt.progress.state = "done"
        attempt.end()
        attempt.pass_on_interrupt()


def _tell(attempt: Attempt, told: Mapping[str, Any], recorded: Recorded | None) -> None:
    """Of a script's last words, what a trial's record says of its settings and its machine."""
    attempt.engine_facts.update(told.get("facts", {}))
    if recorded is not None:
        attempt.environment = recorded(told.get("torch", {"packages": {}}))


def _run_learn(
    attempt: Attempt,
    study: Study,
    script: ScriptSpec,
    threads: int | None,
    events: EventWriter,
    recorded: Recorded | None,
    seen: Seen | None,
) -> None:
    meter, told = LoadMeter(), dict[str, Any]()
    raised: Interrupted | ScriptError | None = None
    process = ScriptProcess(
        script, attempt.trial, attempt.folder, "learn", threads, study, is_shown=seen is not None
    )
    with closing(process):
        try:
            while "ended" not in (told := process.answer()):
                if "metrics" in told:
                    events.write(progress_event(attempt.trial.id, told["metrics"]))
                elif seen is not None:
                    seen(WatchedRecord.model_validate(told["seen"]))
            process.wait()
        except Interrupted as interrupted:
            told, raised = process.interrupt() or told, interrupted
        except ScriptError as error:
            # Its terminal's Ctrl-C comes to the script alone.
            was_cut = seen is not None and error.failure.exit_code == INTERRUPTED
            told, raised = error.told, Interrupted() if was_cut else error
    attempt.load = meter.read()
    _tell(attempt, told, recorded)
    if "facts" in told:  # however it ended, this was seen
        progress, watched = attempt.progress, attempt.folder.watched.read()
        progress.epochs_done, progress.steps_done = told["epochs"], told["steps"]
        progress.total_s = watched.total_s
        progress.final = {n: math.nan if v is None else v for n, v in told["final"].items()}
        attempt.notes += map(Note.model_validate, told["notes"])
        if raised is None and told["ended"] == "done":  # else more might have been seen
            attempt.notes += map(Note.model_validate, told["missing"])
            attempt.notes += notes_of(watched)
    if raised is not None:
        raise raised


def progress_event(trial_id: str, metrics: Mapping[str, float | None]) -> Event:
    """The newest values of a trial's metrics."""
    known = {n: v if v is not None and math.isfinite(v) else None for n, v in metrics.items()}
    return Event(kind="progress", trials=(trial_id,), metrics=known)


def notes_of(watched: WatchedRecord) -> list[Note]:
    """What could not be seen."""
    found = []
    if not watched.num_steps:
        found.append(note("script_no_updates"))
    elif watched.framework:
        return [note("script_keras")]
    elif not watched.models and "backward" not in watched.parts_s:
        return [note("script_steps_logged")]
    elif not watched.optimizers:
        found.append(note("script_updates_by_hand"))
    if watched.num_steps and "forward" not in watched.parts_s:
        found.append(note("script_no_forward"))
    if watched.num_steps and not any(one.is_trained_on for one in watched.loaders):
        found.append(note("script_no_loader"))
    if compiled := [one.name for one in watched.models if one.is_compiled]:
        found.append(note("script_compiled", names=", ".join(dict.fromkeys(compiled))))
    return found


class ScriptTimer:
    """The steps of the script of a trial, timed in turns that others may come between, in a process that
    ends with the stack."""

    def __init__(
        self,
        script: ScriptSpec,
        attempt: Attempt,
        opened: ExitStack,
        recorded: Recorded | None = None,
    ) -> None:
        self._attempt, self._recorded = attempt, recorded
        self._process = ScriptProcess(script, attempt.trial, attempt.folder, "turns")
        opened.callback(self._process.close)

    def warm_up(self) -> Footprint:
        return Footprint(**self._process.answer()["footprint"])

    def turn(self, number: int) -> float:
        self._process.tell(f"turn {number}")
        turn_ms: float = self._process.answer()["turn_ms"]
        return turn_ms

    def finish(self, bench: str) -> CostRecord:
        self._process.tell(f"finish {bench}")
        _tell(self._attempt, self._process.answer(), self._recorded)
        return self._attempt.folder.cost.read()
