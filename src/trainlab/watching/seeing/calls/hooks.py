"""Hooks: torch's calls in this process, told to whoever watches. Nothing of the user's is touched for
longer than a call."""

import math
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import wraps
from time import perf_counter_ns
from typing import Any, ClassVar, cast

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from trainlab.errors import SpecError
from trainlab.watching.seeing.calls.listener import Listener
from trainlab.watching.seeing.calls.model_hooks import ModelHooks
from trainlab.watching.seeing.calls.replaced import Replaced
from trainlab.watching.seeing.calls.update_hooks import UpdateHooks
from trainlab.watching.seeing.passed import (
    BACKWARD_BEGINS,
    DATA_BEGINS,
    DATA_ENDS,
    GRADIENT_BEGINS,
    MOST_UPDATES,
    Passed,
)
from trainlab.watching.seeing.seen import SeenLoader, SeenOptimizer, size_of

_is_compiling = torch.compiler.is_compiling
"""Asked first nearly everywhere: what torch compiles depends on nothing of ours that changes."""
Clock = Callable[[], int]
OF_LOADER = "_trainlab_loader"
"""What an iterator knows of its loader."""
STEPS, MARKS, ALL = range(3)
"""How much is seen: batches and updates; nothing but the marks of steps, which are kept; all calls."""


