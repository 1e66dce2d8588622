"""Hooks: torch's calls in this process, told to whoever watches. Nothing of the user's is touched for
longer than a call."""

import sys
import threading
import warnings
from collections import OrderedDict
from contextlib import ExitStack, suppress
from functools import wraps
from typing import Any, ClassVar, cast

import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from trainlab.errors import SpecError
from trainlab.instruments.calls import Patches
from trainlab.watching.timeline import OTHER, PREPARE, TRANSFER, ZERO_GRAD, Timeline

_is_compiling = torch.compiler.is_compiling
"""Asked first everywhere: what torch compiles depends on nothing of ours that changes."""
OF_LOADER = "_trainlab_loader"
"""What an iterator knows of its loader, which may be gone before it is."""
LIGHT, COUNTS, WHOLE = range(3)
"""How much is told: batches and updates; backward passes, too; all calls."""
OURS = -1
"""The key of our hook among a module's own: torch counts from 0."""
OF_GLOBAL_HOOKS = r"Using `torch\.compile\(module\)` when there are global hooks"


class Hooks:
    """Installed once per process, for the thread that made them; removed on `close`."""

    _installed_now: ClassVar[bool] = False

    def __init__(self, listener: Any, timeline: Timeline) -> None:
        """`listener`: the tracer. Calls nest: a closure's passes lie within the optimizer's step."""
        self.check_none()
        Hooks._installed_now = True
        self._listener, self._thread = listener, threading.get_ident()
        self.level = WHOLE
        self.updating: list[int] = []
        """The optimizers whose update is under way, by their identity, the outermost first."""
        self._is_in_backward = False
        self._patches, self._installed = Patches(), ExitStack()
        self._installed.callback(self._patches.close)
        self.models = _ModelHooks(listener, self._thread, self._installed)
        self._see_tests()
        self._see_optimizers()
        self._see_backward()
        self._see_gradients()
        self._see_data()
        for owner in (Optimizer, nn.Module):
            self._see_call(owner, "zero_grad", timeline, ZERO_GRAD, OTHER)
        if torch.cuda.is_available():
            for name in ("to", "cuda"):
                self._see_call(torch.Tensor, name, timeline, TRANSFER, PREPARE)

    @classmethod
    def check_none(cls) -> None:
        """SpecError where this process is watched already."""
        if cls._installed_now:
            rule = "this process is watched already, and one training is watched at a time"
            raise SpecError([f"trainlab.watch: {rule}; leave the other block first"])

    def close(self) -> None:
        """Nothing is seen any more."""
        self.models.recover()
        self._installed.close()
        Hooks._installed_now = False

    def see(self, level: int) -> None:
        """From here on so much is told. Below WHOLE no model has a hook: it runs as without us."""
        self.level = level
        self.models.see(level == WHOLE)

    def end_raised_updates(self, optimizer: int = 0) -> None:
        """No hook tells that an update has raised: what follows shows it, being called from elsewhere.
        `optimizer`: the one whose update begins now."""
        updating = self.updating
        if updating and _num_running(updating[0]) < 1 + (updating[0] == optimizer):
            updating.clear()
            self._listener.update_raised()

    def _see_call(self, owner: Any, name: str, timeline: Timeline, part: int, then: int) -> None:
        """A method of torch's, where all is seen; what is on a GPU already is not brought there."""
        original, is_transfer = getattr(owner, name), part == TRANSFER
        thread, get_ident = self._thread, threading.get_ident

        @wraps(original)
        def watched(one: Any, *arguments: Any, **options: Any) -> Any:
            if _is_compiling() or self.level < WHOLE or get_ident() != thread:
                return original(one, *arguments, **options)
            if is_transfer and one.is_cuda:
                return original(one, *arguments, **options)
            timeline.begin(part)
            try:
                return original(one, *arguments, **options)
            finally:
                timeline.end(then)

        self._patches.put(owner, name, watched)

    def _see_tests(self) -> None:
        thread, get_ident = self._thread, threading.get_ident
        evaluate, test_begins = nn.Module.eval, self._listener.test_begins

        @wraps(evaluate)
        def watched_eval(module: nn.Module) -> nn.Module:
            if not _is_compiling() and self.level and get_ident() == thread:
                test_begins()
            return evaluate(module)

        self._patches.put(nn.Module, "eval", watched_eval)

    def _see_optimizers(self) -> None:
        make, listener, updating = Optimizer.__init__, self._listener, self.updating
        thread, get_ident = self._thread, threading.get_ident

        @wraps(make)
        def watched_make(optimizer: Optimizer, *arguments: Any, **options: Any) -> None:
            make(optimizer, *arguments, **options)
            if get_ident() == thread:
                listener.has_optimizer = True

        def before(optimizer: Optimizer, arguments: object, options: object) -> None:
            if _is_compiling() or get_ident() != thread:
                return
            key = id(optimizer)
            self.end_raised_updates(key)
            updating.append(key)
            # A class of one's own may call the `step` of torch's, and torch has hooked both.
            if updating.count(key) == 1:
                listener.update_begins(optimizer)

        def after(optimizer: Optimizer, arguments: object, options: object) -> None:
            if _is_compiling() or get_ident() != thread:
                return
            key = id(optimizer)
            while key in updating and updating.pop() != key:
                pass
            if key not in updating:
                listener.update_ends(optimizer)

        self._patches.put(Optimizer, "__init__", watched_make)
        self._installed.callback(register_optimizer_step_pre_hook(before).remove)
        self._installed.callback(register_optimizer_step_post_hook(after).remove)

    def _see_backward(self) -> None:
        begins, ends = self._listener.backward_begins, self._listener.backward_ends
        thread, get_ident = self._thread, threading.get_ident
        run = torch.autograd.backward

        @wraps(run)
        def watched(tensors: Any, *arguments: Any, **options: Any) -> Any:
            if _is_compiling() or not self.level or get_ident() != thread:
                return run(tensors, *arguments, **options)
            # Made by another one, as reentrant checkpoints do: part of that.
            if self._is_in_backward:
                return run(tensors, *arguments, **options)
            begins(tensors)
            self._is_in_backward = True
            try:
                return run(tensors, *arguments, **options)
            finally:
                self._is_in_backward = False
                ends()

        self._patches.put(torch.autograd, "backward", watched)

    def _see_gradients(self) -> None:
        listener, thread, get_ident = self._listener, self._thread, threading.get_ident
        gradients, scale = torch.autograd.grad, torch.amp.GradScaler.scale

        @wraps(gradients)
        def watched(outputs: Any, *arguments: Any, **options: Any) -> Any:
            if _is_compiling() or not self.level or get_ident() != thread:
                return gradients(outputs, *arguments, **options)
            # What makes no update counts where no optimizer makes any.
            listener.backward_begins(outputs if listener.tells_gradients(options) else None)
            try:
                return gradients(outputs, *arguments, **options)
            finally:
                listener.backward_ends()

        @wraps(scale)
        def watched_scale(scaler: Any, outputs: Any) -> Any:
            result = scale(scaler, outputs)
            listener.log.losses.note_scaled(result, outputs)
            return result

        self._patches.put(torch.autograd, "grad", watched)
        self._patches.put(torch.amp.GradScaler, "scale", watched_scale)

    def _see_data(self) -> None:
        listener = self._listener
        begins, ends = listener.data_begins, listener.data_ends
        thread, get_ident = self._thread, threading.get_ident
        following, iterate = _BaseDataLoaderIter.__next__, DataLoader.__iter__

        def watched_next(iterator: Any) -> Any:
            if get_ident() != thread:
                return following(iterator)
            loader, batch, has_run_out = getattr(iterator, OF_LOADER, None), None, False
            begins(loader)
            try:
                batch = following(iterator)
            except StopIteration:
                has_run_out = True
                raise
            finally:
                ends(loader, batch, has_run_out=has_run_out)
            return batch

        def watched_iter(loader: Any) -> Any:
            if get_ident() != thread:
                return iterate(loader)
            begins(None)
            try:
                iterator = iterate(loader)
            finally:
                ends(None, None, has_run_out=False)
            setattr(iterator, OF_LOADER, listener.pass_begins(loader))
            return iterator

        # `next` is looked up in the class that made the iterator: those of torch share this one.
        self._patches.put(_BaseDataLoaderIter, "__next__", watched_next)
        self._patches.put(DataLoader, "__iter__", watched_iter)


