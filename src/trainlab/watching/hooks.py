"""Hooks: torch's calls in this process, told to whoever watches. Nothing of the user's is touched for
longer than a call."""

import os
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial, wraps
from time import perf_counter_ns
from typing import Any, ClassVar

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
from torch.utils.hooks import RemovableHandle

from trainlab.errors import SpecError
from trainlab.instruments.calls import Patches
from trainlab.watching.imports import on_import
from trainlab.watching.keras_fit import KerasFit
from trainlab.watching.timeline import OPTIMIZER, OTHER, PREPARE, TRANSFER, ZERO_GRAD, Timeline

_is_compiling = torch.compiler.is_compiling
"""Asked first everywhere: what torch compiles depends on nothing of ours that changes."""
NOT_THE_SCRIPTS = ("torch.", "trainlab.")
"""Modules whose reads are their own."""
OF_LOADER = "_trainlab_loader"
"""What an iterator knows of its loader, which may be gone before it is."""
LIGHT, COUNTS, WHOLE = range(3)
"""How much is told: batches and updates; backward passes, too; all calls."""
OF_GLOBAL_HOOKS = r"Using `torch\.compile\(module\)` when there are global hooks"


class Hooks:
    """Installed once per process, for the thread that made them; removed on `close`, and in a process that
    is forked meanwhile, whose calls are not the script's."""

    installed: ClassVar["Hooks | None"] = None

    def __init__(self, listener: Any, timeline: Timeline) -> None:
        """`listener`: the tracer. Calls nest: a closure's passes lie within the optimizer's step."""
        self.check_none()
        self._listener, self._timeline, self._thread = listener, timeline, threading.get_ident()
        self._heard: int | None = self._thread
        """The thread whose calls are told; None while nobody's are."""
        self.level = WHOLE
        self.num_updating = 0
        """Updates under way, one within the other."""
        self.is_inside_model = False
        """Whether the outermost module runs, or has raised."""
        self._end_of_call: RemovableHandle | None = None
        self._is_in_backward = False
        self.reads: dict[tuple[str, int], list[int]] = {}
        """By file and line that read a number from a tensor amid training: how often, and nanoseconds."""
        self._patches = Patches()
        self._removes: list[Callable[[], None]] = [self._patches.close]
        Hooks.installed = self
        self._see_models()
        self._see_optimizers()
        self._see_passes()
        self._see_data()
        keras = KerasFit(listener, self._patches, self._set_aside)
        self._removes.append(on_import("keras", keras.see))
        self._see_reads()
        if torch.cuda.is_available():
            for name in ("to", "cuda"):
                self._wrap(torch.Tensor, name, WHOLE, self._transfer_begins, PREPARE)

    @classmethod
    def check_none(cls) -> None:
        """SpecError where this process is watched already."""
        if cls.installed is not None:
            rule = "this process is watched already, and one training is watched at a time"
            raise SpecError([f"trainlab.watch: {rule}; leave the other block first"])

    def close(self) -> None:
        """May be called again, where it did not come to its end."""
        if self._end_of_call is not None:
            self._end_of_call.remove()
        for remove in self._removes:
            remove()
        Hooks.installed = None

    @classmethod
    def free(cls) -> None:
        """This process is watched no more, whatever the watch was interrupted at."""
        if cls.installed is not None:
            cls.installed.close()

    def _set_aside(self, is_aside: bool) -> None:
        """While Keras trains, which tells of it itself, nobody hears torch."""
        self._heard = None if is_aside else self._thread

    def see(self, level: int) -> None:
        """From here on so much is told. Below WHOLE no model has a hook: it runs as without us."""
        self.level = level
        if level < WHOLE:
            self._of_all_modules.pop(self._key, None)
        elif not self.is_inside_model:
            self._of_all_modules[self._key] = self._model_begins

    def model_ends(self) -> None:
        """The call of the outermost module has ended, or it raised and the script goes on."""
        if self._end_of_call is not None:
            self._end_of_call.remove()
            self._end_of_call = None
        self.is_inside_model = False
        self.see(self.level)

    def _wrap(
        self,
        owner: Any,
        name: str,
        level: int,
        begins: Callable[..., object],
        then: int | None = None,
        ends: Callable[[], None] = lambda: None,
    ) -> None:
        """Puts in the place of a function of torch's one that tells of its calls, from a level on. `begins`
        is given the arguments, and gives False for a call that is part of another; the timeline's part
        after it is `then`, or `ends` tells of its end."""
        original, get_ident = getattr(owner, name), threading.get_ident
        if then is not None:
            ends = partial(self._timeline.end, then)

        @wraps(original)
        def watched(*arguments: Any, **options: Any) -> Any:
            if _is_compiling() or self.level < level or get_ident() != self._heard:
                return original(*arguments, **options)
            if begins(*arguments, **options) is False:
                return original(*arguments, **options)
            try:
                return original(*arguments, **options)
            finally:
                ends()

        self._patches.put(owner, name, watched)

    def _see_closure(self, optimizer: Optimizer, *given: Any, **options: Any) -> Any:
        """The arguments of an update with its closure, which is called amid it and is no part of it, as one
        that is seen; None where it has none."""
        closure = given[0] if given else options.get("closure")
        if not callable(closure):
            return None

        @wraps(closure)
        def seen(*arguments: Any, **options: Any) -> Any:
            self._timeline.begin(OTHER)
            try:
                return closure(*arguments, **options)
            finally:
                self._timeline.end(OPTIMIZER)

        if given:
            return (optimizer, seen, *given[1:]), options
        return (optimizer,), options | {"closure": seen}

    def _transfer_begins(
        self, tensor: torch.Tensor, *arguments: Any, **options: Any
    ) -> bool | None:
        if tensor.is_cuda:
            return False  # it is on a GPU already, and not brought there
        self._timeline.begin(TRANSFER)
        return None

    def _see_models(self) -> None:
        """A global hook sees every module called; it is taken out while the outermost runs, so that the
        others run as they would, and torch compiles nothing of ours into them."""
        listener, get_ident = self._listener, threading.get_ident
        self._of_all_modules = hooks = modules._global_forward_pre_hooks

        def before(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            if _is_compiling() or get_ident() != self._heard:
                return
            if next(module.parameters(), None) is None:
                return  # a loss, say, and no model
            if arguments and type(arguments[0]).__name__ == "KerasTensor":
                return  # nothing is computed: Keras makes a model of its layers
            hooks.pop(key, None)
            self.is_inside_model = True
            listener.forward_begins(module, arguments)
            # While it runs only.
            self._end_of_call = module.register_forward_hook(after, prepend=True, with_kwargs=True)

        def after(module: nn.Module, arguments: Any, named: Any, output: object) -> None:
            self.model_ends()
            listener.forward_ends(module, (arguments, named), output)

        handle = modules.register_module_forward_pre_hook(before)
        self._removes.append(handle.remove)
        self._key = key = handle.id
        self._model_begins = before
        # Ours is not there when a compiled model is called, and the script prints what it would.
        warnings.filterwarnings("ignore", message=OF_GLOBAL_HOOKS)
        self._wrap(nn.Module, "eval", COUNTS, lambda module: listener.test_begins())

    def _see_optimizers(self) -> None:
        listener, get_ident = self._listener, threading.get_ident

        def before(optimizer: Optimizer, arguments: Any, options: dict[str, Any]) -> Any:
            if _is_compiling() or get_ident() != self._heard:
                return None
            self.num_updating += 1
            # A class of one's own may call the `step` of torch's, and torch has hooked both.
            if self.num_updating > 1:
                return None
            listener.update_begins(optimizer)
            return self._see_closure(*arguments, **options) if self.level == WHOLE else None

        def after(optimizer: Optimizer, arguments: object, options: object) -> None:
            if _is_compiling() or get_ident() != self._heard:
                return
            self.num_updating -= 1
            if not self.num_updating:
                listener.update_ends(optimizer)

        made = partial(setattr, listener, "has_optimizer", True)
        self._wrap(Optimizer, "__init__", LIGHT, lambda *_, **options: None, ends=made)
        self._removes.append(register_optimizer_step_pre_hook(before).remove)
        self._removes.append(register_optimizer_step_post_hook(after).remove)
        begin = self._timeline.begin
        for owner in (Optimizer, nn.Module):
            self._wrap(owner, "zero_grad", WHOLE, lambda *_, **options: begin(ZERO_GRAD), OTHER)

    def _see_passes(self) -> None:
        listener, scale = self._listener, torch.amp.GradScaler.scale

        def backward_begins(tensors: Any, *arguments: Any, **options: Any) -> bool | None:
            # Made by another one, as reentrant checkpoints do: part of that.
            if self._is_in_backward:
                return False
            listener.backward_begins(tensors)
            self._is_in_backward = True
            return None

        def backward_ends() -> None:
            self._is_in_backward = False
            listener.backward_ends()

        def gradients_begin(outputs: Any, *arguments: Any, **options: Any) -> None:
            # They stand for `backward` where no optimizer makes the updates.
            is_update = not listener.has_optimizer and not options.get("create_graph")
            listener.backward_begins(outputs if is_update else None)

        @wraps(scale)
        def watched_scale(scaler: Any, outputs: Any) -> Any:
            result = scale(scaler, outputs)
            listener.log.losses.note_scaled(result, outputs)
            return result

        autograd = torch.autograd
        self._wrap(autograd, "backward", COUNTS, backward_begins, ends=backward_ends)
        self._wrap(autograd, "grad", COUNTS, gradients_begin, ends=listener.backward_ends)
        self._patches.put(torch.amp.GradScaler, "scale", watched_scale)

    def _see_data(self) -> None:
        listener = self._listener
        begins, ends = listener.data_begins, listener.data_ends
        get_ident = threading.get_ident
        following, iterate = _BaseDataLoaderIter.__next__, DataLoader.__iter__

        def watched_next(iterator: Any) -> Any:
            if get_ident() != self._heard:
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
            if get_ident() != self._heard:
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

    def _see_reads(self) -> None:
        """Of numbers that the script reads from tensors: on a GPU each waits for all work before it."""
        thread, get_ident, listener = self._thread, threading.get_ident, self._listener

        def seen(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
            @wraps(read)
            def watched(tensor: Any) -> Any:
                is_seen = self.level == WHOLE and not listener.is_testing
                if not is_seen or _is_compiling() or get_ident() != thread:
                    return read(tensor)
                frame, started_ns = sys._getframe(1), perf_counter_ns()
                number = read(tensor)
                if not str(frame.f_globals.get("__name__")).startswith(NOT_THE_SCRIPTS):
                    place = frame.f_code.co_filename, frame.f_lineno
                    row = self.reads.setdefault(place, [0, 0])
                    row[0] += 1
                    row[1] += perf_counter_ns() - started_ns
                return number

            return watched

        for name in ("item", "tolist", "__float__"):
            self._patches.put(torch.Tensor, name, seen(getattr(torch.Tensor, name)))


os.register_at_fork(after_in_child=Hooks.free)