class Hooks:
    """Installed once per process; removed on `close`."""

    _installed_now: ClassVar[bool] = False

    def __init__(self, listener: Listener, clock: Clock = perf_counter_ns) -> None:
        self.check_none()
        Hooks._installed_now = True
        self._listener, self._clock = listener, clock
        self.level = ALL
        self.passed = Passed()
        """Marks, at that level."""
        self._thread = threading.get_ident()
        self._installed = ExitStack()
        self.models = ModelHooks(listener, self._thread, self._installed)
        self._seldom: list[Replaced] = []
        """Calls that are of no interest while steps are passed by."""
        self._see_tests()
        self._updates = UpdateHooks(listener, self.passed, clock, self._installed)
        self._see_optimizers()
        self._see_backward()
        self._see_gradients()
        self._see_data()
        self._see_transfers()

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

    def _put(self, owner: Any, name: str, function: Callable[..., Any]) -> Replaced:
        replaced = Replaced(owner, name, function)
        replaced.put()
        self._installed.callback(replaced.take_out)
        return replaced

    def see(self, level: int) -> None:
        """From here on so much is seen. Below ALL no model has a hook: it runs as without us."""
        self.level, self.passed.is_on = level, level == MARKS
        # What torch has compiled depends on what is called; where it has not, the less the better.
        # So, too, where the script has put something of its own before torch's.
        is_ours = torch.autograd.backward is self._backward
        self.passed.is_quick = is_quick = level == MARKS and is_ours and not _has_compiled()
        is_scaled = self._listener.losses.scaled is not None
        self.passed.is_free = is_quick and not self.passed.is_inside and not is_scaled
        self._updates.see(is_quick)
        for one in self._seldom:
            one.take_out() if is_quick else one.put()
        self.models.see(level == ALL)

    def pass_by(
        self,
        num_updates: int,
        makers: Mapping[int, SeenOptimizer],
        lead: int,
        loader: SeenLoader | None,
    ) -> None:
        """Nothing but marks is seen, of so many updates; the optimizer with the identity `lead` ends the
        steps, and `loader` gives their batches."""
        self.passed.num_wanted = min(num_updates, MOST_UPDATES)
        self.passed.makers, self.passed.lead_id = dict(makers), lead
        self.passed.lead, self.passed.loader = makers.get(lead), loader
        self.see(MARKS)

    def _see_tests(self) -> None:
        thread, get_ident = self._thread, threading.get_ident
        evaluate, test_begins = nn.Module.eval, self._listener.test_begins

        @wraps(evaluate)
        def watched_eval(module: nn.Module) -> nn.Module:
            if not _is_compiling() and self.level and get_ident() == thread:
                test_begins()
            return evaluate(module)

        self._put(nn.Module, "eval", watched_eval)

    def _see_optimizers(self) -> None:
        make, made = Optimizer.__init__, self._listener.optimizer_made
        thread, get_ident = self._thread, threading.get_ident

        @wraps(make)
        def watched_make(optimizer: Optimizer, *arguments: Any, **options: Any) -> None:
            make(optimizer, *arguments, **options)
            if get_ident() == thread:
                made()

        self._put(Optimizer, "__init__", watched_make)
        self._see_zero_grad(Optimizer)
        self._see_zero_grad(nn.Module)

    def _see_zero_grad(self, owner: Any) -> None:
        begins, ends = self._listener.zero_grad_begins, self._listener.zero_grad_ends
        original = owner.zero_grad
        thread, get_ident, passed = self._thread, threading.get_ident, self.passed

        @wraps(original)
        def watched(one: Any, set_to_none: bool = True) -> Any:
            if _is_compiling() or passed.is_on or not self.level or get_ident() != thread:
                return original(one, set_to_none)
            begins()
            try:
                return original(one, set_to_none)
            finally:
                ends()

        self._seldom.append(self._put(owner, "zero_grad", watched))

    def _see_backward(self) -> None:
        begins, ends = self._listener.backward_begins, self._listener.backward_ends
        thread, get_ident, passed = self._thread, threading.get_ident, self.passed
        begun, clock = passed.at_ns[BACKWARD_BEGINS].append, self._clock
        losses, value = self._listener.losses, self._listener.losses.known.append
        add_on_gpu = losses.add_on_gpu
        run, run_from = torch.autograd.backward, cast(Any, torch.Tensor.backward)
        is_overridden = torch.overrides.has_torch_function_unary

        @wraps(run)
        def watched(tensors: Any, *arguments: Any, **options: Any) -> Any:
            if _is_compiling() or not self.level or get_ident() != thread:
                return run(tensors, *arguments, **options)
            if passed.is_inside:  # made by another one, as reentrant checkpoints do: part of that
                return run(tensors, *arguments, **options)
            passed.is_free, passed.is_inside = False, True
            try:
                if passed.is_on:
                    begun(clock())
                    losses.add(tensors)
                    return run(tensors, *arguments, **options)
                begins(tensors)
                try:
                    return run(tensors, *arguments, **options)
                finally:
                    ends()
            finally:
                passed.is_free, passed.is_inside = passed.is_quick and losses.scaled is None, False

        @wraps(run_from)
        def watched_from(
            tensor: Any,
            gradient: Any = None,
            retain_graph: Any = None,
            create_graph: Any = False,
            inputs: Any = None,
        ) -> Any:
            # The same, for nearly all there are, without a call more than the script makes: what torch's
            # own method does where no subclass and no mode has a say in it.
            if passed.is_free and not is_overridden(tensor) and get_ident() == thread:
                passed.is_free, passed.is_inside = False, True
                begun(clock())
                try:
                    if gradient is None and tensor.is_cpu:
                        try:
                            known = tensor.item()
                        except RuntimeError:  # several numbers: torch will say that it takes one
                            known = math.nan
                        value(known if known.__class__ is float else math.nan)
                    elif tensor.is_cuda:
                        add_on_gpu(tensor)
                    else:
                        losses.add(tensor)
                    return run(tensor, gradient, retain_graph, create_graph, inputs=inputs)
                finally:
                    passed.is_free, passed.is_inside = passed.is_quick, False
            return run_from(tensor, gradient, retain_graph, create_graph, inputs)

        self._put(torch.autograd, "backward", watched)
        self._backward = watched
        self._put(torch.Tensor, "backward", watched_from)

    def _see_gradients(self) -> None:
        begins, ends = self._listener.backward_begins, self._listener.backward_ends
        thread, get_ident, passed = self._thread, threading.get_ident, self.passed
        begun, clock = passed.at_ns[GRADIENT_BEGINS].append, self._clock
        gradients = torch.autograd.grad

        @wraps(gradients)
        def watched_gradients(outputs: Any, *arguments: Any, **options: Any) -> Any:
            if _is_compiling() or not self.level or get_ident() != thread:
                return gradients(outputs, *arguments, **options)
            if passed.is_on:
                begun(clock())
                return gradients(outputs, *arguments, **options)
            # What makes no update counts where no optimizer makes any.
            begins(outputs if self._listener.tells_gradients(options) else None)
            try:
                return gradients(outputs, *arguments, **options)
            finally:
                ends()

        self._put(torch.autograd, "grad", watched_gradients)
        scale = torch.amp.GradScaler.scale
        scaled = self._listener.loss_scaled

        @wraps(scale)
        def watched_scale(scaler: Any, outputs: Any) -> Any:
            result = scale(scaler, outputs)
            scaled(result, outputs)
            passed.is_free = False  # until a backward pass has begun from it
            if passed.is_inside:
                passed.is_quick = False  # or until all is seen again, where one is under way
            return result

        self._put(torch.amp.GradScaler, "scale", watched_scale)

    def _see_data(self) -> None:
        begins, ends = self._listener.data_begins, self._listener.data_ends
        thread, get_ident = self._thread, threading.get_ident
        of_pass = self._listener.pass_begins
        following = _BaseDataLoaderIter.__next__
        passed, clock, plain = self.passed, self._clock, torch.Tensor
        asked, given = passed.at_ns[DATA_BEGINS].append, passed.at_ns[DATA_ENDS].append
        shape = passed.shapes.append

        def watched_next(iterator: Any) -> Any:
            if get_ident() != thread:
                return following(iterator)
            batch: Any = None
            if passed.is_on and getattr(iterator, OF_LOADER, None) is passed.loader:
                asked(clock())
                try:
                    batch = following(iterator)
                    return batch
                finally:
                    given(clock())
                    if type(batch) is list and batch and type(batch[0]) is plain:
                        shape(batch[0].shape)  # as nearly always
                    elif batch is None and _has_run_out():
                        shape(None)
                    else:
                        shape((size_of(batch) or 0,))
            begins()
            try:
                batch = following(iterator)
                return batch
            finally:
                is_given = batch is not None or _has_run_out()
                ends(getattr(iterator, OF_LOADER, None) if is_given else None, batch)

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
            setattr(iterator, OF_LOADER, of_pass(loader))
            return iterator

        self._put(DataLoader, "__iter__", watched_iter)

    def _see_transfers(self) -> None:
        if torch.cuda.is_available():
            for name in ("to", "cuda"):
                watched = self._watched_transfer(name)
                self._seldom.append(self._put(torch.Tensor, name, watched))

    def _watched_transfer(self, name: str) -> Callable[..., Any]:
        begins, ends = self._listener.transfer_begins, self._listener.transfer_ends
        original = getattr(torch.Tensor, name)
        thread, get_ident = self._thread, threading.get_ident

        def watched(tensor: Any, *arguments: Any, **options: Any) -> Any:
            if _is_compiling() or self.level < ALL or tensor.is_cuda or get_ident() != thread:
                return original(tensor, *arguments, **options)
            begins()
            try:
                return original(tensor, *arguments, **options)
            finally:
                ends()

        return watched


def _has_run_out() -> bool:
    """Of a loader that gave no batch: whether it has no more; it may have raised, or given None."""
    return isinstance(sys.exc_info()[1], StopIteration)


def _has_compiled() -> bool:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"]["total"])
