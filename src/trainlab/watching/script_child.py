"""A process that runs a script and watches it.

    python -P -m trainlab.watching.script_child '{"script": …, "mode": …}'

What the script prints goes where this process prints. Answers are lines of JSON in a pipe of their own: how
far it is, and at last how it ended.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import torch

from trainlab.errors import TrainlabError
from trainlab.machine.process_state import random_layout
from trainlab.machine.processes import process_age_s
from trainlab.record.run_folder import TrialFolder
from trainlab.record.trial_record import SCRIPT_EXIT
from trainlab.watching.interventions import ChangeError, ScriptChange, apply_change
from trainlab.watching.running import (
    EndOfWatch,
    Interrupts,
    Refused,
    ScriptEnds,
    end_as_script,
    join_threads,
    leaving_by,
    raised_by,
    run_script,
    seed_all,
    trace_of,
)
from trainlab.watching.script_cost import ProfiledWindow, Turns, WholeTurns
from trainlab.watching.script_process import Order, end_with_starter
from trainlab.watching.statements import Search
from trainlab.watching.tracer import Tracer
from trainlab.watching.watched_record import facts_of
from trainlab.watching.watched_run import WholeWatch

PROGRESS_EVERY_S = 0.3
FIRST_STEPS, MIN_STEPS = 3, 30
"""A time limit begins after the first updates, which are slow, and ends no script before so many."""
interrupts = Interrupts()
"""Of this process."""
NO_UPDATE = "the script made no update that could be seen; does it train, with these arguments?"


def rank() -> int:
    """Which of the processes that torchrun started this is; 0 where it started none."""
    return int(os.environ.get("RANK", "0"))


class Answers:
    """The pipe to whoever started this process."""

    def __init__(self, path: str) -> None:
        self._stream: TextIO | None = None
        if not rank():
            # Without waiting for a reader: where there is none, whoever started this process is gone.
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(pipe, True)
            self._stream = os.fdopen(pipe, "w", encoding="utf-8")

    def send(self, **values: Any) -> None:
        """A line of JSON; nobody may be left to read it."""
        if self._stream is not None:
            with suppress(OSError):  # nor may the pipe, where the script has closed all it could
                self._stream.write(json.dumps(values) + "\n")
                self._stream.flush()


def main() -> int:
    """Runs the script as ordered; 1 where it failed, how is in the last answer."""
    os.environ.pop("PYTHONSAFEPATH", None)  # for us, not for what the script starts
    order = Order.model_validate_json(sys.argv[1])
    answers = Answers(order.answers)
    if order.threads is not None:
        torch.set_num_threads(order.threads)
    interrupts.heed()
    seed_all(order.trial.seed)
    try:
        change = apply_change(order.trial.settings.change, order.path)
        return (_run_whole if order.mode == "whole" else _measure)(order, answers, change)
    except (ChangeError, TrainlabError, OSError) as error:
        # Ours: what was asked for cannot be changed, or records cannot be written any more.
        said = str(error).partition("\n")[0]
        answers.send(ended="failed", kind=type(error).__name__, message=said)
        return 1


def _on_step(
    order: Order, answers: Answers, also: list[Callable[[int], None]]
) -> Callable[[int, Mapping[str, float]], None]:
    """Tells how far the script is, a few times a second, and ends it where it has come far enough."""
    told_s, limit_s, max_s = 0.0, 0.0, order.script.max_s

    def step_ended(step: int, metrics: Mapping[str, float]) -> None:
        nonlocal told_s, limit_s
        now_s = time.monotonic()
        if now_s - told_s > PROGRESS_EVERY_S:
            told_s = now_s
            answers.send(step=step, metrics=dict(metrics))
        for one in also:
            one(step)
        if step == FIRST_STEPS:
            limit_s = now_s + max_s
        is_late = max_s and step >= MIN_STEPS and now_s >= limit_s
        if step == order.script.max_steps or is_late:
            raise EndOfWatch

    return step_ended


def _run_whole(order: Order, answers: Answers, change: ScriptChange | None) -> int:
    folder, also = TrialFolder(Path(order.trial_folder)), list[Callable[[int], None]]()
    whole = WholeWatch(
        order.trial,
        folder,
        probes=order.probes,
        tensorboard=order.tensorboard,
        metrics=order.script.metrics,
        columns=order.script.columns,
        start_ns=_start_ns(),
        on_step=_on_step(order, answers, also),
        refusal=Refused,
        rank=rank(),
        sees_all=order.script.is_searched,
    )
    search = Search(order.path, whole.tracer) if order.script.is_searched else None
    if search is not None:
        also.append(search.step_ended)
    if change is not None and (on_step := change.on_step) is not None:
        also.append(lambda step: on_step())

    def record(ended: Mapping[str, Any]) -> None:
        # The script's last word; what follows are our records.
        interrupts.ignore()
        answers.send(step=whole.tracer.num_steps, metrics={}, is_recording=True)
        if search is not None:
            search.close()
        if change is not None:
            change.close()
        whole.close(order.arguments, is_cut=ended["ended"] != "done" or interrupts.have_come)
        if search is not None:
            watched = folder.watched_by(rank())
            watched.write(search.added_to(watched.read()))
        came = whole.progress
        answers.send(
            **ended,
            epochs=came.epochs_done,
            steps=came.steps_done,
            final=came.final,
            facts=whole.facts,
            notes=[note.model_dump(mode="json") for note in whole.notes],
            missing=[note.model_dump(mode="json") for note in whole.missing],
        )

    own = os.getpid()
    # Of a script that leaves by `os._exit` nothing runs any more, but what was seen is recorded.
    with leaving_by(lambda code: record(_left(code))):
        ended = _ended(order, change)
    end_as_script()
    if os.getpid() != own:
        # A process that the script forked, and that has come to its end as the script does.
        return int(ended.get("code", ended["ended"] != "done"))
    record(ended)
    return 0 if ended["ended"] == "done" else 1


def _measure(order: Order, answers: Answers, change: ScriptChange | None) -> int:
    """The script, again and again if it is short: its steps in turns until it was told to finish, or until
    a window of them was profiled."""
    folder, tracer = TrialFolder(Path(order.trial_folder)), Tracer(_start_ns())
    if order.mode == "operators":
        window = ProfiledWindow(tracer, order.cost, folder.trace_file)
        ended = _run_until(order, tracer, window.protocol(), change)
        if window.record is not None:
            folder.operators.write(window.record)
    else:
        commands = os.fdopen(order.commands, encoding="utf-8")
        kind = WholeTurns if order.script.has_whole_turns else Turns
        warmup_steps = order.cost.warmup_steps
        turns = kind(tracer, warmup_steps, lambda: commands.readline().split(), answers.send)
        with random_layout():
            ended = _run_until(order, tracer, turns.protocol(), change, turns.script_ended)
        if turns.record is not None:
            folder.cost.write(turns.record)
    answers.send(**ended, facts=facts_of(tracer))
    return 0 if ended["ended"] == "done" else 1


def _run_until(
    order: Order,
    tracer: Tracer,
    protocol: Generator[None, None, None],
    change: ScriptChange | None,
    script_ended: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Runs the script until a protocol, which goes on at the end of every step, has ended; ChangeError
    where the change made no difference."""
    has_ended = False

    def step_ended(step: int) -> None:
        nonlocal has_ended
        if change is not None and change.on_step is not None:
            change.on_step()
        try:
            next(protocol)
        except StopIteration:
            has_ended = True
            raise EndOfWatch from None

    def leave(code: int) -> None:
        raise SystemExit(code)  # by `os._exit` in a script that may have to run again

    tracer.on_step = step_ended
    while True:
        before = tracer.num_steps + tracer.num_light_steps
        seed_all(order.trial.seed)
        with leaving_by(leave):
            ended = _ended(order, change)
        script_ended()
        if ended["ended"] == "done" and not has_ended:
            if tracer.num_steps + tracer.num_light_steps > before:
                tracer.begin_again()
                continue
            ended = {"ended": "failed", "kind": "NoUpdate", "message": NO_UPDATE}
        tracer.close()
        if change is not None:
            change.close()
            if ended["ended"] == "done":
                change.check_used()
        return ended


