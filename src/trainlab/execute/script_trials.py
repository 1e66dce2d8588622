"""Trials of a script: each in a fresh Python, whose records it leaves in the trial's folder."""

import math
import statistics
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Literal

import torch

from trainlab.errors import Interrupted
from trainlab.execute.attempt import Attempt, EventWriter
from trainlab.machine.device import Footprint
from trainlab.machine.load import LoadMeter
from trainlab.record.cost_record import CostRecord
from trainlab.record.schema import Note, note
from trainlab.record.script_record import WatchedRecord
from trainlab.record.study_record import Event
from trainlab.spec import Study
from trainlab.spec.script import ScriptSpec
from trainlab.watching.script_process import ScriptError, ScriptProcess

STRAGGLES = 0.05
"""A process that holds the others up for less than this share of a step is no straggler."""


def run_scripts(
    attempts: Sequence[Attempt], study: Study, script: ScriptSpec, events: EventWriter
) -> None:
    """One after the other; a script that fails is recorded and the others run."""
    # By itself a script runs as it would without us, with as many threads as it likes.
    threads = torch.get_num_threads() if study.num_learn > 1 else None
    for attempt in attempts:
        attempt.begin()
        with attempt:
            if attempt.trial.kind == "learn":
                _run_learn(attempt, study, script, threads, events)
            else:
                process = ScriptProcess(script, attempt.trial, attempt.folder, "operators")
                with closing(process):
                    attempt.engine_facts.update(process.answer()["facts"])
                    process.wait()
                if not attempt.folder.operators.path.exists():
                    attempt.notes.append(note("script_no_operators"))
            attempt.progress.state = "done"
        attempt.end()
        attempt.pass_on_interrupt()


def _run_learn(
    attempt: Attempt, study: Study, script: ScriptSpec, threads: int | None, events: EventWriter
) -> None:
    meter, told = LoadMeter(), dict[str, Any]()
    raised: Interrupted | ScriptError | None = None
    process = ScriptProcess(script, attempt.trial, attempt.folder, "learn", threads, study)
    with closing(process):
        try:
            while "ended" not in (told := process.answer()):
                events.write(progress_event(attempt.trial.id, told["metrics"]))
            process.wait()
        except Interrupted as interrupted:
            told, raised = process.interrupt() or told, interrupted
        except ScriptError as error:
            told, raised = error.told, error
    attempt.load = meter.read()
    if "facts" in told:  # however it ended, this was seen
        attempt.engine_facts.update(told["facts"])
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


class ScriptTimer:
    """The steps of a script, timed in turns that others may come between."""

    def __init__(self, attempt: Attempt, script: ScriptSpec) -> None:
        self._attempt = attempt
        self._process = ScriptProcess(script, attempt.trial, attempt.folder, "turns")

    def warm_up(self) -> Footprint:
        return Footprint(**self._process.answer()["footprint"])

    def turn(self, number: int) -> float:
        self._process.tell(f"turn {number}")
        turn_ms: float = self._process.answer()["turn_ms"]
        return turn_ms

    def finish(self, bench: str, stopped: Literal["tight", "budget"]) -> CostRecord:
        self._process.tell(f"finish {bench} {stopped}")
        self._attempt.engine_facts.update(self._process.answer()["facts"])
        return self._attempt.folder.cost.read()

    def close(self) -> None:
        self._process.close()
