"""Hooks: torch's calls in this process, told to whoever watches. Nothing of the user's is touched for
longer than a call."""

import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any, ClassVar, Protocol

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

_is_compiling = torch.compiler.is_compiling
OF_LOADER = "_trainlab_loader"
"""What an iterator knows of its loader."""
OURS = -1
"""The key of our hook among a module's own: torch counts from 0."""


class Listener(Protocol):
    """Is told what the script does. Calls nest: a closure's passes lie within the optimizer's step."""

    def pass_begins(self, loader: "DataLoader[Any]") -> object: ...
    def data_begins(self) -> None: ...
    def data_ends(self, loader: Any, batch: object) -> None: ...
    def forward_begins(self, module: nn.Module, arguments: tuple[Any, ...]) -> None: ...
    def forward_ends(self, module: nn.Module) -> None: ...
    def backward_begins(self, roots: object) -> None: ...
    def backward_ends(self) -> None: ...
    def optimizer_made(self) -> None: ...
    def update_begins(self, optimizer: Optimizer) -> None: ...
    def update_ends(self, optimizer: Optimizer) -> None: ...
    def zero_grad_begins(self) -> None: ...
    def zero_grad_ends(self) -> None: ...
    def transfer_begins(self) -> None: ...
    def transfer_ends(self) -> None: ...
    def loss_scaled(self, scaled: object, loss: object) -> None: ...