def _ended(order: Order, change: ScriptChange | None) -> dict[str, Any]:
    """Runs the script: how it ended. What it raised is shown as Python shows it."""
    ended: dict[str, Any] = {"ended": "done"}
    try:
        run_script(order.script, order.arguments, None if change is None else change.code)
    except EndOfWatch:
        return ended
    except ScriptEnds as end:
        ended = _left(end.code)
        if not isinstance(end.code, int):
            sys.stderr.write(f"{end.code}\n")
    except Refused as refused:
        error = refused.error
        return {"ended": "failed", "kind": type(error).__name__, "message": str(error)}
    except KeyboardInterrupt as error:
        interrupts.ignore()
        return {"ended": "interrupted", **raised_by(error, order.path)}
    except BaseException as error:  # noqa: BLE001  the script may raise anything
        interrupts.ignore()
        trace = trace_of(error)
        try:
            sys.excepthook(type(error), error, trace)
        except BaseException:  # noqa: BLE001  it is the script's
            sys.__excepthook__(type(error), error, trace)
        ended = {"ended": "failed", **raised_by(error, order.path)}
        interrupts.heed()
    # How the script ended is known, and an interrupt ends the wait for its threads.
    with suppress(KeyboardInterrupt, EndOfWatch):
        join_threads()
    if "printed" in ended:  # what is put off until the end of Python may add to it
        ended["printed"] = os.fstat(1).st_size
    return ended


def _left(code: object) -> dict[str, Any]:
    """How a script ended that has left with an exit code; a text stands for 1, as in Python."""
    if code in (None, 0):
        return {"ended": "done"}
    number = code if isinstance(code, int) else 1
    return {
        "ended": "failed",
        "kind": SCRIPT_EXIT,
        "message": f"the script ended with exit code {number}",
        "code": number,
        "printed": os.fstat(1).st_size,
    }


def _start_ns() -> int:
    """When this process began, on the clock of the timeline."""
    return time.perf_counter_ns() - int(process_age_s() * 1e9)


if __name__ == "__main__":
    end_with_starter()
    sys.exit(main())
