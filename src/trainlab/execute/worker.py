"""The worker: runs the trials of a group and leaves a record of each, whatever happens.

Everything it needs comes from the run folder and everything it makes goes there, so that the same
entry serves this process, another process, or another machine.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch

from trainlab.errors import Interrupted
from trainlab.execute.attempt import Attempt, EventWriter, ending_together
from trainlab.execute.signals import signals_held
from trainlab.instruments.curve_writer import CurveWriter, ProgressEvents
from trainlab.instruments.model_records import Network, Weights, load_weights, record_confusion
from trainlab.instruments.probe_instrument import Probes
from trainlab.instruments.tensorboard import TensorBoard
from trainlab.machine.device import Footprint, pick_device
from trainlab.machine.load import LoadMeter
from trainlab.machine.process_state import (
    prepare_process,
    switch_torch,
    torch_restored,
    torch_switches,
)
from trainlab.measure.layer_profile import measure_probes, profile_layers
from trainlab.measure.limits import measured_limits
from trainlab.measure.memory import measure_memory
from trainlab.measure.operator_profile import profile_operators
from trainlab.measure.timing import measure
from trainlab.plan import Trial
from trainlab.record.cost_record import CostRecord
from trainlab.record.run_folder import RunFolder
from trainlab.record.schema import Note, note
from trainlab.record.script_record import WatchedRecord
from trainlab.record.study_record import Event
from trainlab.spec import Study
from trainlab.spec.script import ScriptSpec
from trainlab.train import heeding_end
from trainlab.train.callbacks import Instrument, Moments
from trainlab.train.checkpoints import Checkpoints
from trainlab.train.engines import engine_for, engines_for, too_coarse_for
from trainlab.train.engines.ddp import dismiss_crew
from trainlab.train.engines.engine import Engine, Member, Session, Unsuited
from trainlab.train.engines.lane_updates import update_key
from trainlab.train.loader import Loader
from trainlab.train.loop import train
from trainlab.train.setup import Setup, set_up
from trainlab.watching.script_process import ScriptError, ScriptProcess

# Trials of a script: each in a fresh Python, whose records it leaves in the trial's folder.

STRAGGLES = 0.05
"""A process that holds the others up for less than this share of a step is no straggler."""


def run_script_trials(attempts: Sequence[Attempt], study: Study, events: EventWriter) -> None:
    """One after the other; a script that fails is recorded and the others run."""
    assert study.script is not None
    # By itself a script runs as it would without us, with as many threads as it likes.
    threads = torch.get_num_threads() if study.num_learn > 1 else None
    for attempt in attempts:
        attempt.begin()
        with attempt:
            if attempt.trial.kind == "learn":
                _run_whole(attempt, study, threads, events)
            else:
                _profile(attempt, study.script)
            attempt.progress.state = "done"
        attempt.end()
        attempt.pass_on_interrupt()


def _run_whole(attempt: Attempt, study: Study, threads: int | None, events: EventWriter) -> None:
    assert study.script is not None
    meter, told = LoadMeter(), dict[str, Any]()
    raised: Interrupted | ScriptError | None = None
    process = ScriptProcess(study.script, attempt.trial, attempt.folder, "whole", threads, study)
    try:
        while "ended" not in (told := process.answer()):
            events.write(progress_event(attempt.trial.id, told["metrics"]))
        process.wait()
    except Interrupted as interrupted:
        told, raised = process.interrupt() or told, interrupted
    except ScriptError as error:
        told, raised = error.told, error
    finally:
        process.close()
    attempt.load = meter.read()
    if "facts" in told:  # however it ended, this was seen
        is_cut = raised is not None or told["ended"] != "done"
        _record_seen(attempt, told, study.script.processes, is_cut=is_cut)
    if raised is not None:
        raise raised
    if told["ended"] == "interrupted":  # by itself
        raise ScriptError(process.failure(told))


def _record_seen(
    attempt: Attempt, told: Mapping[str, Any], num_processes: int, *, is_cut: bool
) -> None:
    """`told`: the last words of the script's process; `is_cut`: before its end, after which more might have
    been seen."""
    attempt.record_script(told["facts"])
    folder, progress, watched = attempt.folder, attempt.progress, attempt.folder.watched.read()
    progress.epochs_done, progress.steps_done = told["epochs"], told["steps"]
    progress.total_s = watched.total_s
    progress.final = {n: math.nan if v is None else v for n, v in told["final"].items()}
    attempt.notes += [Note.model_validate(one) for one in told["notes"]]
    if is_cut:
        return
    attempt.notes += [Note.model_validate(one) for one in told["missing"]]
    attempt.notes += notes_of(watched)
    others = [folder.watched_by(rank) for rank in range(1, num_processes)]
    attempt.notes += straggler([watched, *(one.read() for one in others if one.path.exists())])


def _profile(attempt: Attempt, script: ScriptSpec) -> None:
    process = ScriptProcess(script, attempt.trial, attempt.folder, "operators", None)
    try:
        told = process.answer()
        process.wait()
    finally:
        process.close()
    attempt.record_script(told["facts"])


def progress_event(trial_id: str, metrics: Mapping[str, float | None]) -> Event:
    """The newest values of a trial's metrics."""
    known = {n: v if v is not None and math.isfinite(v) else None for n, v in metrics.items()}
    return Event(kind="progress", trials=(trial_id,), metrics=known)


