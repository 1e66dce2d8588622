"""A script run as Python would run it, in this process."""

import os
import random
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import spec_from_file_location
from pathlib import Path
from types import FrameType, TracebackType

import numpy as np
import torch

from trainlab.errors import SpecError
from trainlab.spec.script import ScriptSpec
from trainlab.watching.script_process import END
from trainlab.workloads.user_code import FIELD, mistake_in

_TRACING = (
    "hooks",
    "tracer",
    "timeline",
    "step_log",
    "script_curve",
    "own_metrics",
    "followed_model",
)
OURS = (
    *(f"trainlab.watching.{name}" for name in (*_TRACING, "watched_")),
    *("trainlab.record.", "trainlab.instruments."),
)
"""Modules that see and write while the script runs."""
WRAPPERS = "trainlab.watching.hooks"
OWN_FOLDER = Path(__file__).parent
"""Frames in there are no part of the script."""
LONGEST_TRACE = 20_000
DONE_S = 0.02
"""Until an interrupt that came amid our own work comes again."""


class EndOfWatch(BaseException):
    """Enough was seen: the script is ended from within a call of torch's. Scripts that catch Exception do
    not catch it."""


class Refused(BaseException):
    """What was asked for does not fit the script: it is ended, whatever it catches."""

    def __init__(self, error: SpecError) -> None:
        super().__init__(str(error))
        self.error = error


class ScriptEnds(BaseException):
    """The script has ended with an exit code other than 0."""

    def __init__(self, code: object) -> None:
        super().__init__(str(code))
        self.code = code


def seed_all(seed: int) -> None:
    """What scripts draw from, whether they seed it themselves or not."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


_kept: list[tuple[types.ModuleType, list[str], list[str]]] = []
"""The main module of the script that ran last, its arguments, and where it found modules."""


def run_script(
    script: ScriptSpec, arguments: Sequence[str], code: types.CodeType | None = None
) -> None:
    """As `python path arguments`, or `python -m module arguments` in the folder where it was asked for:
    what it raises is raised, and an exit code other than 0 is ScriptEnds. `code`: in place of what is in
    the file."""
    path = Path(script.path)
    main = types.ModuleType("__main__")
    main.__file__ = str(path)
    main.__dict__["__builtins__"] = __builtins__
    before, argv, places = sys.modules["__main__"], sys.argv, list(sys.path)
    sys.modules["__main__"] = main
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, script.folder if script.module else str(path.parent))
    try:
        if script.module:
            main.__spec__ = spec_from_file_location(script.module, path)
            main.__package__ = script.module.rpartition(".")[0]
            if main.__package__:
                import_module(main.__package__)
        own = code or compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        exec(own, main.__dict__)  # noqa: S102  what was asked for
    except SystemExit as end:
        if end.code not in (None, 0):
            raise ScriptEnds(end.code) from None
    finally:
        # The newest module stays alive: what it has registered to run at the end needs its names. Those of
        # earlier runs of the script go, with their data and the workers of their loaders.
        _kept[:] = [(main, sys.argv, list(sys.path))]
        sys.modules["__main__"], sys.argv = before, argv
        sys.path[:] = places


def join_threads() -> None:
    """Python ends when the script's threads have, but for those that are daemons."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()


@contextmanager
def leaving_by(leave: Callable[[int], None]) -> Iterator[None]:
    """Inside this block `os._exit` calls that first, with the exit code; what it raises is raised. Not in
    processes that the script forks, which end like that, nor in other threads."""
    really_leave, own = os._exit, os.getpid()

    def watched(status: int) -> None:
        if os.getpid() == own and threading.current_thread() is threading.main_thread():
            leave(status)
        really_leave(status)

    os._exit = watched  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = really_leave


def end_as_script() -> None:
    """To the end of this process, its main module is that of the script which ran last: Python then closes
    the files that it left open, and what it has put off until now finds its names."""
    for main, argv, places in _kept:
        sys.modules["__main__"], sys.argv, sys.path = main, argv, places


class Interrupts:
    """Signals of our starter, which only it sends. They come when what we do in between is done, which they
    would leave half done."""

    def __init__(self) -> None:
        self.have_come = False

    def heed(self) -> None:
        """From now on SIGINT raises KeyboardInterrupt in the script, even where a shell has this process
        ignore it; END, for scripts that go on all the same, what they do not catch."""
        kinds: dict[int, type[BaseException]] = {signal.SIGINT: KeyboardInterrupt, END: EndOfWatch}

        def interrupt(number: int, frame: FrameType | None) -> None:
            self.have_come = True
            if not _is_ours(frame):
                raise kinds[number]
            later = threading.Timer(DONE_S, os.kill, (os.getpid(), number))
            later.daemon = True
            later.start()

        for number in kinds:
            signal.signal(number, interrupt)

    def ignore(self) -> None:
        """What follows is ours."""
        for number in (signal.SIGINT, END):
            # Not SIG_IGN: Python complains of one that has come and is ignored by now.
            signal.signal(number, lambda number, frame: None)


def _is_ours(frame: FrameType | None) -> bool:
    """Whether something of ours is under way; a call of torch's that one of our wrappers passes on is the
    script's."""
    is_innermost = True
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(OURS) and (is_innermost or not module.startswith(WRAPPERS)):
            return True
        is_innermost, frame = False, frame.f_back
    return False


def raised_by(error: BaseException, script: Path | None = None) -> dict[str, str]:
    """Kind, message, the innermost line of the user's own and the traceback of her lines. `script`: its
    file, which is named where only libraries were at work."""
    setattr(error, FIELD, "script")
    mistake = mistake_in(error, "" if script is None else str(script))
    assert mistake is not None
    found = {"kind": mistake.kind, "message": mistake.message, "line": mistake.line}
    return found | {"trace": mistake.trace[-LONGEST_TRACE:]}


def trace_of(error: BaseException) -> TracebackType | None:
    """What Python would show of it without us: from the script's first frame on."""
    trace = error.__traceback__
    while trace is not None and OWN_FOLDER in Path(trace.tb_frame.f_code.co_filename).parents:
        trace = trace.tb_next
    return trace
