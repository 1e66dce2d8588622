"""Whose backward work is whose: each node of the autograd graph belongs to the call that made it."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from torch import Tensor

Owner = TypeVar("Owner")


class NodeOwners(Generic[Owner]):
    """Gives each node of one step's graph to the first call whose outputs lead to it."""

    def __init__(self, begins: Callable[[Owner], None], ends: Callable[[Owner], None]) -> None:
        """Both are told of the owner of a node, before it runs and after."""
        self._begins, self._ends = begins, ends
        # Kept until the step ends: torch wraps a node anew once the wrapper is gone, and we would
        # not know it again.
        self._owned: set[Any] = set()

    def claim(self, owner: Owner, outputs: Iterable[Tensor]) -> None:
        """Gives it what lies between these outputs and nodes that have an owner."""
        waiting = [output.grad_fn for output in outputs]
        while waiting:
            node: Any = waiting.pop()
            if node is None or node in self._owned or type(node).__name__ == "AccumulateGrad":
                continue
            self._owned.add(node)
            node.register_prehook(lambda grads: self._begins(owner))
            node.register_hook(lambda inputs, outputs: self._ends(owner))
            waiting += [following for following, _ in node.next_functions]

    def release(self) -> None:
        """Lets go of the graph."""
        self._owned.clear()
