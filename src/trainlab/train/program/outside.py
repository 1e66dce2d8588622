"""What a model's own code uses from outside of it: global names and what its functions enclose."""

from collections.abc import Iterable, Iterator
from inspect import unwrap
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn

from trainlab.train.program.fingerprint import fingerprint

OF_LIBRARIES = ("torch.", "numpy.", "builtins", "functools", "trainlab.")


def outside_of(parts: Iterable[Any]) -> dict[str, Any]:
    """Fingerprints by name of what the functions of models and losses look up each time they run, and of
    what functions call that they call. Equal before and after a step that changed none of it."""
    found: dict[str, Any] = {}
    seen: set[FunctionType] = set()
    waiting = [function for part in parts for function in _functions_of(part)]
    while waiting:
        function = waiting.pop()
        if function in seen or _is_of_library(function):
            continue
        seen.add(function)
        for name, value in _looked_up(function):
            if isinstance(value, FunctionType | MethodType):
                waiting += _functions_of(value)
            elif not isinstance(value, ModuleType | type | nn.Module):
                found[f"{function.__module__}.{name}"] = _told(value)
    return found


def _told(value: Any) -> Any:
    """Of a tensor its version only: it may hold a whole data set."""
    if isinstance(value, Tensor):
        return id(value), 0 if value.is_inference() else value._version
    return fingerprint(value)


def _functions_of(part: Any) -> Iterator[FunctionType]:
    """Those that may run when it is called."""
    if isinstance(part, nn.Module):
        for class_ in {type(module) for module in part.modules()}:
            for base in class_.__mro__:
                yield from (one for one in vars(base).values() if isinstance(one, FunctionType))
    elif isinstance(part, MethodType):
        yield from _functions_of(part.__func__)
    elif isinstance(part, FunctionType):
        inner = unwrap(part)
        yield from {one for one in (part, inner) if isinstance(one, FunctionType)}


def _is_of_library(function: FunctionType) -> bool:
    module = function.__module__ or ""
    return module == "torch" or module.startswith(OF_LIBRARIES)


def _looked_up(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name in sorted(_names_in(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _names_in(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))
