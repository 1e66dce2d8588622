"""Every call of a step as the user wrote it: modules, functions, custom autograd functions.

A module of torch.nn that calls no other module is one call, whatever it does inside. Any other
module is a container: what it calls itself are calls of their own, named under its path.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor, nn
from torch.autograd.function import _SingleLevelFunction
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode, _get_current_function_mode
from torch.utils.hooks import RemovableHandle

from trainlab.instruments.calls.backward import NodeOwners
from trainlab.instruments.calls.flow import (
    BATCH,
    DataFlow,
    memory_bytes,
    memory_of,
    tensors_in,
    version_of,
)
from trainlab.train.moments import Phase

TENSOR_PROPERTIES = {"T", "mT", "H", "mH", "real", "imag"}
"""Properties that are operations; `.shape` and the like are not."""


@dataclass
class Call:
    """One call, with what is learnt about it in one step."""

    name: str
    type: str
    kind: Literal["module", "function"]
    phase: Literal["forward", "loss"]
    number: int = 0
    """Which call of that name in the step, from 1."""
    inputs: set[int] = field(default_factory=set)
    parameters: set[int] = field(default_factory=set)
    """Ids of the model's parameters that it owns or was handed."""
    output_shapes: list[list[int]] = field(default_factory=list)
    output_bytes: int = 0
    saved_bytes: int = 0
    forward_us: float = 0.0
    backward_us: float = 0.0
    forward_flops: int = 0
    backward_flops: int = 0
    forward_bytes: int = 0
    backward_bytes: int = 0


class Observer(Protocol):
    """Told when a step's work begins and ends, and each call's in it, forward and backward."""

    def begin(self) -> None: ...

    def phase_ends(self, phase: Phase) -> None: ...

    def end(self) -> None:
        """The step is over, or broke off; perhaps before it began."""

    def forward_begins(self, call: Call) -> None: ...

    def forward_ends(self, call: Call) -> None: ...

    def backward_begins(self, call: Call) -> None: ...

    def backward_ends(self, call: Call) -> None: ...


@dataclass
class _Frame:
    """A module that is being called."""

    path: str
    call: Call | None
    """What it is one call as; None for a container, and inside another call."""
    versions: list[tuple[Tensor, int]]
    unseen: set[int] = field(default_factory=set)
    """What it may have made tensors from before it turned out to be a container."""


