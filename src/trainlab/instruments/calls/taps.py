"""Taps: what goes into and comes out of chosen calls, under the names the layer record gives them.

Containers are no calls in the layer record; here they can be chosen too, by their path.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from trainlab.instruments.calls.flow import DataFlow, tensors_in
from trainlab.instruments.calls.watch import (
    Call,
    CallWatch,
    _Frame,
    _is_torchs_own,
    _name,
    types_of,
)
from trainlab.train.moments import Phase


@dataclass(frozen=True)
class Site:
    """One call of a module or function within a step."""

    name: str
    number: int
    """Which call of that name in the step, from 1."""
    types: tuple[str, ...]
    """The function's name, or the module's class and those it derives from."""
    kind: Literal["module", "function"]


Tensors = list[Tensor]
AtEnd = Callable[[Tensors, Tensors], None]
"""Gets what the call made, which may be nothing, and what it took by keyword."""


class Tap(Protocol):
    """Who is told."""

    def wants(self, name: str, types: tuple[str, ...]) -> bool:
        """Whether calls of that name are of interest."""

    def begins(self, site: Site, taken: Tensors) -> AtEnd:
        """The call is about to run on these; what is returned is called once it has run."""


_INSIDE = Call("", "", "module", "forward")
"""Stands for whatever module of torch is being called."""


class Taps(CallWatch):
    """Tells a tap about the calls of each step; nothing is timed, claimed or kept."""

    def __init__(self, model: nn.Module, tap: Tap) -> None:
        super().__init__(model, _Nobody())
        self._tap, self._functions, self._is_open = tap, True, False
        self._given: Any = ()
        self._ends: AtEnd | None = None
        self._stack: list[tuple[str, AtEnd | None]] = []
        self._types: dict[type, tuple[str, ...]] = {}

    @property
    def constants(self) -> frozenset[int]:
        """Ids of the model's parameters and buffers."""
        return frozenset(self._constants)

    def open(self) -> None:
        if self._functions and not self._is_open:
            super().open()
            self._is_open = True

    def close(self) -> None:
        self.leave()
        if self._is_open:
            super().close()
            self._is_open = False

    def see_modules_only(self) -> None:
        """From the next step on; cheaper."""
        self.close()
        self._functions = False

    def enter(self) -> None:
        """A new step: calls are numbered from 1 again."""
        self._numbers, self._flow, self._open = Counter(), DataFlow(), None
        self._frames.clear()
        self._stack.clear()
        self.phase = "forward"
        super().enter()

    def function(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        name = _name(function) if self._open is None else ""
        if not name or not self._tap.wants(self._under_path(name), (name,)):
            return function(*args, **kwargs)
        self._given = (args, kwargs)
        return super().function(function, args, kwargs)

    def _apply(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        self._given = (args, kwargs)
        return super()._apply(cls, *args, **kwargs)

    def _module_begins(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._functions:
            self._go_in(module)
            name = self._frames[-1].path or type(module).__name__
        else:
            name = self._paths.get(id(module)) or type(module).__name__
        types, ends = self._types_of(module), None
        if self._tap.wants(name, types):
            ends = self._begins(name, types, "module", list(tensors_in(args)))
        self._stack.append((name, ends))

    def _module_ends(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        if self._functions:
            self._go_out()
        name, ends = self._stack.pop()
        if ends is not None and len(rest) == 2:
            self._over(name, ends, list(tensors_in(rest[1])), list(tensors_in(rest[0])))

    def _go_in(self, module: nn.Module) -> None:
        """As a layer record does, but nothing is noted: functions inside a call are no calls."""
        if self._frames and self._frames[-1].call is not None:
            self._open_up(self._frames[-1])
        frame = _Frame(self._path_of(module), None, [])
        if self._open is None and _is_torchs_own(module):
            self._switch_mode(on=False)
            frame.call = self._open = _INSIDE
        self._frames.append(frame)

    def _go_out(self) -> None:
        if self._frames.pop().call is not None:
            self._open = None
            self._switch_mode(on=True)

    def _types_of(self, module: nn.Module) -> tuple[str, ...]:
        kind = type(module)
        if kind not in self._types:
            self._types[kind] = types_of(module)
        return self._types[kind]

    def _begin(self, name: str, type: str, kind: Literal["module", "function"]) -> Call:  # noqa: A002
        call = super()._begin(name, type, kind)
        given, self._given, self._ends = self._given, (), None
        if self._tap.wants(call.name, (type,)):
            self._ends = self._begins(call.name, (type,), kind, list(tensors_in(given)))
        return call

    def _note(self, call: Call, taken: list[tuple[Tensor, int]], made: list[Tensor]) -> None:
        ends, self._ends = self._ends, None
        if ends is not None:
            self._over(call.name, ends, made, [])

    def _begins(
        self,
        name: str,
        types: tuple[str, ...],
        kind: Literal["module", "function"],
        taken: Tensors,
    ) -> AtEnd:
        site = Site(name, self._numbers[name] + 1, types, kind)
        with torch._C.DisableTorchFunction():  # what the tap computes is no call of the model's
            return self._tap.begins(site, taken)

    def _over(self, name: str, ends: AtEnd, made: Tensors, by_keyword: Tensors) -> None:
        self._numbers[name] += bool(made)
        with torch._C.DisableTorchFunction():
            ends(made, by_keyword)

    def _under_path(self, name: str) -> str:
        path = self._frames[-1].path if self._frames else ""
        return f"{path}.{name}" if path else name

    def _switch_mode(self, on: bool) -> None:
        if self._functions:
            super()._switch_mode(on)


class _Nobody:
    """An observer of nothing."""

    def begin(self) -> None: ...

    def phase_ends(self, phase: Phase) -> None: ...

    def end(self) -> None: ...

    def forward_begins(self, call: Call) -> None: ...

    def forward_ends(self, call: Call) -> None: ...

    def backward_begins(self, call: Call) -> None: ...

    def backward_ends(self, call: Call) -> None: ...
