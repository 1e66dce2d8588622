"""UpdateHooks: the steps of all optimizers of torch's."""

import threading
from collections.abc import Callable
from contextlib import ExitStack

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

StepHook = Callable[[Optimizer, object, object], None]

_is_compiling = torch.compiler.is_compiling


class UpdateHooks:
    """Of the thread that makes them; removed with what else is installed."""

    def __init__(
        self, listener: Listener, passed: Passed, clock: Callable[[], int], installed: ExitStack
    ) -> None:
        begins, ends = listener.update_begins, listener.update_ends
        thread, get_ident = threading.get_ident(), threading.get_ident
        self._mark_end = mark_end = _marking(listener, passed, clock)

        def before(optimizer: Optimizer, arguments: object, options: object) -> None:
            if not _is_compiling() and not passed.is_on and get_ident() == thread:
                begins(optimizer)

        def after(optimizer: Optimizer, arguments: object, options: object) -> None:
            if _is_compiling():
                return
            if passed.is_on:
                mark_end(optimizer, arguments, options)
            elif get_ident() == thread:
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
    stretch_ends, thread, get_ident = (
        listener.stretch_ends,
        threading.get_ident(),
        threading.get_ident,
    )
    ended, made_by, updates = (
        passed.at_ns[UPDATE_ENDS].append,
        passed.optimizers.append,
        passed.optimizers,
    )

    def mark_end(optimizer: Optimizer, arguments: object, options: object) -> None:
        if get_ident() != thread:
            return
        ended(clock())
        made_by(optimizer)
        if len(updates) >= passed.num_wanted and (
            id(optimizer) == passed.lead or len(updates) > MOST_UPDATES
        ):
            stretch_ends()

    return mark_end
