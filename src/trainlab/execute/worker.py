"""The worker: runs the trials of a group and leaves a record of each, whatever happens.

Everything it needs comes from the run folder and everything it makes goes there, so that the same serves
this process, another process, or another machine. In a process of its own (`work`) it obeys commands, and
what the user's code prints goes to the log.
"""

import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from trainlab.errors import Interrupted
from trainlab.execute.attempt import Attempt, EventWriter, ending_together
from trainlab.execute.bench import TimedTrial
from trainlab.execute.launch import INTERRUPTED, Job
from trainlab.execute.script_trials import ScriptTimer, run_scripts
from trainlab.execute.signals import ENDING, interrupted_once, signals_held
from trainlab.instruments.curve_writer import CurveWriter, ProgressEvents
from trainlab.instruments.model_records import Network, Weights, load_weights, record_confusion
from trainlab.instruments.probe_instrument import Probes
from trainlab.instruments.tensorboard import TensorBoard
from trainlab.machine import process_state
from trainlab.machine.device import pick_device
from trainlab.machine.load import LoadMeter
from trainlab.measure.layer_profile import measure_probes, profile_layers
from trainlab.measure.limits import measured_limits
from trainlab.measure.memory import measure_memory
from trainlab.measure.operator_profile import profile_operators
from trainlab.measure.timing import StepTimer, measure
from trainlab.plan import Trial
from trainlab.record.run_folder import RunFolder
from trainlab.record.schema import note
from trainlab.spec import Study
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

ORPHANED_S = 5.0
"""How long a process may take to close its records once its driver is gone."""

# A process of its own.


def work(job: Job, pipe: Connection, log: Path) -> None:
    """Obeys until an empty command, or the driver is gone."""
    lines = log.open("a", buffering=1, encoding="utf-8", errors="backslashreplace")
    for descriptor in (1, 2):
        os.dup2(lines.fileno(), descriptor)
    sys.stdout = sys.stderr = lines
    faulthandler.enable()
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    threading.Thread(target=_end_with_driver, args=(threading.get_ident(),), daemon=True).start()
    run, load = RunFolder(job.run), Loader(code=job.code, sent=job.sent)
    timed: list[TimedTrial] = []
    commands: dict[str, Callable[..., Any]] = {
        "ready": lambda: True,
        "run": lambda: run_group(run, job.trials, job.environment, load, token=job.token),
        "timed": partial(_to_timed, timed, job, load),
    }
    left_s = job.limit_s
    try:
        interrupted_once()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        while command := pipe.recv():
            name, *values = command
            begun_s = time.monotonic()
            if left_s is not None:  # when it is over, the log says where the process was
                faulthandler.dump_traceback_later(max(left_s, 1e-3), exit=True)
            answer = commands[name](*values)
            if left_s is not None:
                faulthandler.cancel_dump_traceback_later()
                left_s -= time.monotonic() - begun_s
            pipe.send(answer)
    except Interrupted:
        sys.exit(INTERRUPTED)
    except (EOFError, ConnectionError):
        pass
    finally:
        for trial in timed:
            trial.abandon()


def _to_timed(
    timed: list[TimedTrial], job: Job, load: Loader, place: int, command: str, *values: Any
) -> Any:
    """A command to one of the timed trials, which are made with the first."""
    if not timed:
        about = job.environment, load, job.token
        timed.extend(timed_trial(RunFolder(job.run), one, *about) for one in job.trials)
    return getattr(timed[place], command)(*values)


def _end_with_driver(main: int) -> None:
    """Waits for the driver's end, however it dies: then this process closes its records and ends, too."""
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    signal.pthread_kill(main, signal.SIGTERM)
    time.sleep(ORPHANED_S)
    os._exit(1)


def run_group(
    run: RunFolder,
    trial_ids: Sequence[str],
    environment: str,
    load: Loader,
    instruments: Sequence[Instrument] = (),
    token: str | None = None,
) -> None:
    """Runs the trials of a group. One that fails is recorded and the others run; an interrupt is recorded
    and raised. `token` is that of the attempts, given where this process is theirs alone: trials that an
    engine has tried in vain are then left pending, each for a fresh one."""
    study, events = run.study().to_study(str(run.study_file)), EventWriter(run)
    attempts = [Attempt(run.trial(trial_id), environment, token) for trial_id in trial_ids]
    learning = [attempt for attempt in attempts if attempt.trial.kind != "cost"]
    try:
        with process_state.torch_restored() as restore:
            if study.script is not None:
                # By itself a script runs as it would without us, with as many threads as it likes.
                threads = torch.get_num_threads() if study.trains_several else None
                run_scripts(attempts, study, study.script, events, threads)
                return
            for attempt in attempts:
                if attempt not in learning:
                    restore()
                    _measure(run, attempt, study, load)
            if learning:
                restore()
                _learn(learning, study, load, events, instruments, restore, token is not None)
    except Interrupted:
        for attempt in attempts:
            attempt.interrupt()
        raise
    finally:
        dismiss_crew()
        events.close()


