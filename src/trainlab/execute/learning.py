"""Learn trials of a group: trained together where an engine can, else one after the other."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from trainlab.errors import Interrupted
from trainlab.execute.attempt import Attempt, ending_together
from trainlab.execute.signals import signals_held
from trainlab.instruments.confusion import record_confusion
from trainlab.machine.load import LoadMeter
from trainlab.record.schema import note
from trainlab.train.checkpoint.checkpoints import Checkpoints
from trainlab.train.ending import heeding_end
from trainlab.train.engines import too_coarse_for
from trainlab.train.engines.engine import Engine, Member, Session
from trainlab.train.loop import train
from trainlab.train.moments import Moments
from trainlab.train.program.unsuited import Unsuited
from trainlab.train.program.updates import update_key
from trainlab.train.saved.group import SavedGroup
from trainlab.train.setup import Setup

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
    if len(watched) > 1:
        together = [attempt.trial.id for attempt, _ in watched]
        for attempt, _ in watched:
            attempt.prepare_end(together)
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
            saved = _saved(ready, session)
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


def _saved(ready: Sequence[Ready], session: Session) -> SavedGroup | None:
    """The checkpoints of the trials; None where an instrument could not go on from them."""
    if not all(one.member.moments.go_on for one in ready):
        return None
    checkpoints = Checkpoints([one.attempt.checkpointed() for one in ready])
    return SavedGroup(checkpoints, [one.member for one in ready], session)


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
