"""Hooks: torch's calls in this process, told to whoever watches. Nothing of the user's is touched for
longer than a call."""

import os
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
    """Installed once per process, for the thread that made them; removed on `close`, and in a process that
    is forked meanwhile, whose calls are not the script's."""

    installed: ClassVar["Hooks | None"] = None

    def __init__(self, listener: Any, timeline: Timeline) -> None:
        """`listener`: the tracer. Calls nest: a closure's passes lie within the optimizer's step."""
        self.check_none()
        Hooks.installed = self
        self._listener, self._thread = listener, threading.get_ident()
        self.level = WHOLE
        self.updating: list[int] = []
        """The optimizers whose update is under way, by their identity, the outermost first."""
        self._running: OrderedDict[int, Any] | None = None
        """The outermost module's own hooks, while it runs, and where it has raised."""
        self._is_in_backward = False
        self._patches, self._installed = Patches(), ExitStack()
        self._installed.callback(self._patches.close)
        self._see_models()
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
        if cls.installed is not None:
            rule = "this process is watched already, and one training is watched at a time"
            raise SpecError([f"trainlab.watch: {rule}; leave the other block first"])

    def close(self) -> None:
        """Nothing is seen any more."""
        self.model_ends()
        self._installed.close()
        Hooks.installed = None

    def see(self, level: int) -> None:
        """From here on so much is told. Below WHOLE no model has a hook: it runs as without us."""
        self.level = level
        if level < WHOLE:
            self._of_all_modules.pop(self._key, None)
        elif self._running is None:
            self._of_all_modules[self._key] = self._model_begins

    @property
    def is_inside_model(self) -> bool:
        """Whether the outermost module runs, or has raised."""
        return self._running is not None

    def model_ends(self) -> None:
        """The call of the outermost module has ended, or it raised and the script goes on."""
        if self._running is not None:
            self._running.pop(OURS, None)
            self._running = None
        self.see(self.level)

    def _see_models(self) -> None:
        """A global hook sees every module called; it is taken out while the outermost runs, so that the
        others run as they would, and torch compiles nothing of ours into them."""
        listener, thread, get_ident = self._listener, self._thread, threading.get_ident
        self._of_all_modules = hooks = modules._global_forward_pre_hooks

        def before(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            if _is_compiling() or get_ident() != thread:
                return
            if next(module.parameters(), None) is None:
                return  # a loss, say, and no model
            hooks.pop(key, None)
            # While it runs only: a copy of the model, or a file with it, holds nothing of ours.
            self._running = own = cast("OrderedDict[int, Any]", module._forward_hooks)
            listener.forward_begins(module, arguments)  # in which a copy of the model may be made
            own[OURS] = after
            own.move_to_end(OURS, last=False)  # before hooks that were made meanwhile

        def after(module: nn.Module, arguments: object, output: object) -> None:
            self.model_ends()
            listener.forward_ends(module, output)

        handle = modules.register_module_forward_pre_hook(before)
        self._key = key = handle.id
        self._model_begins = before
        self._installed.callback(handle.remove)
        # Ours is not there when a compiled model is called, and the script prints what it would.
        warnings.filterwarnings("ignore", message=OF_GLOBAL_HOOKS)
        filters, ours = cast("list[Any]", warnings.filters), warnings.filters[0]

        def remove_filter() -> None:
            with suppress(ValueError):  # the script may have set its own
                filters.remove(ours)

        self._installed.callback(remove_filter)
        evaluate, test_begins = nn.Module.eval, listener.test_begins

        @wraps(evaluate)
        def watched_eval(module: nn.Module) -> nn.Module:
            if not _is_compiling() and self.level and get_ident() == thread:
                test_begins()
            return evaluate(module)

        self._patches.put(nn.Module, "eval", watched_eval)

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
            # It stands for `backward` where no optimizer makes the updates.
            is_update = not listener.has_optimizer and not options.get("create_graph")
            listener.backward_begins(outputs if is_update else None)
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


def _remove_in_child() -> None:
    if Hooks.installed is not None:
        Hooks.installed.close()


os.register_at_fork(after_in_child=_remove_in_child)
