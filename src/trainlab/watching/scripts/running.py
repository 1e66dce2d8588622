"""A script run as Python would run it, in this process."""

import os
import random
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import spec_from_file_location
from pathlib import Path

import numpy as np
import torch

from trainlab.errors import SpecError
from trainlab.spec.script import ScriptSpec


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
        exec(code or compiled(path), main.__dict__)  # noqa: S102  what was asked for
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
    main = threading.main_thread()
    for thread in threading.enumerate():
        if thread is not main and not thread.daemon:
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


_kept: list[tuple[types.ModuleType, list[str], list[str]]] = []


def compiled(path: Path) -> types.CodeType:
    """The script's code."""
    code: types.CodeType = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    return code
