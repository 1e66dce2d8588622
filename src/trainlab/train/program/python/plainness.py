"""Whether the Python of a step is plain: its functions use what they are given, call torch, and change
nothing else. Then a step run without it is the same step, however often.

Found by what ran, not by where state might lie: every function that was called while a step was watched,
hooks, properties and helpers among them, is looked at, instruction by instruction, and so is every function
in C that it called. What is not known to be harmless is taken to be harmful.
"""

import builtins
import dis
import gc
import inspect
import math
import operator
import random
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainlab.train.program.python.outside import outside_of
from trainlab.train.program.unsuited import Unsuited

OWN = tuple(f"{folder}/" for folder in (Path(torch.__file__).parent, Path(__file__).parents[3]))
"""Where the code of torch and of trainlab lies."""
LIBRARY = f"{Path(dis.__file__).parent}/"
"""Where Python's own does."""
CHANGES = frozenset(
    {
        *("STORE_GLOBAL", "STORE_NAME", "STORE_ATTR", "STORE_SUBSCR"),
        *("DELETE_GLOBAL", "DELETE_NAME", "DELETE_ATTR", "DELETE_SUBSCR"),
    }
)
"""Instructions that change something besides a function's own variables."""
HARMLESS = frozenset(
    getattr(builtins, name)
    for name in (
        *("abs", "all", "any", "callable", "divmod", "format", "getattr", "hasattr", "isinstance"),
        *("issubclass", "len", "max", "min", "pow", "repr", "round", "sorted", "sum"),
    )
) | {tuple.__new__}  # by which named tuples are made
READS = frozenset(
    {
        *("__array__", "__dlpack__", "data_ptr", "item", "numpy", "storage", "tensor_split"),
        *("tolist", "untyped_storage"),
    }
)
"""Functions and methods of tensors that give their numbers to Python, or to C++."""
GIVEN = frozenset(
    {
        *("LOAD_ATTR", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST", "LOAD_METHOD"),
        *("FOR_ITER", "UNPACK_SEQUENCE", "UNPACK_EX", "BINARY_SUBSCR"),
    }
)
"""Instructions whose result something else may hold as well."""
OF_A_LIST = frozenset({"append", "extend", "insert", "pop", "reverse"})
"""Allowed for a list that the step made itself."""
CALLS_A_MODULE = nn.Module._call_impl.__code__
GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
UNCHANGING = (str, bytes, int, float, complex, tuple, range, frozenset)


class PlainPython:
    """Watches what runs in a block, and changes nothing of it."""

    def __init__(self, parts: Sequence[Any]) -> None:
        """`parts`: the model, the loss, and what else the step calls."""
        self._parts = parts
        self._before: dict[str, Any] = {}
        """What they could reach."""
        known = [one for part in parts if isinstance(part, nn.Module) for one in part.modules()]
        self._modules = {id(one) for one in known}
        self._codes: dict[CodeType, None] = {}
        """Of the functions that are neither torch's nor ours, nor called by these from elsewhere."""
        self._harmful: str | None = None
        self._lists: set[int] = set()
        """Those that were there before."""
        self._profile: Any = None
        self._collects = False
        if any(_acts_when_trained(one) for one in known):
            self._harmful = "train"

    def __enter__(self) -> "PlainPython":
        try:
            self._before = outside_of(self._parts, strictly=True)
        except Unsuited as unsuited:
            self._harmful = self._harmful or str(unsuited.values["what"])
        self._lists = {id(one) for one in gc.get_objects() if type(one) is list}
        self._profile = sys.getprofile()
        # What is collected meanwhile has functions that run then, which are nobody's of this step.
        self._collects = gc.isenabled()
        gc.disable()
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._profile)
        if self._collects:
            gc.enable()
        if self._harmful is None and outside_of(self._parts) != self._before:
            self._harmful = "something that it reaches has changed"
        self._before, self._lists = {}, set()

    def _see(self, frame: FrameType, event: str, called: Any) -> None:
        code = frame.f_code
        if event == "call":
            if code is CALLS_A_MODULE and id(frame.f_locals["self"]) not in self._modules:
                self._harmful = self._harmful or type(frame.f_locals["self"]).__name__
            if code not in self._codes and not self._is_trusted(frame):
                self._codes[code] = None
                if _uses_generator(frame):
                    self._harmful = self._harmful or f"{code.co_name}: Generator"
        elif (event == "c_call" and code in self._codes) and not self._is_harmless(called):
            self._harmful = self._harmful or f"{code.co_name}: {_name_of(called)}"

    @property
    def harmful(self) -> str | None:
        """The first that was not plain, by the function and what it does; None: all was."""
        return self._harmful or next(filter(None, map(_change_in, self._codes)), None)

    def _is_trusted(self, frame: FrameType | None) -> bool:
        frame = _importing(frame)
        # What torch itself uses of Python's library; its modules call the user's, which are elsewhere.
        while frame is not None and _is_of_python(frame.f_code):
            frame = frame.f_back
        return frame is None or frame.f_code.co_filename.startswith(OWN)

    def _is_harmless(self, called: Any) -> bool:
        owner, name = getattr(called, "__self__", None), getattr(called, "__name__", "")
        if name in READS:
            return False
        if isinstance(owner, Tensor):
            return True
        if isinstance(owner, list) and name in OF_A_LIST:
            return id(owner) not in self._lists
        if isinstance(owner, dict):
            return name in ("copy", "get", "items", "keys", "values")
        if isinstance(owner, UNCHANGING) or called in HARMLESS:
            return True
        if isinstance(owner, ModuleType):
            return owner in (math, operator) or owner.__name__.startswith("torch")
        return _is_of_torch(called) or _is_of_torch(owner) or _is_of_torch(type(owner))