class Hooks:
    """Installed once per process; removed on `close`."""

    _installed_now: ClassVar[bool] = False

    def __init__(self, listener: Listener) -> None:
        self.check_none()
        Hooks._installed_now = True
        self._listener = listener
        self.is_light = False
        """Whether only batches and updates are seen: the rest then runs nearly as without us."""
        self._thread = threading.get_ident()
        self._installed = ExitStack()
        self._running: list[Callable[[], None]] = []
        """Of the outermost module, while it runs: ends its call."""
        self._see_models()
        self._see_optimizers()
        self._see_backward()
        self._see_data()
        if torch.cuda.is_available():
            self._see_transfers()

    @classmethod
    def check_none(cls) -> None:
        """SpecError where this process is watched already."""
        if cls._installed_now:
            rule = "this process is watched already, and one training is watched at a time"
            raise SpecError([f"trainlab.watch: {rule}; leave the other block first"])

    def close(self) -> None:
        """Nothing is seen any more."""
        self.recover()
        self._installed.close()
        Hooks._installed_now = False

    def _put(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        before = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
        setattr(owner, name, function)
        self._installed.callback(setattr, owner, name, before)

    def _see_models(self) -> None:
        """A global hook sees every module called; it is taken out while the outermost runs, so that the
        others run as they would, and torch compiles nothing of ours into them."""
        thread, get_ident = self._thread, threading.get_ident
        begins, ends = self._listener.forward_begins, self._listener.forward_ends
        hooks, running = modules._global_forward_pre_hooks, self._running
        is_model = _Models()

        def before(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            if self.is_light or _is_compiling() or get_ident() != thread or not is_model(module):
                return
            own = module._forward_hooks
            hooks.pop(key, None)

            def after(module: nn.Module, arguments: object, output: object) -> None:
                end()
                ends(module)

            def end() -> None:
                own.pop(OURS, None)
                running.pop()
                hooks[key] = before

            running.append(end)
            # While it runs only: a copy of the model, or a file with it, holds nothing of ours.
            own[OURS] = after
            begins(module, arguments)

        handle = modules.register_module_forward_pre_hook(before)
        key = handle.id
        self._installed.callback(handle.remove)

    def recover(self) -> None:
        """After a model has raised, and the script goes on: its call has ended."""
        while self._running:
            self._running[-1]()

    @property
    def is_inside_model(self) -> bool:
        """Whether the outermost module runs, or has raised."""
        return bool(self._running)

    def _see_optimizers(self) -> None:
        begins, ends = self._listener.update_begins, self._listener.update_ends

        def before(optimizer: Optimizer, arguments: object, options: object) -> None:
            if not _is_compiling():
                begins(optimizer)

        def after(optimizer: Optimizer, arguments: object, options: object) -> None:
            if not _is_compiling():
                ends(optimizer)

        self._installed.callback(register_optimizer_step_pre_hook(before).remove)
        self._installed.callback(register_optimizer_step_post_hook(after).remove)
        make, made = Optimizer.__init__, self._listener.optimizer_made

        @wraps(make)
        def watched_make(optimizer: Optimizer, *arguments: Any, **options: Any) -> None:
            make(optimizer, *arguments, **options)
            made()

        self._put(Optimizer, "__init__", watched_make)
        zero_begins, zero_ends = self._listener.zero_grad_begins, self._listener.zero_grad_ends
        self._wrap(Optimizer, "zero_grad", zero_begins, zero_ends)
        self._wrap(nn.Module, "zero_grad", zero_begins, zero_ends)

    def _wrap(
        self, owner: Any, name: str, begins: Callable[[], None], ends: Callable[[], None]
    ) -> None:
        original = getattr(owner, name)
        thread, get_ident = self._thread, threading.get_ident

        @wraps(original)
        def watched(*arguments: Any, **options: Any) -> Any:
            if self.is_light or _is_compiling() or get_ident() != thread:
                return original(*arguments, **options)
            begins()
            try:
                return original(*arguments, **options)
            finally:
                ends()

        self._put(owner, name, watched)

    def _see_backward(self) -> None:
        begins, ends = self._listener.backward_begins, self._listener.backward_ends
        thread, get_ident = self._thread, threading.get_ident
        for name in ("backward", "grad"):
            original = getattr(torch.autograd, name)
            is_grad = name == "grad"

            @wraps(original)
            def watched(
                tensors: Any,
                *arguments: Any,
                _original: Any = original,
                _is_grad: bool = is_grad,
                **options: Any,
            ) -> Any:
                if self.is_light or _is_compiling() or get_ident() != thread:
                    return _original(tensors, *arguments, **options)
                begins(None if _is_grad else tensors)
                try:
                    return _original(tensors, *arguments, **options)
                finally:
                    ends()

            self._put(torch.autograd, name, watched)
        scale = torch.amp.GradScaler.scale
        scaled = self._listener.loss_scaled

        @wraps(scale)
        def watched_scale(scaler: Any, outputs: Any) -> Any:
            result = scale(scaler, outputs)
            scaled(result, outputs)
            return result

        self._put(torch.amp.GradScaler, "scale", watched_scale)

    def _see_data(self) -> None:
        begins, ends = self._listener.data_begins, self._listener.data_ends
        thread, get_ident = self._thread, threading.get_ident
        of_pass = self._listener.pass_begins
        following = _BaseDataLoaderIter.__next__

        def watched_next(iterator: Any) -> Any:
            if get_ident() != thread:
                return following(iterator)
            begins()
            batch = None
            try:
                batch = following(iterator)
                return batch
            finally:
                ends(iterator.__dict__.get(OF_LOADER), batch)

        # `next` is looked up in the class that made the iterator: those of torch share this one.
        self._put(_BaseDataLoaderIter, "__next__", watched_next)
        iterate = DataLoader.__iter__

        def watched_iter(loader: Any) -> Any:
            if get_ident() != thread:
                return iterate(loader)
            begins()
            try:
                iterator = iterate(loader)
            finally:
                ends(None, None)
            # What is known of the loader, which may be gone before its iterator is.
            iterator.__dict__[OF_LOADER] = of_pass(loader)
            return iterator

        self._put(DataLoader, "__iter__", watched_iter)

    def _see_transfers(self) -> None:
        begins, ends = self._listener.transfer_begins, self._listener.transfer_ends
        for name in ("to", "cuda"):
            self._wrap_transfer(name, begins, ends)

    def _wrap_transfer(
        self, name: str, begins: Callable[[], None], ends: Callable[[], None]
    ) -> None:
        original = getattr(torch.Tensor, name)
        thread, get_ident = self._thread, threading.get_ident

        def watched(tensor: Any, *arguments: Any, **options: Any) -> Any:
            if self.is_light or _is_compiling() or tensor.is_cuda or get_ident() != thread:
                return original(tensor, *arguments, **options)
            begins()
            try:
                return original(tensor, *arguments, **options)
            finally:
                ends()

        # The method is inherited: it is set here, and deleted again.
        setattr(torch.Tensor, name, watched)
        self._installed.callback(delattr, torch.Tensor, name)


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
