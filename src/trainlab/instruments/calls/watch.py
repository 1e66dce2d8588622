"""Sees every call of a step as the user wrote it: modules, functions, custom autograd functions.

A module of torch.nn that calls no other module is one call, whatever it does inside. Any other
module is a container: what it calls itself are calls of their own, named under its path. A module that
is compiled, scripted or traced is one call, and so is a compiled function that a module holds: while it
runs, nothing of ours is in torch's way, so that the compiler compiles the user's code and not our hooks.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.autograd.function import _SingleLevelFunction
from torch.nn.modules import module as torch_modules
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode, _get_current_function_mode
from torch.utils.hooks import RemovableHandle

from trainlab.instruments.calls.listener import CallListener, EndListener, Role, WatchedCall
from trainlab.train.opaque import compiled_functions, is_compiled, is_opaque, opaque_modules

TENSOR_PROPERTIES = {"T", "mT", "H", "mH", "real", "imag"}
"""Properties that are operations; `.shape` and the like are not."""


@dataclass(slots=True)
class _Frame:
    """A module that is being called."""

    path: str
    arguments: tuple[Any, ...]
    """Keeping them costs no memory: torch itself holds them until the module returns."""
    is_call: bool
    """False for a container, and inside another call."""
    call: WatchedCall | None = None
    """None where the listener does not want it."""
    ends: EndListener | None = None


class CallWatch:
    """Reports the calls of each step to a listener, between `start_watching` and `stop_watching`."""

    def __init__(self, model: nn.Module, listener: CallListener) -> None:
        self._listener = listener
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._numbers: Counter[str] = Counter()
        self._frames: list[_Frame] = []
        self._is_inside_call = self._goes_on = False
        self._sees_functions, self._is_installed = True, False
        self._mode, self._mode_is_on = _FunctionMode(self._function_called), False
        self._hooks: list[RemovableHandle] = []
        self._compiled = [module for _, module in opaque_modules(model) if is_compiled(module)]
        self._functions = [(module, name) for _, module, name in compiled_functions(model)]
        self._own_calls: list[tuple[nn.Module, Any]] = []
        """Compiled modules that are called through us, each with what it had in that place."""
        self._own_functions: list[tuple[nn.Module, str, Any]] = []
        """Compiled functions that are called through us, each with what its module had in that place."""
        self._warnings: Any = None

    def install(self) -> None:
        """Before the steps, as it takes too long inside one: patches custom autograd functions."""
        if self._sees_functions and not self._is_installed:
            # Function modes do not see custom autograd functions.
            setattr(_SingleLevelFunction, "apply", classmethod(self._apply_called))  # noqa: B010
            self._is_installed = True

    def uninstall(self) -> None:
        """After the steps, however they ended: nothing of ours stays behind in torch."""
        self.stop_watching()
        self._unpatch()

    def _unpatch(self) -> None:
        if self._is_installed:
            delattr(_SingleLevelFunction, "apply")
            self._is_installed = False

    def watch_modules_only(self) -> None:
        """Cheaper: from the next step on functions are not seen, and every module is a container."""
        self.uninstall()
        self._sees_functions = False

    def start_watching(self) -> None:
        """From here on every call is seen, of whatever module; calls are numbered from 1 again."""
        self._numbers.clear()
        self._frames.clear()
        self._is_inside_call = self._goes_on = False
        self._watch()

    def enter(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """The call of a module has begun before it could be seen; its end will be."""
        self._module_begins(module, arguments)

    def go_on_watching(self) -> None:
        """After a stop within an update of several passes: calls go on being numbered. Outside of modules,
        what runs without gradients is not seen: optimizers, and what clips or averages."""
        self._goes_on = True
        if not self._hooks:
            self._watch()

    def _watch(self) -> None:
        # Hooks common to all modules: a hook on a module itself would switch off torch's fast paths.
        self._add_hooks()
        if self._compiled:
            # torch warns of hooks common to all modules beside a compiled one; ours step aside.
            self._warnings = warnings.catch_warnings()
            self._warnings.__enter__()
            warnings.filterwarnings("ignore", r".*there are global hooks")
        for module in self._compiled:
            self._own_calls.append((module, vars(module).get("_compiled_call_impl")))
            vars(module)["_compiled_call_impl"] = self._called_through_us(module)
        for module, name in self._functions:
            self._own_functions.append((module, name, vars(module).get(name)))
            vars(module)[name] = self._run_through_us(name, getattr(module, name))
        self._switch_mode(on=True)

    def stop_watching(self) -> None:
        """No call is seen any more."""
        self._switch_mode(on=False)
        self._remove_hooks()
        for module, before in self._own_calls:
            vars(module)["_compiled_call_impl"] = before
        if self._own_calls:
            self._warnings.__exit__(None, None, None)
        self._own_calls = []
        for module, name, before in self._own_functions:
            if before is None:
                del vars(module)[name]
            else:
                vars(module)[name] = before
        self._own_functions = []

    def _add_hooks(self) -> None:
        self._hooks = [
            register_module_forward_pre_hook(self._module_begins),
            register_module_forward_hook(self._module_ends, with_kwargs=True, always_call=True),
        ]

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
            # torch leaves this behind, and then takes every module for a hooked one.
            torch_modules._global_forward_hooks_with_kwargs.pop(hook.id, None)
        self._hooks = []

    def _called_through_us(self, module: nn.Module) -> Callable[..., Any]:
        """Stands in for the call of a compiled module, which would compile what it finds in its way."""
        compiled = vars(module).get("_compiled_call_impl") or module._call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._hooks:
                return compiled(*args, **kwargs)
            self._module_begins(module, args)
            ended: tuple[Any, ...] = (None,)
            try:
                with self._out_of_the_way():
                    result = compiled(*args, **kwargs)
                ended = (kwargs, result)
                return result
            finally:
                self._module_ends(module, args, *ended)

        return call

    def _run_through_us(self, name: str, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Stands in for a compiled function: one call, whatever it does inside."""

        def unwatched(*args: Any, **kwargs: Any) -> Any:
            with self._out_of_the_way():
                return compiled(*args, **kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._hooks:
                return compiled(*args, **kwargs)
            if self._is_inside_call:
                return unwatched(*args, **kwargs)
            return self._run(name, unwatched, args, kwargs)

        return call

    @contextmanager
    def _out_of_the_way(self) -> Iterator[None]:
        """Inside, torch is as if nobody watched."""
        mode_was_on, was_installed = self._mode_is_on, self._is_installed
        self._switch_mode(on=False)
        self._remove_hooks()
        self._unpatch()
        try:
            yield
        finally:
            self._add_hooks()
            if was_installed:
                self.install()
            self._switch_mode(on=mode_was_on)

    def _function_called(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Stands in for every torch function."""
        if self._is_inside_call or self._is_beside_passes():
            return function(*args, **kwargs)
        if name := _name_of(function):
            return self._run(name, function, args, kwargs)
        value = function(*args, **kwargs)
        self._listener.property_read(args, value)
        return value

    def _is_beside_passes(self) -> bool:
        return self._goes_on and not self._frames and not torch.is_grad_enabled()

    def _apply_called(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Stands in for the `apply` of every custom autograd function."""
        apply = super(_SingleLevelFunction, cls).apply  # type: ignore[misc]
        if self._is_inside_call or not self._hooks:
            return apply(*args, **kwargs)
        # Whether it is wanted or not, the functions it uses are no calls of the user's.
        self._is_inside_call = True
        self._switch_mode(on=False)
        try:
            return self._run(cls.__name__, apply, args, kwargs)
        finally:
            self._is_inside_call = False
            self._switch_mode(on=True)

    def _run(
        self, type_name: str, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Runs a function as a call, if the listener wants it."""
        name = self._below_path(type_name)
        if not self._listener.wants(name, (type_name,)):
            return function(*args, **kwargs)
        call = self._new_call(name, (type_name,), None, "call")
        self._is_inside_call = True
        try:
            ends = self._listener.call_begins(call, (args, kwargs))
            result = function(*args, **kwargs)
            if ends is not None:
                # Writing into a part of a tensor returns nothing, but it is work.
                self._numbers[name] += ends(args[0] if type_name == "setitem" else result, ())
            return result
        finally:
            self._is_inside_call = False

    def _module_begins(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling():
            return
        if self._frames and self._frames[-1].is_call:
            self._make_container(self._frames[-1])
        class_: type = type(module)
        path = self._paths.get(id(module))
        if path is None:
            path = self._below_path(class_.__name__)
        is_whole = _is_torch_module(class_) or is_opaque(module)
        is_call = self._sees_functions and not self._is_inside_call and is_whole
        role: Role = "call" if is_call else "inner" if self._is_inside_call else "container"
        name, types, call = path or class_.__name__, _types_of_class(class_), None
        if self._listener.wants(name, types):
            call = self._new_call(name, types, module, role)
        frame = _Frame(path, args, is_call, call)
        self._frames.append(frame)
        if is_call:
            # Without the mode: it would switch off torch's fast paths.
            self._is_inside_call = True
            self._switch_mode(on=False)
        if call is not None:
            frame.ends = self._listener.call_begins(call, args)

    def _module_ends(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        """`rest` is keyword arguments and result; the result alone where the module raised."""
        if torch.compiler.is_compiling():
            return
        frame = self._frames.pop()
        try:
            if frame.call is not None and frame.ends is not None and len(rest) == 2:
                self._numbers[frame.call.name] += frame.ends(rest[1], rest[0])
        finally:
            if frame.is_call:
                self._is_inside_call = False
                self._switch_mode(on=True)

    def _make_container(self, frame: _Frame) -> None:
        """The module of torch.nn that was taken for one call calls another module."""
        frame.is_call = self._is_inside_call = False
        if frame.call is not None:
            frame.call.role = "container"
            self._listener.becomes_container(frame.call, frame.arguments)
        self._switch_mode(on=True)

    def _new_call(
        self, name: str, types: tuple[str, ...], module: nn.Module | None, role: Role
    ) -> WatchedCall:
        container = self._frames[-1].call if self._frames else None
        return WatchedCall(name, self._numbers[name] + 1, types, module, role, container)

    def _switch_mode(self, on: bool) -> None:
        # Left only where it is on top of the stack: a mode of the user's must stay where it is.
        if on and not self._mode_is_on and self._hooks and self._sees_functions:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
        elif not on and self._mode_is_on and _get_current_function_mode() is self._mode:
            self._mode.__exit__(None, None, None)
        else:
            return
        self._mode_is_on = on

    def _below_path(self, name: str) -> str:
        """The name below the path of the module being called."""
        path = self._frames[-1].path if self._frames else ""
        return f"{path}.{name}" if path else name


class _FunctionMode(TorchFunctionMode):
    def __init__(self, function_called: Callable[..., Any]) -> None:
        super().__init__()
        self._function_called = function_called

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if torch.compiler.is_compiling():  # a function that no module holds: nothing of ours in it
            return func(*args, **kwargs or {})
        return self._function_called(func, args, kwargs or {})


def _name_of(function: Callable[..., Any]) -> str:
    """As a user would write it: relu, getitem, T; empty for properties that are no operation."""
    name: str = getattr(function, "__name__", type(function).__name__)
    if name in ("__get__", "__set__", "__delete__"):
        attribute: str = getattr(getattr(function, "__self__", None), "__name__", "")
        return attribute if name == "__get__" and attribute in TENSOR_PROPERTIES else ""
    return name[2:-2] if name.startswith("__") and name.endswith("__") else name


def types_of(module: nn.Module) -> tuple[str, ...]:
    """The names of a module's class and of those it derives from, torch's base apart."""
    class_: type = type(module)  # mypy takes a `type[nn.Module]` for one that cannot be cached
    return _types_of_class(class_)


@lru_cache
def _types_of_class(class_: type) -> tuple[str, ...]:
    return tuple(c.__name__ for c in class_.__mro__ if c not in (nn.Module, object))


@lru_cache
def _is_torch_module(class_: type) -> bool:
    return f"{class_.__module__}.".startswith(("torch.nn.", "torch.ao.nn."))