def _uses_generator(frame: FrameType) -> bool:
    """Whether a function may draw from random numbers that are nobody's but its own."""
    code = frame.f_code
    enclosed = [frame.f_locals.get(name) for name in code.co_freevars]
    named = [frame.f_globals.get(name) for name in code.co_names]
    return any(isinstance(one, GENERATORS) for one in (*enclosed, *named))


def _acts_when_trained(module: nn.Module) -> bool:
    """Whether being put into training mode or out of it may change more than the mode."""
    own = [getattr(module, name) for name in ("train", "eval")]
    return [getattr(one, "__func__", None) for one in own] != [nn.Module.train, nn.Module.eval]


def _name_of(called: Any) -> str:
    name: str = getattr(called, "__qualname__", type(called).__name__)
    return name


def _is_of_torch(one: Any) -> bool:
    module = getattr(one, "__module__", None)
    return isinstance(module, str) and (module == "torch" or module.startswith("torch."))


def _is_of_python(code: CodeType) -> bool:
    name = code.co_filename
    return name.startswith("<frozen ") or (
        name.startswith(LIBRARY) and "/site-packages/" not in name
    )


def _importing(frame: FrameType | None) -> FrameType | None:
    """Who imports what this is part of; itself where nothing is being imported on torch's or our behalf."""
    found, above = frame, frame
    while above is not None and not above.f_code.co_filename.startswith(OWN):
        if above.f_code.co_filename.startswith("<frozen importlib"):
            found = above.f_back
        above = above.f_back
    return found


def _change_in(code: CodeType) -> str | None:
    instructions = list(dis.get_instructions(code))
    shared = {*inspect.getargs(code).args}
    shared |= {
        one.argval
        for before, one in pairwise(instructions)
        if one.opname == "STORE_FAST" and before.opname in GIVEN
    }
    for one, after in pairwise(instructions):
        is_enclosed = one.opname == "STORE_DEREF" and one.argval in code.co_freevars
        if one.opname in CHANGES or is_enclosed:
            return f"{code.co_name}: {one.opname.split('_')[0].lower()} {one.argrepr}".strip()
        # In place: only what the function itself has computed is its own.
        is_own = after.opname == "STORE_FAST" and after.argval not in shared
        if one.opname == "BINARY_OP" and one.argrepr.endswith("=") and not is_own:
            return f"{code.co_name}: {after.argval} {one.argrepr}"
    return None