def straggler(watched: Sequence[WatchedRecord]) -> list[Note]:
    """The process that others wait for, where one takes longer for its own part of a step. Gradients are
    exchanged in the backward pass: there the others wait."""
    own_ms = [_own_ms(one) for one in watched]
    if len(own_ms) < 2 or not all(own_ms):
        return []
    slowest = max(range(len(own_ms)), key=lambda rank: sum(own_ms[rank].values()))
    rest = [parts for rank, parts in enumerate(own_ms) if rank != slowest]
    extra_ms = {
        name: spent - statistics.median(other.get(name, 0.0) for other in rest)
        for name, spent in own_ms[slowest].items()
    }
    lost_ms = sum(own_ms[slowest].values()) - statistics.median(sum(o.values()) for o in rest)
    if lost_ms < STRAGGLES * _step_ms(watched[slowest]):
        return []
    part = max(extra_ms, key=lambda name: extra_ms[name])
    return [note("script_straggler", rank=slowest, part=part, ms=round(lost_ms, 2))]


def _own_ms(watched: WatchedRecord) -> dict[str, float]:
    """The median of each part of a step that waits for no other process."""
    return {
        name: statistics.median(values)
        for name, values in watched.steps_ms.items()
        if name != "backward" and values
    }


def _step_ms(watched: WatchedRecord) -> float:
    return statistics.median(map(sum, zip(*watched.steps_ms.values(), strict=True)))


def notes_of(watched: WatchedRecord) -> list[Note]:
    """What could not be seen."""
    found = []
    if not watched.num_steps:
        found.append(note("script_no_updates"))
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
        self._attempt, self._script = attempt, script
        self._process: ScriptProcess | None = None

    def warm_up(self) -> Footprint:
        """Starts the script and runs its steps until they are warm."""
        attempt = self._attempt
        self._process = ScriptProcess(self._script, attempt.trial, attempt.folder, "turns", None)
        told = self._process.answer()
        return Footprint(**told["footprint"])

    def turn(self, number: int) -> float:
        """One turn; the median of its bare steps."""
        assert self._process is not None
        self._process.tell(f"turn {number}")
        median_ms: float = self._process.answer()["median_ms"]
        return median_ms

    def finish(self, bench: str, stopped: Literal["tight", "budget"]) -> CostRecord:
        """The record of all turns."""
        assert self._process is not None
        self._process.tell(f"finish {bench} {stopped}")
        told = self._process.answer()
        self._attempt.record_script(told["facts"])
        self.close()
        return self._attempt.folder.cost.read()

    def close(self) -> None:
        """Ends the script."""
        if self._process is not None:
            self._process.close()
            self._process = None


# Learn trials of a group: trained together where an engine can, else one after the other.

SetUp = Callable[[Attempt], Setup]


@dataclass(frozen=True)
class Ready:
    """A trial that is set up."""

    attempt: Attempt
    member: Member


@dataclass(frozen=True)
class Apart:
    """Trials that cannot run together, and the engines left to try for each part of them."""

    parts: Sequence[Sequence[Ready]]
    engines: Sequence[Engine]


def learn(
    engines: Sequence[Engine], watched: Sequence[tuple[Attempt, Moments]], set_up: SetUp
) -> None:
    """Trains the trials by the first of the engines that suits them, and records how each ended."""
    for some in [watched] if engines[0].takes_many else [[one] for one in watched]:
        _learn_together(engines, some, set_up)


