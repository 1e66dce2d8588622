"""What a CallWatch reports to its listener about the calls of a step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

Kind = Literal["module", "function"]
Role = Literal["call", "container", "inner"]
"""`call`: one call of its own; `container`: a module whose own calls are seen one by one; `inner`: a
module that runs inside another call."""


@dataclass(eq=False, slots=True)
class WatchedCall:
    """One call of a module or function within a step."""

    name: str
    number: int
    """Which call of that name in the step, from 1."""
    types: tuple[str, ...]
    """The function's name, or the module's class and those it derives from."""
    module: nn.Module | None
    """None for a function."""
    role: Role
    """A torch.nn module begins as a call and becomes a container once it calls another module."""
    container: "WatchedCall | None"
    """The module that makes this call, where the listener wanted that one too."""

    @property
    def type_name(self) -> str:
        """The function's name, or the module's class."""
        return self.types[0] if self.module is None else type(self.module).__name__

    @property
    def kind(self) -> Kind:
        """Whether a module or a function is called."""
        return "function" if self.module is None else "module"


EndListener = Callable[[Any, Any], bool]
"""Gets what the call returned and, of a module, its keyword arguments; not called if it raised.

Returns whether the call counts: then the next one of that name gets the next number.
"""


class CallListener:
    """Overrides what it needs.

    Functions are seen while a container begins and ends. A listener that computes with tensors there
    does so under `torch._C.DisableTorchFunction()`, or its own computations would be reported as calls.
    """

    def wants(self, name: str, types: tuple[str, ...]) -> bool:
        """Comes before anything else is done for a call; one not wanted is not reported further."""
        return True

    def call_begins(self, call: WatchedCall, arguments: Any) -> EndListener | None:
        """The call is about to run; a module's keyword arguments are only known at its end.

        Returns what to call at its end; a call without it does not count in the numbering.
        """
        return None

    def becomes_container(self, call: WatchedCall, arguments: Any) -> None:
        """A torch.nn module that began as one call is about to call another module."""

    def property_read(self, arguments: Any, value: Any) -> None:
        """A property of a tensor was read, such as `.data`: no call, but its value may be a tensor."""
