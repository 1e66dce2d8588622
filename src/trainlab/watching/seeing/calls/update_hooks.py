"""UpdateHooks: the steps of all optimizers of torch's."""

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from trainlab.watching.seeing.calls.listener import Listener
from trainlab.watching.seeing.passed import MOST_UPDATES, UPDATE_ENDS, Passed

Arguments = tuple[Any, ...]
Options = dict[str, Any]
StepHook = Callable[[Optimizer, Arguments, Options], None]

_is_compiling = torch.compiler.is_compiling


class UpdateHooks:
    """Of the thread that makes them; removed with what else is installed."""

    def __init__(
        self, listener: Listener, passed: Passed, clock: Callable[[], int], installed: ExitStack
    ) -> None:
        begins, ends = listener.update_begins, listener.update_ends
        thread, get_ident = threading.get_ident(), threading.get_ident
        self._mark_end = mark_end = _marking(listener, passed, clock)
        under_way: set[int] = set()
        """Optimizers whose update has begun, by their identity; it may have raised."""
        within_own: list[int] = []
        """Those whose update has called that of the class it is made from, once for each."""

        def before(optimizer: Optimizer, arguments: Arguments, options: Options) -> None:
            if _is_compiling() or passed.is_on or get_ident() != thread:
                return
            if id(optimizer) in under_way and num_running(id(optimizer)) > 1:
                within_own.append(id(optimizer))
                listener.update_is_unmarked()
                return
            under_way.add(id(optimizer))
            within_own.clear()
            begins(optimizer)

        def after(optimizer: Optimizer, arguments: Arguments, options: Options) -> None:
            if _is_compiling():
                return
            if passed.is_on:
                mark_end(optimizer, arguments, options)
            elif get_ident() == thread:
                if within_own and within_own[-1] == id(optimizer):
                    within_own.pop()
                    if num_running(id(optimizer)) > 1:
                        return
                    within_own.clear()  # those within have raised
                under_way.discard(id(optimizer))
                ends(optimizer)

        self._before, self._after = before, after
        self._begun = register_optimizer_step_pre_hook(before)
        self._ended = register_optimizer_step_post_hook(after)
        installed.callback(self._begun.remove)
        installed.callback(self._ended.remove)

    def see(self, is_quick: bool) -> None:
        """From here on both ends of an update, or its end alone, by the shortest way."""
        if self._ended.id not in _global_optimizer_post_hooks:
            return  # closed
        _global_optimizer_post_hooks[self._ended.id] = self._mark_end if is_quick else self._after
        if is_quick:
            _global_optimizer_pre_hooks.pop(self._begun.id, None)
        else:
            _global_optimizer_pre_hooks.setdefault(self._begun.id, self._before)


def _marking(listener: Listener, passed: Passed, clock: Callable[[], int]) -> StepHook:
    """What is done at the end of an update that is passed by."""
    stretch_ends, is_unmarked = listener.stretch_ends, listener.update_is_unmarked
    thread, get_ident = threading.get_ident(), threading.get_ident
    updates_ns = passed.at_ns[UPDATE_ENDS]
    ended = updates_ns.append

    def note_maker(optimizer: Optimizer) -> None:
        maker = passed.makers.get(id(optimizer))
        if maker is None:  # a copy, say, which nobody has made
            maker = listener.update_by_another(optimizer)
            passed.is_by_another, passed.num_wanted = True, 0
        passed.others.append((len(updates_ns), maker))

    def mark_end(optimizer: Optimizer, arguments: Arguments, options: Options) -> None:
        if get_ident() != thread:
            return
        is_by_lead = id(optimizer) == passed.lead_id
        if not is_by_lead:
            note_maker(optimizer)
        ended(clock())
        if (len(arguments) > 1 or options) and _has_closure(arguments, options):
            passed.has_closure = True
            is_unmarked()
            stretch_ends()
        elif len(updates_ns) >= passed.num_wanted and (
            is_by_lead or passed.is_by_another or len(updates_ns) > MOST_UPDATES
        ):
            stretch_ends()

    return mark_end


def _has_closure(arguments: Arguments, options: Options) -> bool:
    """Of `optimizer.step(…)`, itself the first."""
    given = (*arguments[1:2], options.get("closure"))
    return any(one is not None for one in given)


def num_running(optimizer: int) -> int:
    """How many of torch's wrappers around a step run for the optimizer of this identity. Two where a class
    of one's own calls the `step` of torch's, and torch has hooked both; none where it has raised."""
    frame, number = sys._getframe(), 0
    while frame is not None:
        is_torchs = frame.f_globals.get("__name__") == Optimizer.__module__
        if is_torchs and frame.f_code.co_name == "wrapper":
            number += id(frame.f_locals.get("self")) == optimizer
        frame = frame.f_back  # type: ignore[assignment]
    return number
