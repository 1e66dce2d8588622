"""Hooks of models: the outermost module that runs, and nothing of those within it."""

import threading
import warnings
import weakref
from collections import OrderedDict
from contextlib import ExitStack, suppress
from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules import module as modules

from trainlab.watching.seeing.calls.listener import Listener

_is_compiling = torch.compiler.is_compiling
OF_GLOBAL_HOOKS = r"Using `torch\.compile\(module\)` when there are global hooks"
OURS = -1
"""The key of our hook among a module's own: torch counts from 0."""


class ModelHooks:
    """A global hook sees every module called; it is taken out while the outermost runs, so that the others
    run as they would, and torch compiles nothing of ours into them."""

    def __init__(self, listener: Listener, thread: int, installed: ExitStack) -> None:
        """Until `installed` is closed, what this thread calls is seen."""
        self._are_seen = True
        self._running: list[OrderedDict[int, Any]] = []
        """The outermost module's own hooks, while it runs."""
        self._hooks = hooks = modules._global_forward_pre_hooks
        begins, ends = listener.forward_begins, listener.forward_ends
        get_ident, is_model = threading.get_ident, _Models()
        running, end = self._running, self._end

        def before(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            if _is_compiling() or get_ident() != thread or not is_model(module):
                return
            hooks.pop(key, None)
            # While it runs only: a copy of the model, or a file with it, holds nothing of ours.
            own = cast("OrderedDict[int, Any]", module._forward_hooks)
            running.append(own)
            begins(module, arguments)  # in which a copy of the model may be made
            own[OURS] = after
            own.move_to_end(OURS, last=False)  # before hooks that were made meanwhile

        def after(module: nn.Module, arguments: object, output: object) -> None:
            end()
            ends(module)

        handle = modules.register_module_forward_pre_hook(before)
        self._key = key = handle.id
        self._begins = before
        installed.callback(handle.remove)
        # Ours is not there when a compiled model is called, and the script prints what it would.
        warnings.filterwarnings("ignore", message=OF_GLOBAL_HOOKS)
        installed.callback(_take_out, warnings.filters[0])

    def see(self, are_seen: bool) -> None:
        """From here on models are seen, or run as without us."""
        self._are_seen = are_seen
        if not are_seen:
            self._hooks.pop(self._key, None)
        elif not self._running:
            self._hooks[self._key] = self._begins

    def _end(self) -> None:
        self._running.pop().pop(OURS, None)
        self.see(self._are_seen)

    def recover(self) -> None:
        """After a model has raised, and the script goes on: its call has ended."""
        while self._running:
            self._end()

    @property
    def is_inside(self) -> bool:
        """Whether the outermost module runs, or has raised."""
        return bool(self._running)


def _take_out(of_warnings: object) -> None:
    with suppress(ValueError):  # the script may have set its own
        warnings.filters.remove(of_warnings)  # type: ignore[attr-defined]


class _Models:
    """Whether a module is a model, or a part of one, rather than a loss: it has weights."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[bool, object]] = {}

    def __call__(self, module: nn.Module) -> bool:
        key = id(module)
        known = self._known.get(key)
        if known is None:
            has_weights = next(module.parameters(), None) is not None
            gone = weakref.ref(module, lambda _: self._known.pop(key, None))
            known = self._known[key] = has_weights, gone
        return known[0]
