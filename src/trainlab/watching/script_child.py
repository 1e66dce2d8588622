"""A process that runs a script as Python would run it, and watches it.

It is told an order, as JSON; see `trainlab.watching.script_process`. What the script prints goes where this
process prints. Answers are lines of JSON in a pipe of their own: how far it is, and at last how it ended.
"""

import builtins
import gc
import json
import math
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch

from trainlab.errors import TrainlabError
from trainlab.instruments.calls import Patches
from trainlab.machine.environment import torch_facts
from trainlab.machine.process_state import random_layout
from trainlab.machine.processes import end_with_parent, process_age_s
from trainlab.record.run_folder import TrialFolder
from trainlab.record.trial_record import SCRIPT_EXIT, Failure
from trainlab.spec.script import ScriptSpec
from trainlab.watching.imports import on_import
from trainlab.watching.interventions import ChangeError, ScriptChange, apply_change
from trainlab.watching.own_metrics import hear_stream
from trainlab.watching.script_cost import MeanTurns, Turns, profiled_window
from trainlab.watching.script_process import END, HOME, Order, failure_without_error
from trainlab.watching.tracer import EndOfWatch, Refused, Tracer
from trainlab.watching.watched_run import WatchedTraining, facts_of
from trainlab.workloads.user_code import FIELD, mistake_in

Measured = TypeVar("Measured")
FIRST_STEPS, MIN_STEPS = 3, 10
"""A time limit begins after the first updates, which are slow, and ends no script before so many."""
NO_UPDATE = "the script made no update that could be seen; does it train, with these arguments?"
IN_A_COPY = "this trial ran in a copy of the folder: if the file is in the folder, add --workdir ."


def main() -> int:
    """Runs the script as ordered; 1 where it failed, how is in the last answer."""
    end_with_parent()
    sys.path.remove(HOME)
    order = Order.model_validate_json(sys.argv[1])
    answers = Answers(order.answers)
    if order.threads is not None:
        torch.set_num_threads(order.threads)
    interrupts.heed()
    if order.script.is_seeded:
        seed_all(order.trial.seed)
    really_leave, own = os._exit, os.getpid()

    def leave(status: int) -> NoReturn:
        if os.getpid() != own:  # a process that the script forked
            really_leave(status)
        raise LeftAtOnce(status)

    os._exit = leave
    try:
        ended = (_run_learn if order.mode == "learn" else _measure)(order, answers)
    except (ChangeError, TrainlabError, OSError) as error:
        # Ours: what was asked for cannot be changed, or records cannot be written any more.
        answers.send(**(ended := _failed(type(error).__name__, str(error).partition("\n")[0])))
    os._exit = really_leave
    code = 0 if ended["ended"] == "done" else 1
    if "at_once" in ended:
        really_leave(code)
    return code


def rank() -> int:
    """Which of the processes that torchrun started this is; 0 where it started none."""
    return int(os.environ.get("RANK", "0"))


class Answers:
    """The pipe to whoever started this process."""

    def __init__(self, path: str) -> None:
        """OSError where nobody reads it: whoever started this process is gone."""
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(pipe, True)
        self._stream = os.fdopen(pipe, "w", encoding="utf-8")
        self.output: OutputRecord | None = None

    def send(self, **values: Any) -> None:
        """A line of JSON, by the first of several processes."""
        if self.output is not None:
            values["is_amid_line"] = self.output.is_amid_line
        if not rank():
            with suppress(OSError):  # the script may have closed all files that it could
                self._stream.write(json.dumps(values) + "\n")
                self._stream.flush()


class OutputRecord:
    """Keeps what the script prints to our terminal or pipes, which it has as they are."""

    def __init__(self, path: Path) -> None:
        self.is_amid_line = False
        """Whether the last that was printed beside standard error did not end a line."""
        self._file = path.open("ab", buffering=0)
        ends_it = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        if (
            ends_it
        ):  # our starter is told, too, that its terminal has gone, and interrupts the script
            signal.signal(signal.SIGHUP, lambda number, frame: None)
        is_one, patches = os.path.sameopenfile(1, 2), Patches()
        for stream in (sys.stdout, sys.stderr):
            is_beside = is_one or stream is sys.stderr
            hear_stream(stream, partial(self._printed, is_beside=is_beside), patches)

    def _printed(self, text: str, *, is_beside: bool) -> None:
        with suppress(OSError):  # the disk is full: no reason to end a training
            self._file.write(text.encode(errors="replace"))
        if is_beside and text:
            self.is_amid_line = not text.endswith("\n")