# Learn trials: trained together where an engine can, else one after the other.

Ready = tuple[Attempt, Member]
"""A trial that is set up."""


def _learn(
    attempts: Sequence[Attempt],
    study: Study,
    load: Loader,
    events: EventWriter,
    others: Sequence[Instrument],
    restore: Callable[[], None],
    can_leave: bool,
) -> None:
    """By the first of the engines that suits them; how each ended is recorded."""
    settings = attempts[0].trial.settings
    engines = engines_for(settings, pick_device(settings.device), has_others=study.trains_several)
    if len(attempts) == 1:
        engines = [one for one in engines if one.name not in attempts[0].refused_by]
    for some in [attempts] if engines[0].takes_many else [[one] for one in attempts]:
        ready: list[Ready] = []
        for attempt in some:
            watching = [*_instruments(study, attempt.trial), ProgressEvents(events.write), *others]
            attempt.begin()
            with attempt:
                restore()  # what one trial has switched is not for the next
                setup = _set_up(attempt, load, engines[-1].name)
                ready.append((attempt, Member(setup, Moments(watching), attempt.progress)))
        # Those that are updated alike lie together.
        ready.sort(key=lambda one: update_key(one[1].setup.settings))
        if ready:
            _train(engines, ready, can_leave)
        # All records are written before an interrupt is passed on.
        with signals_held():
            for attempt in some:
                attempt.end()
        for attempt in some:
            attempt.pass_on_interrupt()


WHY_UNTRIED = "too_coarse", "not_ours", "not_step_by_step", "not_resident"
"""Reasons that an engine has before it runs any of the user's code."""


def _train(engines: Sequence[Engine], ready: Sequence[Ready], can_leave: bool) -> None:
    """Trains them by the first engine that can, in parts where none takes them all."""
    attempts = [attempt for attempt, _ in ready]
    found: Session | list[Sequence[Ready]] | None = None
    with ending_together(attempts):
        while (found := _open(engines[0], ready)) is None:
            was_tried = attempts[0].notes[-1].code.removeprefix("engine_") not in WHY_UNTRIED
            if can_leave and engines[0].is_program and (was_tried or len(ready) > 1):
                # What the user's code keeps outside of the model is no longer as it begins.
                for attempt in attempts:
                    attempt.progress.state = "pending"
                return
            engines = engines[1:]
    if not isinstance(found, list):
        _train_opened(engines[0], found, ready)
        return
    for part in found:
        with ending_together([attempt for attempt, _ in part]):
            if any(attempt.is_interrupted for attempt in attempts):
                raise Interrupted
            _train(engines, part, can_leave)


def _open(engine: Engine, ready: Sequence[Ready]) -> Session | list[Sequence[Ready]] | None:
    """What trains these trials; or parts of them, where it could only take those; None where it cannot, and
    why is noted."""
    members = [member for _, member in ready]
    if len(ready) > 1 and not engine.takes_many:
        return [[one] for one in ready]
    reason = too_coarse_for(engine, [member.moments for member in members])
    if reason is None:
        try:
            return engine.open(members)
        except Unsuited as unsuited:
            by_model: dict[str, list[Ready]] = {}
            for one in ready:
                by_model.setdefault(str(one[1].setup.settings.model), []).append(one)
            if unsuited.why == "not_alike" and len(by_model) > 1:
                return list(by_model.values())
            reason = note(f"engine_{unsuited.why}", engine=engine.name, **unsuited.values)
        except torch.OutOfMemoryError:
            if len(ready) == 1:
                raise
            torch.cuda.empty_cache()
            half = len(ready) // 2
            return [ready[:half], ready[half:]]
    for member in members:
        # Once: it may have been refused with others before.
        member.setup.notes[:] = [*(one for one in member.setup.notes if one != reason), reason]
    return None


