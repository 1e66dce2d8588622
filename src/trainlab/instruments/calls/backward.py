"""Which call's backward work a node of the autograd graph is: that of the call that made the node."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor


class BackwardHooks:
    """Hooks on the nodes of one step's graph; a node belongs to the first call whose outputs lead to it."""

    def __init__(self) -> None:
        # Kept until the step ends: torch wraps a node anew once the wrapper is gone, and we would
        # not know it again.
        self._claimed: set[Any] = set()

    def claim(
        self, outputs: Iterable[Tensor], begins: Callable[[], None], ends: Callable[[], None]
    ) -> None:
        """Has `begins` and `ends` called around each node from these outputs back to claimed nodes."""
        waiting = [output.grad_fn for output in outputs]
        while waiting:
            node: Any = waiting.pop()
            if node is None or node in self._claimed or type(node).__name__ == "AccumulateGrad":
                continue
            self._claimed.add(node)
            node.register_prehook(lambda grads: begins())
            node.register_hook(lambda inputs, outputs: ends())
            waiting += [next_node for next_node, _ in node.next_functions]

    def release(self) -> None:
        """Lets go of the graph."""
        self._claimed.clear()
