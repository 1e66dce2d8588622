"""Whose backward work is whose: each node of the autograd graph belongs to the call that made it."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from torch import Tensor

Owner = TypeVar("Owner")


class Claims(Generic[Owner]):
    """The nodes of one step's graph, each claimed by the first call whose outputs lead to it."""

    def __init__(self, begins: Callable[[Owner], None], ends: Callable[[Owner], None]) -> None:
        self._begins, self._ends = begins, ends
        # Held until the step ends: a node is known by its wrapper, and that must not be made anew.
        self._claimed: set[Any] = set()

    def claim(self, owner: Owner, outputs: Iterable[Tensor]) -> None:
        """Claims what lies between these outputs and nodes claimed before."""
        waiting = [output.grad_fn for output in outputs]
        while waiting:
            node: Any = waiting.pop()
            if node is None or node in self._claimed or type(node).__name__ == "AccumulateGrad":
                continue
            self._claimed.add(node)
            node.register_prehook(lambda grads: self._begins(owner))
            node.register_hook(lambda inputs, outputs: self._ends(owner))
            waiting += [following for following, _ in node.next_functions]

    def release(self) -> None:
        """Lets go of the graph."""
        self._claimed.clear()