def _run_learn(order: Order, answers: Answers) -> dict[str, Any]:
    """The script from its start to its end, with the records of a learn trial."""
    folder = TrialFolder(Path(order.trial_folder))
    if order.is_shown:
        answers.output = OutputRecord(folder.output_file)
    if rank():  # the records are those of the first process
        tracer = Tracer()
        tracer.is_sampled, tracer.on_step = True, step_limit(order.script)
        ended = _ended(order)
        interrupts.ignore()
        tracer.close()
        return ended
    training = WatchedTraining(
        order.trial,
        folder,
        order.script,
        lambda step, metrics: answers.send(step=step, metrics=dict(metrics)),
        probes=order.probes,
        tensorboard=order.tensorboard,
        start_ns=_start_ns(),
        on_seen=lambda seen: answers.send(seen=seen.model_dump()),
    )
    training.on_step, own = step_limit(order.script), os.getpid()
    ended = _ended(order)
    if os.getpid() != own:
        return ended  # a process that the script forked has come to its end as the script does
    # The script's last word; what follows are our records.
    interrupts.ignore()
    training.close(is_cut=ended["ended"] != "done" or interrupts.have_come)
    came = training.progress
    answers.send(
        **ended,
        epochs=came.epochs_done,
        steps=came.steps_done,
        final=came.final,
        facts=training.facts,
        torch=torch_facts(),
        notes=[note.model_dump(mode="json") for note in training.notes],
        missing=[note.model_dump(mode="json") for note in training.missing],
    )
    return ended


def step_limit(script: ScriptSpec) -> Callable[[int], None]:
    """Is told of every update, and ends the script after as many, or as long, as was asked for."""
    limit_s = math.inf

    def step_ended(step: int) -> None:
        nonlocal limit_s
        if step == FIRST_STEPS and script.max_s:
            limit_s = time.monotonic() + script.max_s
        is_late = step >= MIN_STEPS and time.monotonic() >= limit_s
        if step == script.max_steps or is_late:
            raise EndOfWatch

    return step_ended


def _measure(order: Order, answers: Answers) -> dict[str, Any]:
    """The script, again and again if it is short: its steps in turns until it was told to finish, or until
    a window of them was profiled."""
    change = apply_change(order.trial.settings.change, order.path)
    folder, tracer = TrialFolder(Path(order.trial_folder)), Tracer(_start_ns())
    if order.mode == "operators":
        window = profiled_window(tracer, order.cost, folder.trace_file)
        ended, operators = _run_until(order, tracer, window, change)
        if operators is not None:
            folder.operators.write(operators)
    else:
        commands = os.fdopen(order.commands, encoding="utf-8")
        kind = MeanTurns if order.script.has_whole_turns else Turns
        warmup_steps = order.cost.warmup_steps
        turns = kind(tracer, warmup_steps, lambda: commands.readline().split(), answers.send)
        with random_layout():
            ended, cost = _run_until(order, tracer, turns.protocol(), change, turns.script_ended)
        if cost is not None:
            folder.cost.write(cost)
    answers.send(**ended, facts=facts_of(tracer), torch=torch_facts())
    return ended


def _run_until(
    order: Order,
    tracer: Tracer,
    protocol: Generator[None, None, Measured],
    change: ScriptChange,
    script_ended: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Any], Measured | None]:
    """Runs the script until a protocol, which goes on at the end of every step, has ended: how the script
    ended, and what the protocol gave. ChangeError where the change made no difference."""
    measured: Measured | None = None
    is_over = False

    def step_ended(step: int) -> None:
        nonlocal measured, is_over
        change.on_step()
        try:
            next(protocol)
        except StopIteration as end:
            measured, is_over = end.value, True
            raise EndOfWatch from None

    tracer.on_step = step_ended
    while True:
        before = tracer.num_updates
        seed_all(order.trial.seed)
        ended = _ended(order, change.code)
        script_ended()
        if ended["ended"] != "done" or is_over:
            break
        if tracer.num_updates == before:
            ended = _failed("NoUpdate", NO_UPDATE)
            break
        tracer.begin_again()
    tracer.close()
    change.close()
    if ended["ended"] == "done":
        change.check_used()
    return ended, measured


class LeftAtOnce(SystemExit):
    """The script has called `os._exit`: its threads, and what it has put off, are not waited for."""


def _ended(order: Order, code: CodeType | None = None) -> dict[str, Any]:
    """Runs the script: how it ended."""
    failure, exit_code = None, None
    try:
        is_there = order.script.workdir in ("", order.script.folder)
        name = order.trial.workload if is_there else order.script.path
        run_script(order.script, order.arguments, code, name)
    except EndOfWatch:
        return {"ended": "done"}
    except Refused as refused:
        return _failed(type(refused.error).__name__, str(refused.error))
    except LeftAtOnce as end:
        return {**_left(order, end.code), "at_once": True}
    except SystemExit as end:
        exit_code = end.code
        if isinstance(exit_code, str):
            sys.stderr.write(f"{exit_code}\n")
    except BaseException as error:  # noqa: BLE001  the script may raise anything
        interrupts.ignore()
        _show(error)
        failure = raised_by(error, "script", order.path)
        told = failure.message
        has_copy = TrialFolder(Path(order.trial_folder)).work_folder.exists()
        if has_copy and isinstance(error, FileNotFoundError):
            told += f"; {IN_A_COPY}"
        number = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        failure = failure.model_copy(update={"message": told, "exit_code": number})
        interrupts.heed()
    # How it ended is known. Python waits for its threads, and an interrupt ends that.
    with suppress(KeyboardInterrupt, EndOfWatch):
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
    return _left(order, exit_code) if failure is None else _failed_by(failure)