def _learn_together(
    engines: Sequence[Engine], watched: Sequence[tuple[Attempt, Moments]], set_up: SetUp
) -> None:
    ready: list[Ready] = []
    for attempt, moments in watched:
        attempt.begin()
        with attempt:
            ready.append(Ready(attempt, Member(set_up(attempt), moments, attempt.progress)))
    # Those that are updated alike lie together.
    ready.sort(key=lambda one: update_key(one.member.setup.settings))
    if ready:
        _train(engines, ready)
    # All records are written before an interrupt is passed on.
    with signals_held():
        for attempt, _ in watched:
            attempt.end()
    for attempt, _ in watched:
        attempt.pass_on_interrupt()


def _train(engines: Sequence[Engine], ready: Sequence[Ready]) -> None:
    attempts, members = [one.attempt for one in ready], [one.member for one in ready]
    meter, apart, session = LoadMeter(), None, None
    with ending_together(attempts):
        opened = _opened(engines, ready)
        if isinstance(opened, Apart):
            apart = opened
        else:
            engine, session = opened
            for one in ready:
                _record_engine(one, engine)
            saved = _saved(ready)
            for number, one in enumerate(ready):
                steps_before = 0 if saved is None else saved.steps_before(number)
                view = one.member.setup.view(one.attempt.folder, steps_before)
                instruments = () if saved is None else saved.instruments(number)
                one.member.moments.trial_begins(view, instruments)
            with nullcontext() if saved is None else heeding_end():
                train(session, members, saved=saved)
    if apart is not None:
        _train_apart(apart)
        return
    load_meanwhile = meter.read()
    for number, one in enumerate(ready):
        one.attempt.load = load_meanwhile
        with one.attempt:
            one.member.moments.trial_ends(one.attempt.progress)
            if session is not None:
                record_confusion(session, number, one.member, one.attempt.folder)


def _saved(ready: Sequence[Ready]) -> Checkpoints | None:
    """The checkpoints of the trials; None where an instrument could not go on from them."""
    if not all(one.member.moments.go_on for one in ready):
        return None
    trials = [one.attempt.checkpointed() for one in ready]
    return Checkpoints(trials, [one.member for one in ready])


def _train_apart(apart: Apart) -> None:
    """One part after the other; an interrupt ends those that have not begun as well."""
    interrupted = False
    for part in apart.parts:
        if interrupted:
            with ending_together([one.attempt for one in part]):
                raise Interrupted
        else:
            _train(apart.engines, part)
            interrupted = any(one.attempt.is_interrupted for one in part)


def _opened(engines: Sequence[Engine], ready: Sequence[Ready]) -> tuple[Engine, Session] | Apart:
    """The first engine that can make the updates of these trials; why others cannot is noted."""
    members = [one.member for one in ready]
    for number, engine in enumerate(engines):
        if len(ready) > 1 and not engine.takes_many:
            return Apart([[one] for one in ready], engines[number:])
        reason = too_coarse_for(engine, [member.moments for member in members])
        if reason is None:
            try:
                return engine, engine.open(members)
            except Unsuited as unsuited:
                if unsuited.why == "not_alike" and len(parts := _by_model(ready)) > 1:
                    return Apart(parts, engines[number:])
                reason = note(f"engine_{unsuited.why}", engine=engine.name, **unsuited.values)
            except torch.OutOfMemoryError:
                if len(ready) == 1:
                    raise
                torch.cuda.empty_cache()
                half = len(ready) // 2
                return Apart([ready[:half], ready[half:]], engines[number:])
        for member in members:
            member.setup.notes.append(reason)
    raise AssertionError("the last engine makes the updates of every trial")


def _by_model(ready: Sequence[Ready]) -> list[list[Ready]]:
    """Those whose models were made with the same parameters together."""
    parts: dict[str, list[Ready]] = {}
    for one in ready:
        parts.setdefault(str(one.member.setup.settings.model), []).append(one)
    return list(parts.values())


def _record_engine(one: Ready, engine: Engine) -> None:
    setup = one.member.setup
    one.attempt.record_setup(setup, {"engine": engine.name, **setup.engine_facts})