class _ModelHooks:
    """A global hook sees every module called; it is taken out while the outermost runs, so that the others
    run as they would, and torch compiles nothing of ours into them."""

    def __init__(self, listener: Any, thread: int, installed: ExitStack) -> None:
        """Until `installed` is closed, what this thread calls is seen."""
        self._are_seen = True
        self._running: list[OrderedDict[int, Any]] = []
        """The outermost module's own hooks, while it runs."""
        self._hooks = hooks = modules._global_forward_pre_hooks
        get_ident, running, end = threading.get_ident, self._running, self._end

        def before(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            if _is_compiling() or get_ident() != thread:
                return
            if next(module.parameters(), None) is None:
                return  # a loss, say, and no model
            hooks.pop(key, None)
            # While it runs only: a copy of the model, or a file with it, holds nothing of ours.
            own = cast("OrderedDict[int, Any]", module._forward_hooks)
            running.append(own)
            listener.forward_begins(module, arguments)  # in which a copy of the model may be made
            own[OURS] = after
            own.move_to_end(OURS, last=False)  # before hooks that were made meanwhile

        def after(module: nn.Module, arguments: object, output: object) -> None:
            end()
            listener.forward_ends(module, output)

        handle = modules.register_module_forward_pre_hook(before)
        self._key = key = handle.id
        self._begins = before
        installed.callback(handle.remove)
        # Ours is not there when a compiled model is called, and the script prints what it would.
        warnings.filterwarnings("ignore", message=OF_GLOBAL_HOOKS)
        installed.callback(_remove_filter, warnings.filters[0])

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


def _remove_filter(of_warnings: object) -> None:
    with suppress(ValueError):  # the script may have set its own
        warnings.filters.remove(of_warnings)  # type: ignore[attr-defined]


def _num_running(optimizer: int) -> int:
    """How many of torch's wrappers around a step run for the optimizer of this identity."""
    frame, number = sys._getframe(), 0
    while frame is not None:
        is_torchs = frame.f_globals.get("__name__") == Optimizer.__module__
        if is_torchs and frame.f_code.co_name == "wrapper":
            number += id(frame.f_locals.get("self")) == optimizer
        frame = frame.f_back  # type: ignore[assignment]
    return number