def _train_opened(engine: Engine, session: Session | None, ready: Sequence[Ready]) -> None:
    """From its last checkpoint, where there is one; none is kept where an instrument could not go on from
    it. What is raised ends all that train; no session: they have ended so already."""
    members, meter = [member for _, member in ready], LoadMeter()
    if session is not None:
        with ending_together([attempt for attempt, _ in ready]):
            for attempt, member in ready:
                facts = {"engine": engine.name, **member.setup.engine_facts}
                attempt.record_setup(member.setup, facts)
            can_go_on = all(member.moments.go_on for member in members)
            trials = [attempt.checkpointed() for attempt, _ in ready]
            saved = Checkpoints(trials, members) if can_go_on else None
            for number, (attempt, member) in enumerate(ready):
                steps_before = 0 if saved is None else saved.steps_before(number)
                view = member.setup.view(attempt.folder, steps_before)
                seen = () if saved is None else saved.instruments(number)
                member.moments.trial_begins(view, seen)
            with nullcontext() if saved is None else heeding_end():
                train(session, members, saved=saved)
    load_meanwhile = meter.read()
    for number, (attempt, member) in enumerate(ready):
        attempt.load = load_meanwhile
        with attempt:
            member.moments.trial_ends(attempt.progress)
            if session is not None:
                record_confusion(session, number, member, attempt.folder)


# Cost trials: measured alone, or timed in turns.


def _measure(run: RunFolder, attempt: Attempt, study: Study, load: Loader) -> None:
    """One look at what a step costs."""
    attempt.begin()
    trial, folder = attempt.trial, attempt.folder
    with attempt:
        cost = trial.cost
        assert cost is not None
        setup = _set_up_cost(run, attempt, load)
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


def timed_trial(
    run: RunFolder, trial_id: str, environment: str, load: Loader, token: str | None = None
) -> TimedTrial:
    """A cost trial to be timed in turns in this process."""

    def timer(attempt: Attempt, opened: ExitStack) -> StepTimer:
        assert attempt.trial.cost is not None
        opened.callback(dismiss_crew)
        process_state.switch(switched)  # others may be timed in the same process
        # Where memory comes from is settled first: it is that which is to lie elsewhere.
        process_state.prepare_process(attempt.trial.settings)
        opened.enter_context(process_state.random_layout())
        return StepTimer(_set_up_cost(run, attempt, load), attempt.trial.cost)

    switched = process_state.switched()
    script = run.study().to_study(str(run.study_file)).script
    attempt = Attempt(run.trial(trial_id), environment, token)
    if script is None:
        return TimedTrial(attempt, timer)
    return TimedTrial(attempt, partial(ScriptTimer, script), is_script=True)


# What a trial trains with, and who watches it.


def _set_up_cost(run: RunFolder, attempt: Attempt, load: Loader) -> Setup:
    trial = attempt.trial
    engine, _ = engine_for(trial.settings, [])
    setup = _set_up(attempt, load, engine.name)
    if trial.weights_of is not None:
        load_weights(setup, run.trial(trial.weights_of))
    return setup


def _set_up(attempt: Attempt, load: Loader, engine: str) -> Setup:
    trial = attempt.trial
    process_state.prepare_process(trial.settings)
    workload = load.workload(trial.workload)
    data = load.data(trial.workload, trial.settings)
    setup = set_up(trial, workload, data, attempt.notes, attempt.engine_facts)
    if load.was_changed(trial.workload):
        setup.note_once("code_changed", workload=trial.workload)
    attempt.record_setup(setup, {"engine": engine})
    return setup


def _instruments(study: Study, trial: Trial) -> list[Instrument]:
    chosen: list[Instrument] = [CurveWriter()]
    if trial.kind == "try":
        return chosen
    is_first = (trial.cell, trial.seed) == (study.all_cells[0].id, study.seeds[0])
    board = TensorBoard(shows_samples=is_first)
    if study.probes:
        # Before TensorBoard, which closes its file at the end: the last values must still go there.
        chosen.append(Probes(study.probes, [board.probe_logged] if study.tensorboard else []))
    if study.tensorboard:
        chosen.append(board)
    if trial.seed == study.seeds[0]:
        chosen.append(Network())  # behind the probes, whose hooks are gone then
    if study.save_model or (study.cost is not None and study.cost.weights != "untrained"):
        chosen.append(Weights())
    return chosen
