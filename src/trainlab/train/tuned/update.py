"""torch's optimizers with their update in compiled code: one pass over memory instead of ten.

Each is torch's own class with another `step`. State, options and `state_dict` are torch's; so is the first
update, which makes the state, and every other that the compiled code cannot make.
"""

import ctypes
from typing import Any, ClassVar

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from trainlab.train.tuned.layout import GroupLayout, NotLaidOutError, are_same, held_by
from trainlab.train.tuned.rules import RULES, Rule


class NativeStep(Optimizer):
    """The `step` of an optimizer whose update is compiled; stands before torch's class among the bases."""

    library: ClassVar[ctypes.CDLL]
    rule: ClassVar[Rule]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._layouts: dict[int, GroupLayout] = {}
        """By the number of the group."""
        self._held: list[Any] = []
        """What they were made with."""
        super().__init__(*arguments, **options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._layouts, self._held = {}, []
        super().__setstate__(state)

    def step(self, *arguments: Any, **options: Any) -> Any:
        """Makes one update of every parameter that has a gradient; takes a closure, as torch's."""
        # What torch does around the step of an optimizer takes as long as that of a small model.
        update = self._told_update if self._is_watched() else self._update
        return update(*arguments, **options)

    step.hooked = True  # type: ignore[attr-defined]  # torch need not do so again

    def _is_watched(self) -> bool:
        """Whether anyone is told of a step: a hook, or a profile."""
        return bool(
            self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks
            or torch._C._autograd._profiler_enabled()
        )

    def _update(self, closure: Any = None) -> Any:
        if closure is not None:
            return self._torch_step(closure)
        try:
            layouts = self._laid_out()
        except NotLaidOutError:
            return self._torch_step(closure)
        for layout in layouts:
            layout.update(self.library)
        return None

    _told_update = Optimizer.profile_hook_step(_update)

    def _torch_step(self, closure: Any) -> Any:
        """torch's own, without telling anyone once more."""
        function = super().step.__func__  # type: ignore[attr-defined]
        function = function.__wrapped__ if getattr(function, "hooked", False) else function
        return function(self, closure)

    def _laid_out(self) -> list[GroupLayout]:
        """Of every group with gradients."""
        held = held_by(self.state)
        if not are_same(held, self._held):
            self._layouts, self._held = {}, held
        found = []
        for number, group in enumerate(self.param_groups):
            parameters = [one for one in group["params"] if one.grad is not None]
            if not parameters:
                continue
            layout = self._layouts.get(number)
            if layout is None or not layout.is_renewed(group, parameters):
                layout = GroupLayout(self.rule, group, parameters, self.state)
                self._layouts[number] = layout
            found.append(layout)
        return found


def native_class(torch_class: type[Optimizer], library: ctypes.CDLL) -> type[Optimizer]:
    """torch's optimizer of that class, its update made by the library; KeyError for one that it lacks."""
    members = {"library": library, "rule": RULES[torch_class]}
    # Under torch's name: a profile then shows the same row for both.
    return type(torch_class.__name__, (NativeStep, torch_class), members)
