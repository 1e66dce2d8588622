"""A script run as Python would run it, in this process."""

import random
import sys
import types
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from trainlab.errors import SpecError


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


def run_script(path: Path, arguments: Sequence[str], code: types.CodeType | None = None) -> None:
    """As `python path arguments`: what it raises is raised, and an exit code other than 0 is ScriptEnds.
    `code`: in place of what is in the file."""
    main = types.ModuleType("__main__")
    main.__file__ = str(path)
    main.__dict__["__builtins__"] = __builtins__
    before, argv, places = sys.modules["__main__"], sys.argv, list(sys.path)
    sys.modules["__main__"] = main
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.parent))
    try:
        exec(code or compiled(path), main.__dict__)  # noqa: S102  what was asked for
    except SystemExit as end:
        if end.code not in (None, 0):
            raise ScriptEnds(end.code) from None
    finally:
        # The newest module stays alive: what it has registered to run at the end needs its names. Those of
        # earlier runs of the script go, with their data and the workers of their loaders.
        _kept[:] = [main]
        sys.modules["__main__"], sys.argv = before, argv
        sys.path[:] = places


_kept: list[types.ModuleType] = []


def compiled(path: Path) -> types.CodeType:
    """The script's code."""
    code: types.CodeType = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    return code
