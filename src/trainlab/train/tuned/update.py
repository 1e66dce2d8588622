"""torch's optimizers with their update in compiled code: one pass over memory instead of ten.

Each is torch's own class with another `step`. State, options and `state_dict` are torch's; so is the first
update, which makes the state, and every other that the compiled code cannot make.
"""

import ctypes
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import is_
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

Group = Mapping[str, Any]
States = tuple[str | None, str | None, str | None]

NUMBERS_PER_TENSOR = 7
"""Parameter, gradient, three states, step, size: `Tensor` in update.cpp."""
DTYPES = (torch.float32, torch.float64)
LEFT_TO_TORCH = ("maximize", "differentiable", "capturable")
"""Options of a group that the compiled update does not know."""


class Options(ctypes.Structure):
    """`Options` in update.cpp."""

    _fields_ = (
        ("lr", ctypes.c_double),
        ("first", ctypes.c_double),
        ("second", ctypes.c_double),
        ("eps", ctypes.c_double),
        ("weight_decay", ctypes.c_double),
        ("extra", ctypes.c_double),
        ("flag", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Rule:
    """How one of torch's optimizers is asked of the compiled update."""

    kind: int
    """Its number in update.cpp."""
    options: Callable[[Group], Mapping[str, float]]
    states: Callable[[Group], States]
    """Their names, in the order of update.cpp; None for one that the group's options leave out."""
    counts_steps: bool = True


def _adam_options(group: Group) -> Mapping[str, float]:
    first, second = group["betas"]
    return {"first": first, "second": second, "eps": group["eps"], "flag": group["amsgrad"]}


def _adam_states(group: Group) -> States:
    return "exp_avg", "exp_avg_sq", "max_exp_avg_sq" if group["amsgrad"] else None


def _rmsprop_options(group: Group) -> Mapping[str, float]:
    first, second = group["alpha"], group["momentum"]
    return {"first": first, "second": second, "eps": group["eps"], "flag": group["centered"]}


def _rmsprop_states(group: Group) -> States:
    mean = "grad_avg" if group["centered"] else None
    return "square_avg", mean, "momentum_buffer" if group["momentum"] > 0 else None


RULES: Mapping[type[Optimizer], Rule] = {
    torch.optim.Adadelta: Rule(
        kind=0,
        options=lambda group: {"first": group["rho"], "eps": group["eps"]},
        states=lambda group: ("square_avg", "acc_delta", None),
    ),
    torch.optim.SGD: Rule(
        kind=1,
        options=lambda group: {
            "first": group["momentum"],
            "extra": group["dampening"],
            "flag": group["nesterov"],
        },
        states=lambda group: ("momentum_buffer" if group["momentum"] else None, None, None),
        counts_steps=False,
    ),
    torch.optim.Adam: Rule(kind=2, options=_adam_options, states=_adam_states),
    torch.optim.AdamW: Rule(kind=3, options=_adam_options, states=_adam_states),
    torch.optim.RMSprop: Rule(kind=4, options=_rmsprop_options, states=_rmsprop_states),
    torch.optim.Adagrad: Rule(
        kind=5,
        options=lambda group: {"first": group["lr_decay"], "eps": group["eps"]},
        states=lambda group: ("sum", None, None),
    ),
}


class NativeStep(Optimizer):
    """The `step` of an optimizer whose update is compiled; stands before torch's class among the bases."""

    library: ClassVar[ctypes.CDLL]
    rule: ClassVar[Rule]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._seen: dict[int, tuple[tuple[torch.dtype, int], tuple[Tensor | None, ...]]] = {}
        """By the `id` of a parameter, which is the first of the tensors."""
        super().__init__(*arguments, **options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._seen = {}
        super().__setstate__(state)

    def step(self, *arguments: Any, **options: Any) -> Any:
        """Makes one update of every parameter that has a gradient; takes a closure, as torch's."""
        # What torch does around the step of an optimizer takes as long as that of a small model.
        update = self._told_update if self._is_watched() else self._update
        return update(*arguments, **options)

    step.hooked = True  # type: ignore[attr-defined]  # torch need not do so again

    def _is_watched(self) -> bool:
        """Whether anyone is told of a step: a hook, or a profile."""
        hooks = (
            self._optimizer_step_pre_hooks,
            self._optimizer_step_post_hooks,
            _global_optimizer_pre_hooks,
            _global_optimizer_post_hooks,
        )
        return any(hooks) or torch._C._autograd._profiler_enabled()

    def _update(self, closure: Any = None) -> Any:
        calls = None if closure is not None else self._calls()
        if calls is None:
            return self._torch_step(closure)
        for dtype, options, numbers in calls:
            tensors = array("q", numbers)
            address, length = tensors.buffer_info()
            unknown = self.library.trainlab_update(
                self.rule.kind,
                dtype == torch.float64,
                ctypes.c_void_p(address),
                ctypes.c_int64(length // NUMBERS_PER_TENSOR),
                ctypes.byref(options),
                ctypes.c_int64(torch.get_num_threads()),
            )
            assert not unknown, f"update.cpp has no kind {self.rule.kind}"
        for group in self.param_groups:
            changed = [one for one in group["params"] if one.grad is not None]
            torch.autograd.graph.increment_version(changed)
        return None

    _told_update = Optimizer.profile_hook_step(_update)

    def _torch_step(self, closure: Any) -> Any:
        """torch's own, without telling anyone once more."""
        function = super().step.__func__  # type: ignore[attr-defined]
        function = function.__wrapped__ if getattr(function, "hooked", False) else function
        return function(self, closure)

    def _calls(self) -> list[tuple[torch.dtype, Options, list[int]]] | None:
        """What to hand to the compiled update, by group; None where this update is torch's to make."""
        calls = []
        for group in self.param_groups:
            if any(group.get(name) for name in LEFT_TO_TORCH) or isinstance(group["lr"], Tensor):
                return None
            names = (*self.rule.states(group), "step" if self.rule.counts_steps else None)
            dtype, numbers = None, list[int]()
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                dtype = dtype or parameter.dtype
                state = self.state.get(parameter) or {}
                tensors = (parameter, *[state.get(name) for name in names])
                is_whole = _is_plain(gradient, dtype) and gradient.numel() == parameter.numel()
                if not (is_whole and self._fits(dtype, tensors, names)):
                    return None
                parameter_at, *states_at = [0 if one is None else one.data_ptr() for one in tensors]
                numbers += parameter_at, gradient.data_ptr(), *states_at, parameter.numel()
            if dtype is not None:
                rates = {"lr": group["lr"], "weight_decay": group["weight_decay"]}
                calls.append((dtype, Options(**rates, **self.rule.options(group)), numbers))
        return calls

    def _fits(
        self,
        dtype: torch.dtype,
        tensors: tuple[Tensor | None, ...],
        names: tuple[str | None, ...],
    ) -> bool:
        """Whether a parameter with its states and step is what update.cpp takes; False also where torch has
        yet to make a state. Looked at closely only when one of the tensors is another than last time."""
        parameter = tensors[0]
        assert parameter is not None
        if parameter.dtype != dtype or not parameter.is_contiguous():
            return False
        kind = dtype, parameter.numel()
        seen = self._seen.get(id(parameter))
        if seen is not None and seen[0] == kind and all(map(is_, seen[1], tensors)):
            return True
        *states, step = tensors[1:]
        needed = [one for one, name in zip(states, names, strict=False) if name is not None]
        fits = (
            dtype in DTYPES
            and all(_is_plain(one, dtype) for one in (parameter, *needed))
            and all(one is not None and one.shape == parameter.shape for one in needed)
            and (names[-1] is None or _is_plain(step, torch.float32))
        )
        if fits:
            self._seen[id(parameter)] = kind, tensors
        return fits


def native_class(torch_class: type[Optimizer], library: ctypes.CDLL) -> type[Optimizer]:
    """torch's optimizer of that class, its update made by the library; KeyError for one that it lacks."""
    members = {"library": library, "rule": RULES[torch_class]}
    # Under torch's name: a profile then shows the same row for both.
    return type(torch_class.__name__, (NativeStep, torch_class), members)


def _is_plain(tensor: Tensor | None, dtype: torch.dtype) -> bool:
    """Numbers that lie one after the other in the CPU's memory."""
    return (
        isinstance(tensor, Tensor)
        and tensor.dtype == dtype
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
    )
