"""The worker: runs the trials of a group and leaves a record of each, whatever happens.

Everything it needs comes from the run folder and everything it makes goes there, so that the same
entry serves this process, another process, or another machine.
"""

from collections.abc import Sequence

import torch

from trainlab.errors import Interrupted
from trainlab.execute.attempt import Attempt
from trainlab.execute.events import EventWriter
from trainlab.execute.learning import learn
from trainlab.execute.scripts import run_script_trials
from trainlab.instruments.curves import Curves
from trainlab.instruments.network import Network
from trainlab.instruments.probes.instrument import Probes
from trainlab.instruments.progress import ProgressEvents
from trainlab.instruments.tensorboard import TensorBoard
from trainlab.instruments.weights import Weights, load_weights
from trainlab.machine.device import pick_device
from trainlab.machine.process import prepare_process
from trainlab.machine.torch_state import TorchState, torch_restored
from trainlab.measure.layers import profile_layers
from trainlab.measure.limits import measured_limits
from trainlab.measure.memory import measure_memory
from trainlab.measure.operators import profile_operators
from trainlab.measure.probe_cost import measure_probes
from trainlab.measure.timing import measure
from trainlab.plan import Trial
from trainlab.record.run_folder import RunFolder
from trainlab.record.schema import note
from trainlab.spec import Study
from trainlab.train.engines import engine_for, engines_for
from trainlab.train.loader import Loader
from trainlab.train.moments import Instrument, Moments
from trainlab.train.parallel.crew import dismiss_crew
from trainlab.train.setup import Setup, set_up


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
    state, threads = TorchState(), torch.get_num_threads()

    def set_up_alike(attempt: Attempt) -> Setup:
        # What one trial has switched is not for the next.
        state.restore()
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
    chosen: list[Instrument] = [Curves()]
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
