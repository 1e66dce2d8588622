"""Trials of a script: each in a fresh Python, whose records it leaves in the trial's folder. No torch
here."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
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
from trainlab.record.study_record import Environment, Event
from trainlab.spec import Study
from trainlab.spec.script import ScriptSpec
from trainlab.watching.script_process import ScriptError, ScriptProcess, source_of

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C has ended."""
STRAGGLES = 0.05
"""A process that holds the others up for less than this share of a step is no straggler."""


@dataclass
class ScriptExecutor:
    """This machine, one script after the other or in turns, each in a process that this one starts."""

    meanwhile: Callable[[], object]
    """Done while the first script starts: it then need not be done at its end."""
    seen: "Seen | None" = None
    """Is told now and then of a script that runs alone, whose output is then passed on."""
    folder: Path = field(default_factory=Path.cwd)
    _machine: Environment | None = None

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
        with closing(EventWriter(run)) as events:

            def run_bench(groups: Sequence[Group], until_s: float) -> None:
                ids = [one for group in groups for one in group.ids]
                timer = partial(script_timer, script, begun=partial(self._begun, run))
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
                        begun = partial(self._begun, run)
                        run_scripts(attempts, study, script, events, begun=begun, seen=seen)
                    except Interrupted:
                        for attempt in attempts:
                            attempt.interrupt()
                        raise
                    events.write(Event(kind="group_ends", trials=group.ids))

    def _begun(self, run: RunFolder) -> "MachineOf":
        """What is done while a script starts, and what then records the machine of a trial."""
        if self._machine is None:
            self._machine = machine_of(self.folder)
            self.meanwhile()
        machine = self._machine
        return lambda facts: run.write_environment(with_torch(machine, facts))

    def close(self) -> None:
        pass


MachineOf = Callable[[Mapping[str, Any]], str]
"""Records a machine with what a process has told of its torch; the name that trials refer to it by."""
Begun = Callable[[], MachineOf]
Seen = Callable[[WatchedRecord], object]


def run_scripts(
    attempts: Sequence[Attempt],
    study: Study,
    script: ScriptSpec,
    events: EventWriter,
    threads: int | None = None,
    begun: Begun | None = None,
    seen: Seen | None = None,
) -> None:
    """One after the other; a script that fails is recorded and the others run. `threads`: of torch, None
    for its choice; `begun`: called once a process was started, where the machine is not known before.
    `seen`: see `ScriptExecutor`."""
    for attempt in attempts:
        attempt.begin()
        with attempt:
            if attempt.trial.kind != "cost":
                _run_learn(attempt, study, script, threads, events, begun, seen)
            else:
                process = ScriptProcess(script, attempt.trial, attempt.folder, "operators")
                with closing(process):
                    _tell(attempt, process.answer(), None if begun is None else begun())
                    process.wait()
                if not attempt.folder.operators.path.exists():
                    attempt.notes.append(note("script_no_operators"))
            attempt.progress.state = "done"
        attempt.end()
        attempt.pass_on_interrupt()


def _tell(attempt: Attempt, told: Mapping[str, Any], machine_of: MachineOf | None) -> None:
    """Of a script's last words, what a trial's record says of its settings and its machine."""
    attempt.engine_facts.update(told.get("facts", {}))
    if machine_of is not None:
        attempt.environment = machine_of(told.get("torch", {"packages": {}}))


def _run_learn(
    attempt: Attempt,
    study: Study,
    script: ScriptSpec,
    threads: int | None,
    events: EventWriter,
    begun: Begun | None,
    seen: Seen | None,
) -> None:
    meter, told = LoadMeter(), dict[str, Any]()
    raised: Interrupted | ScriptError | None = None
    process = ScriptProcess(
        script, attempt.trial, attempt.folder, "learn", threads, study, is_shown=seen is not None
    )
    with closing(process):
        machine_of = None if begun is None else begun()
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
    _tell(attempt, told, machine_of)
    if "facts" in told:  # however it ended, this was seen
        progress, folder = attempt.progress, attempt.folder
        records = [folder.watched_by(rank) for rank in range(script.processes)]
        watched = [one.read() for one in records if one.path.exists()]
        progress.epochs_done, progress.steps_done = told["epochs"], told["steps"]
        progress.total_s = watched[0].total_s
        progress.final = {n: math.nan if v is None else v for n, v in told["final"].items()}
        attempt.notes += map(Note.model_validate, told["notes"])
        if raised is None and told["ended"] == "done":  # else more might have been seen
            attempt.notes += map(Note.model_validate, told["missing"])
            attempt.notes += [*notes_of(watched[0]), *_straggler(watched)]
    if raised is not None:
        raise raised


def progress_event(trial_id: str, metrics: Mapping[str, float | None]) -> Event:
    """The newest values of a trial's metrics."""
    known = {n: v if v is not None and math.isfinite(v) else None for n, v in metrics.items()}
    return Event(kind="progress", trials=(trial_id,), metrics=known)


def _straggler(watched: Sequence[WatchedRecord]) -> list[Note]:
    """The process that others wait for, where one takes longer for its own part of a step. Gradients are
    exchanged in the backward pass: there the others wait."""
    own_ms = [
        {n: statistics.median(ms) for n, ms in one.steps_ms.items() if n != "backward" and ms}
        for one in watched
    ]
    if len(own_ms) < 2 or not all(own_ms):
        return []
    sums_ms = [sum(parts.values()) for parts in own_ms]
    place = sums_ms.index(max(sums_ms))
    lost_ms = sums_ms.pop(place) - statistics.median(sums_ms)
    slowest, last = own_ms.pop(place), watched[place]
    steps_ms = last.steps_ms.values()
    if lost_ms < STRAGGLES * statistics.median(map(sum, zip(*steps_ms, strict=True))):
        return []
    extra_ms = {
        name: spent - statistics.median(other.get(name, 0.0) for other in own_ms)
        for name, spent in slowest.items()
    }
    part = max(extra_ms, key=lambda name: extra_ms[name])
    return [note("script_straggler", rank=last.rank, part=part, ms=round(lost_ms, 2))]


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


def script_timer(
    script: ScriptSpec, attempt: Attempt, opened: ExitStack, begun: Begun | None = None
) -> "ScriptTimer":
    """Times the steps of the script of a trial, in a process that ends with the stack."""
    timer = ScriptTimer(attempt, script, begun)
    opened.callback(timer.close)
    return timer


class ScriptTimer:
    """The steps of a script, timed in turns that others may come between."""

    def __init__(self, attempt: Attempt, script: ScriptSpec, begun: Begun | None) -> None:
        self._attempt = attempt
        self._process = ScriptProcess(script, attempt.trial, attempt.folder, "turns")
        self._machine_of = None if begun is None else begun()

    def warm_up(self) -> Footprint:
        return Footprint(**self._process.answer()["footprint"])

    def turn(self, number: int) -> float:
        self._process.tell(f"turn {number}")
        turn_ms: float = self._process.answer()["turn_ms"]
        return turn_ms

    def finish(self, bench: str) -> CostRecord:
        self._process.tell(f"finish {bench}")
        _tell(self._attempt, self._process.answer(), self._machine_of)
        return self._attempt.folder.cost.read()

    def close(self) -> None:
        self._process.close()
