"""What a step's Python can reach besides the numbers it is given: attributes, global names, what functions
enclose, defaults, classes, hooks. Told by fingerprints, which are equal where nothing has changed."""

import functools
import re
import sys
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
from torch import Tensor, nn

from trainlab.train.program.python.fingerprint import PLAIN, TORCH_OWN
from trainlab.train.program.unsuited import Unsuited

MOST = 20_000
"""Values that are looked at."""
MOST_BYTES = 1 << 20
HOOKS = tuple(name for name in sorted(TORCH_OWN) if name.endswith("_hooks"))
OF_LIBRARIES = ("torch", "numpy", "builtins", "trainlab", *sys.stdlib_module_names)
UNCHANGING = (*PLAIN, np.generic, np.dtype, np.ufunc, Enum, PurePath, re.Pattern, range, slice)
WRAPPED = (staticmethod, classmethod)


def outside_of(parts: Iterable[Any], *, strictly: bool = False) -> dict[str, Any]:
    """Fingerprints by name of what the functions of models, losses and the like can reach. `strictly`:
    Unsuited for what cannot be told, an iterator, say, or a thing of an unknown kind."""
    reach = _Reach(strictly=strictly)
    for part in parts:
        reach.visit(type(part).__name__, part)
    return reach.found


class _Reach:
    def __init__(self, *, strictly: bool) -> None:
        self._strictly = strictly
        self.found: dict[str, Any] = {}
        self._seen: dict[int, Any] = {}

    def visit(self, name: str, value: Any) -> None:
        """Tells of a value, and of what can be reached from it."""
        if id(value) in self._seen:
            return
        if len(self._seen) > MOST:
            self._cannot_tell(name, value)
            return
        if isinstance(value, UNCHANGING):
            self.found[name] = (type(value).__name__, repr(value))
            return
        self._seen[id(value)] = value  # kept, so that nothing else gets its place
        inside = self._inside(name, value)
        if inside is not None:
            for inner, one in inside.items():
                self.visit(f"{name}.{inner}", one)

    def _inside(self, name: str, value: Any) -> dict[str, Any] | None:
        """What it consists of, by name; None where it has been told of already."""
        if isinstance(value, Tensor):
            self.found[name] = id(value), 0 if value.is_inference() else value._version
            return None
        if isinstance(value, np.ndarray) and value.nbytes < MOST_BYTES and value.dtype != object:
            self.found[name] = id(value), value.tobytes()
            return None
        if type(value) in (list, tuple, dict, OrderedDict, set, frozenset, MappingProxyType):
            return self._of_container(name, value)
        if isinstance(value, nn.Module):
            return _of_module(value)
        if isinstance(value, type | ModuleType):
            return _of_class(value) if isinstance(value, type) else {}
        if (called := _of_callable(value)) is not None:
            return called
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict) and type(value).__module__.startswith("trainlab."):
            return own
        is_known = isinstance(own, dict) and not _is_of_library(type(value))
        if is_known and not hasattr(type(value), "__next__") and not _has_slots(type(value)):
            return {"class": type(value), **own}  # type: ignore[dict-item]
        self._cannot_tell(name, value)
        return None

    def _of_container(self, name: str, value: Any) -> dict[str, Any]:
        self.found[name] = id(value), len(value)
        if isinstance(value, dict | MappingProxyType):
            return {str(key): one for key, one in value.items()}
        return {str(number): one for number, one in enumerate(value)}

    def _cannot_tell(self, name: str, value: Any) -> None:
        if self._strictly:
            raise Unsuited("not_plain", what=f"{name}: {type(value).__name__}")
        self.found[name] = id(value)


def _of_module(module: nn.Module) -> dict[str, Any]:
    own = {name: one for name, one in vars(module).items() if name not in TORCH_OWN}
    hooks = {name: one for name in HOOKS if (one := getattr(module, name, None))}
    children = dict(module.named_children())
    return {"class": type(module), **own, **hooks, **children}


def _of_class(class_: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in class_.__mro__:
        if not _is_of_library(base):
            found |= {
                f"{base.__qualname__}.{name}": one
                for name, one in vars(base).items()
                if not name.startswith("__") or isinstance(one, FunctionType)
            }
    return found


def _of_callable(value: Any) -> dict[str, Any] | None:
    """None where it is nothing that is called."""
    if isinstance(value, FunctionType):
        return {} if _is_of_library(value) else _of_function(value)
    if isinstance(value, MethodType):
        return {"function": value.__func__, "self": value.__self__}
    if isinstance(value, functools.partial):
        return {"function": value.func, "arguments": value.args, "options": value.keywords}
    if isinstance(value, property):
        return {"get": value.fget}
    if isinstance(value, WRAPPED):
        return {"function": value.__func__}
    if isinstance(value, BuiltinFunctionType):
        owner = value.__self__
        return {} if owner is None or isinstance(owner, ModuleType | type) else {"self": owner}
    is_of_torch = _is_of_library(type(value)) and type(value).__module__ == "torch._ops"
    return {} if is_of_torch else None


def _of_function(function: FunctionType) -> dict[str, Any]:
    defaults = enumerate(function.__defaults__ or ())
    found: dict[str, Any] = {f"default {place}": value for place, value in defaults}
    options = (function.__kwdefaults__ or {}) | vars(function)
    found |= {f"option {name}": value for name, value in options.items()}
    names = _names_in(function.__code__)
    for name in sorted(names & set(function.__globals__)):
        value = function.__globals__[name]
        found[name] = value
        if isinstance(value, ModuleType) and not _is_of_library(value):
            used = {one: vars(value)[one] for one in sorted(names & set(vars(value)))}
            found |= {f"{name}.{one}": inner for one, inner in used.items()}
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        with suppress(ValueError):  # not filled yet
            found[name] = cell.cell_contents
    return found


def _has_slots(class_: type) -> bool:
    return any("__slots__" in vars(base) and vars(base)["__slots__"] for base in class_.__mro__)


def _is_of_library(one: Any) -> bool:
    module = getattr(one, "__module__", None) or getattr(one, "__name__", "")
    return str(module).split(".")[0] in OF_LIBRARIES


def _names_in(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))