def run_group(
    run: RunFolder,
    trial_ids: Sequence[str],
    environment: str,
    load: Loader,
    instruments: Sequence[Instrument] = (),
    token: str | None = None,
) -> None:
    """Runs the trials of a group on the machine recorded under that name. One that fails is recorded and
    the others run; an interrupt is recorded and raised. `instruments` watch beside the study's own;
    `token` is that of the attempts."""
    study = run.study().to_study(str(run.study_file))
    threads, events = torch.get_num_threads(), EventWriter(run)
    attempts = [Attempt(run.trial(trial_id), environment, token) for trial_id in trial_ids]
    learning = [attempt for attempt in attempts if attempt.trial.kind == "learn"]
    try:
        if study.script is not None:
            run_script_trials(attempts, study, events)
            return
        for attempt in attempts:
            if attempt not in learning:
                torch.set_num_threads(threads)
                with torch_restored():
                    _measure(run, attempt, study, load)
        if learning:
            torch.set_num_threads(threads)
            with torch_restored():
                _learn(learning, study, load, events, instruments)
    except Interrupted:
        for attempt in attempts:
            attempt.interrupt()
        raise
    finally:
        dismiss_crew()
        torch.set_num_threads(threads)
        events.close()


def _learn(
    attempts: Sequence[Attempt],
    study: Study,
    load: Loader,
    events: EventWriter,
    others: Sequence[Instrument],
) -> None:
    """Together where the engine can, else one after the other."""
    watched = [
        (
            attempt,
            Moments([*_instruments(study, attempt.trial), ProgressEvents(events.write), *others]),
        )
        for attempt in attempts
    ]
    settings = attempts[0].trial.settings
    engines = engines_for(settings, pick_device(settings.device), has_others=study.num_learn > 1)
    switches, threads = torch_switches(), torch.get_num_threads()

    def set_up_alike(attempt: Attempt) -> Setup:
        # What one trial has switched is not for the next.
        switch_torch(switches)
        torch.set_num_threads(threads)
        return _set_up(attempt, load, engines[-1].name)

    learn(engines, watched, set_up_alike)


def _measure(run: RunFolder, attempt: Attempt, study: Study, load: Loader) -> None:
    """One look at what a step costs."""
    attempt.begin()
    trial, folder = attempt.trial, attempt.folder
    with attempt:
        cost = trial.cost
        assert cost is not None
        setup = set_up_cost(run, attempt, load)
        if trial.watch == "operators":
            folder.operators.write(profile_operators(setup, cost, folder.trace_file))
        elif trial.watch == "layers":
            folder.layers.write(profile_layers(setup, cost))
            folder.memory.write(measure_memory(setup, cost))
            folder.limits.write(measured_limits(setup.device))
            if study.probes and cost.mode == "train":
                folder.probe_price.write(measure_probes(setup, cost, study.probes))
        else:
            folder.cost.write(measure(setup, cost))
        attempt.progress.state = "done"
    attempt.end()
    attempt.pass_on_interrupt()


def set_up_cost(run: RunFolder, attempt: Attempt, load: Loader) -> Setup:
    """A cost trial set up on this machine, with the weights it asks for."""
    trial = attempt.trial
    engine, _ = engine_for(trial.settings, [])
    setup = _set_up(attempt, load, engine.name)
    if trial.weights_of is not None:
        load_weights(setup, run.trial(trial.weights_of))
    return setup


def _set_up(attempt: Attempt, load: Loader, engine: str) -> Setup:
    trial = attempt.trial
    prepare_process(trial.settings)
    workload = load.workload(trial.workload)
    if load.was_changed(trial.workload):
        attempt.notes.append(note("code_changed", workload=trial.workload))
    data = load.data(trial.workload, trial.settings)
    setup = set_up(trial, workload, data, attempt.notes, attempt.engine_facts)
    attempt.record_setup(setup, {"engine": engine})
    return setup


def _instruments(study: Study, trial: Trial) -> list[Instrument]:
    chosen: list[Instrument] = [CurveWriter()]
    if trial.seed == study.seeds[0]:
        chosen.append(Network())
    is_first = (trial.cell, trial.seed) == (study.all_cells[0].id, study.seeds[0])
    board = TensorBoard(shows_samples=is_first)
    if study.probes:
        # Before TensorBoard, which closes its file at the end: the last values must still go there.
        chosen.append(Probes(study.probes, [board.probe_logged] if study.tensorboard else []))
    if study.tensorboard:
        chosen.append(board)
    if study.keeps_weights:
        chosen.append(Weights())
    return chosen