def _show(error: BaseException) -> None:
    """As Python does, from the script's first frame on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace  # what is shown, whatever is given
    try:
        sys.excepthook(type(error), error, trace)
    except BaseException:  # noqa: BLE001  it is the script's
        sys.__excepthook__(type(error), error, trace)


def run_script(
    script: ScriptSpec,
    arguments: Sequence[str],
    code: CodeType | None = None,
    name: str | None = None,
) -> None:
    """As `python name arguments`, or `python -m module arguments` in the folder where it was asked for:
    what it raises is raised. `code`: in place of what is in the file; `name`: the file as it was typed. To
    the end of this process its main module stays that of the script which ran last: what it has put off
    until then finds its names, and Python closes the files that it left open."""
    # The script's collections are not to go through our modules; Python does go through its own at the end.
    gc.freeze()
    path = Path(script.path)
    spec, main = spec_from_file_location(script.module or "__main__", path), ModuleType("__main__")
    assert spec is not None
    names = {"__file__": str(path), "__loader__": spec.loader, "__cached__": None}
    main.__dict__.update(names, __annotations__={}, __builtins__=builtins)
    sys.modules["__main__"] = main
    sys.argv = [name or str(path), *arguments]
    asked = ["-m", script.module] if script.module else sys.argv[:1]
    sys.orig_argv = [sys.executable, *asked, *arguments]
    if not sys.flags.safe_path:
        sys.path.insert(0, script.folder if script.module else str(path.resolve().parent))
    if script.module:
        main.__spec__, main.__dict__["__cached__"] = spec, spec.cached
        main.__package__ = script.module.rpartition(".")[0]
        if main.__package__:
            import_module(main.__package__)
    own = code or compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    exec(own, main.__dict__)  # noqa: S102  what was asked for


def _left(order: Order, code: object) -> dict[str, Any]:
    """How a script ended that has left with an exit code; a text stands for 1, as in Python."""
    if code in (None, 0):
        return {"ended": "done"}
    number = code if isinstance(code, int) else 1
    told = f"the script ended with exit code {number}"
    output = TrialFolder(Path(order.trial_folder)).output_file
    return _failed_by(failure_without_error(SCRIPT_EXIT, told, number, output))


def _failed(kind: str, message: str) -> dict[str, Any]:
    """By no line of the script's."""
    return _failed_by(Failure(kind=kind, message=message, traceback=""))


def _failed_by(failure: Failure) -> dict[str, Any]:
    return {"ended": "failed", "failure": failure.model_dump()}


def raised_by(error: BaseException, field: str, script: Path | None = None) -> Failure:
    """With the innermost line of the user's own and the traceback of her lines. `field`: what raised it;
    `script`: its file, which is named where only libraries were at work."""
    setattr(error, FIELD, field)
    mistake = mistake_in(error, "" if script is None else str(script))
    assert mistake is not None
    return mistake


class Interrupts:
    """Signals of our starter, or of its terminal."""

    def __init__(self) -> None:
        self.have_come = False

    def heed(self) -> None:
        """From now on SIGINT raises KeyboardInterrupt in the script, even where a shell has this process
        ignore it; END, for scripts that go on all the same, what they do not catch."""
        kinds: dict[int, type[BaseException]] = {signal.SIGINT: KeyboardInterrupt, END: EndOfWatch}

        def interrupt(number: int, frame: FrameType | None) -> None:
            self.have_come = True
            raise kinds[number]

        for number in kinds:
            signal.signal(number, interrupt)

    def ignore(self) -> None:
        """What follows is ours."""
        for number in (signal.SIGINT, END):
            # Not SIG_IGN: Python complains of one that has come and is ignored by now.
            signal.signal(number, lambda number, frame: None)


interrupts = Interrupts()
"""Of this process."""


def seed_all(seed: int) -> None:
    """What scripts draw from, whether they seed it themselves or not."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    # It draws from a generator of its own, and so does what it runs on.
    on_import("keras", lambda keras: keras.utils.set_random_seed(seed))


def _start_ns() -> int:
    """When this process began, on the clock of the timeline."""
    return time.perf_counter_ns() - int(process_age_s() * 1e9)