class CallWatch:
    """Sees the calls of one step between `enter` and `leave`, and whose backward work is whose."""

    def __init__(self, model: nn.Module, observer: Observer) -> None:
        self.calls: list[Call] = []
        self.phase: Literal["forward", "loss"] = "forward"
        self._model, self._observer = model, observer
        self._paths = {id(module): name for name, module in model.named_modules()}
        self._parameters = {id(parameter) for parameter in model.parameters()}
        self._constants = self._parameters | {id(buffer) for buffer in model.buffers()}
        self._flow = DataFlow()
        self._owners = NodeOwners[Call](observer.backward_begins, observer.backward_ends)
        self._numbers: Counter[str] = Counter()
        self._frames: list[_Frame] = []
        self._open: Call | None = None
        self._mode, self._mode_is_on = _FunctionMode(self.function), False
        self._hooks: list[RemovableHandle] = []

    def open(self) -> None:
        """Before the step: what would take too long inside it."""
        # Function modes do not see custom autograd functions.
        setattr(_SingleLevelFunction, "apply", classmethod(self._apply))  # noqa: B010

    def close(self) -> None:
        """After the step, however it ended: nothing of us stays behind, and the graph can go."""
        self.leave()
        delattr(_SingleLevelFunction, "apply")
        self._owners.release()

    def enter(self) -> None:
        """From here on every call is seen, of whatever module."""
        # Hooks common to all modules: a hook on a module itself would switch off torch's fast paths.
        self._hooks = [
            register_module_forward_pre_hook(self._module_begins),
            register_module_forward_hook(self._module_ends, with_kwargs=True, always_call=True),
        ]
        self._switch_mode(on=True)

    def leave(self) -> None:
        """No call is seen any more."""
        self._switch_mode(on=False)
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def function(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls a torch function and notes the call, if it makes tensors."""
        if self._open is not None:
            return function(*args, **kwargs)
        name, taken = _name(function), list(tensors_in((args, kwargs)))
        if not name:
            result = function(*args, **kwargs)
            self._flow.set_sources(tensors_in(result), self._flow.sources(taken))
            return result
        versions = [(tensor, version_of(tensor)) for tensor in taken]
        call = self._begin(name, name, "function")
        try:
            result = function(*args, **kwargs)
            self._observer.forward_ends(call)
        finally:
            self._open = None
        # Writing into a part of a tensor gives nothing back, but it is work.
        made = tensors_in(args[0] if name == "setitem" else result)
        self._note(call, versions, list(made))
        return result

    def _apply(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        """In the place of a custom autograd function's `apply`."""
        apply = super(_SingleLevelFunction, cls).apply  # type: ignore[misc]
        if self._open is not None or not self._hooks:
            return apply(*args, **kwargs)
        self._switch_mode(on=False)
        versions = [(tensor, version_of(tensor)) for tensor in tensors_in((args, kwargs))]
        call = self._begin(cls.__name__, cls.__name__, "function")
        try:
            result = apply(*args, **kwargs)
            self._observer.forward_ends(call)
            self._note(call, versions, list(tensors_in(result)))
        finally:
            self._open = None
            self._switch_mode(on=True)
        return result

    def _module_begins(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._frames and self._frames[-1].call is not None:
            self._open_up(self._frames[-1])
        path = self._path_of(module)
        if self._open is not None:
            self._open.parameters |= self._owned(module)
            self._frames.append(_Frame(path, None, []))
            return
        taken = list(tensors_in(args))
        if module is self._model:
            self._flow.set_sources(taken, [BATCH])
        if not _is_torchs_own(module):
            self._frames.append(_Frame(path, None, []))
            return
        # Without the mode: it would switch off torch's fast paths.
        self._switch_mode(on=False)
        frame = _Frame(path, None, [(tensor, version_of(tensor)) for tensor in taken])
        frame.call = self._begin(path or type(module).__name__, type(module).__name__, "module")
        self._frames.append(frame)

    def _module_ends(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        """`rest` is keyword arguments and result; the result alone where the module raised."""
        frame = self._frames.pop()
        call = frame.call
        if call is None:
            return
        if len(rest) == 2:
            self._observer.forward_ends(call)
            call.parameters |= self._owned(module)
            by_name = [(tensor, version_of(tensor)) for tensor in tensors_in(rest[0])]
            self._note(call, [*frame.versions, *by_name], list(tensors_in(rest[1])))
        self._open = None
        self._switch_mode(on=True)

    def _open_up(self, frame: _Frame) -> None:
        """A module of torch.nn calls another one after all: a container, no call."""
        frame.unseen = self._flow.sources(tensor for tensor, _ in frame.versions)
        frame.call = self._open = None
        self._switch_mode(on=True)

    def _begin(self, name: str, type: str, kind: Literal["module", "function"]) -> Call:  # noqa: A002
        path = self._frames[-1].path if self._frames and kind == "function" else ""
        name = f"{path}.{name}" if path else name
        call = self._open = Call(name=name, type=type, kind=kind, phase=self.phase)
        self._observer.forward_begins(call)
        return call

    def _note(self, call: Call, taken: list[tuple[Tensor, int]], made: list[Tensor]) -> None:
        """What a call took and gave, once it is over; one that made no tensor is no call."""
        if not made:
            return
        self._numbers[call.name] += 1
        call.number = self._numbers[call.name]
        call.parameters |= {id(tensor) for tensor, _ in taken} & self._parameters
        call.output_shapes = [[] if tensor.is_nested else list(tensor.shape) for tensor in made]
        held = {memory_of(tensor): memory_bytes(tensor) for tensor in made}
        call.output_bytes = sum(held[key] for key in held.keys() - {memory_of(t) for t, _ in taken})
        moving = [
            (tensor, version) for tensor, version in taken if id(tensor) not in self._constants
        ]
        # What the loss takes from elsewhere are the targets.
        unseen = {BATCH} if self.phase == "loss" else set()
        if self._frames:
            unseen = self._frames[-1].unseen or unseen
        self._flow.set_sources(
            (tensor for tensor, _ in moving if not self._flow.knows(tensor)), unseen
        )
        call.inputs = self._flow.sources(tensor for tensor, _ in moving)
        written = [tensor for tensor, version in moving if version_of(tensor) != version]
        self._flow.set_sources(made, [len(self.calls)])
        self._flow.set_writer(written, len(self.calls))
        self._owners.claim(call, [*made, *written])
        self.calls.append(call)

    def _switch_mode(self, on: bool) -> None:
        # Only where it lies on top: the user's own modes are not ours to move.
        if on and not self._mode_is_on and self._hooks:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
        elif not on and self._mode_is_on and _get_current_function_mode() is self._mode:
            self._mode.__exit__(None, None, None)
        else:
            return
        self._mode_is_on = on

    def _path_of(self, module: nn.Module) -> str:
        if (path := self._paths.get(id(module))) is not None:
            return str(path)
        parent = self._frames[-1].path if self._frames else ""
        return f"{parent}.{type(module).__name__}" if parent else type(module).__name__

    def _owned(self, module: nn.Module) -> set[int]:
        return {id(parameter) for parameter in module.parameters()} & self._parameters


class _FunctionMode(TorchFunctionMode):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self._function(func, args, kwargs or {})


def _name(function: Callable[..., Any]) -> str:
    """As the user would say it: relu, getitem, T; empty for properties that are no operation."""
    name: str = getattr(function, "__name__", type(function).__name__)
    if name in ("__get__", "__set__", "__delete__"):
        of: str = getattr(getattr(function, "__self__", None), "__name__", "")
        return of if name == "__get__" and of in TENSOR_PROPERTIES else ""
    return name[2:-2] if name.startswith("__") and name.endswith("__") else name


def _is_torchs_own(module: nn.Module) -> bool:
    return f"{type(module).__module__}.".startswith(("torch.nn.", "torch.ao.nn."))


def types_of(module: nn.Module) -> tuple[str, ...]:
    """The names of a module's class and of those it derives from, torch's base apart."""
    classes = type(module).__mro__
    return tuple(c.__name__ for c in classes if c not in (nn.Module, object))
