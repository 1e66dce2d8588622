"""Quantities of a call: which tensor it is about, its own derivative, the gradients that pass it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from trainlab.errors import SpecError
from trainlab.spec.probe import ProbeSpec

NO_TENSOR = "no_tensor"
NO_GRADIENT_OUT = "no_gradient_out"
NO_GRADIENT_IN = "no_gradient_in"
CUT_OFF = "cut_off"
NEVER_ARRIVED = "never_arrived"
OTHER_OUTPUT = "other_output"
NO_PARAMETER_GRADIENT = "no_parameter_gradient"
"""Why a probe does not fire; the sentences are `silent_…` in `trainlab.words`."""

SLOPES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda out: (out > 0).to(out.dtype),
    "relu6": lambda out: ((out > 0) & (out < 6)).to(out.dtype),
    "sigmoid": lambda out: out * (1 - out),
    "tanh": lambda out: 1 - out * out,
}
"""The derivative of element-wise layers, from their output: so in-place ones can be asked as well."""


def slope_of(spec: ProbeSpec, types: Iterable[str]) -> Callable[[Tensor], Tensor]:
    """A layer's own derivative as a function of its output; SpecError where none is known."""
    named = [name.lower().rstrip("_") for name in types]
    for name in named:
        if name in SLOPES:
            return SLOPES[name]
    raise SpecError(
        [
            f"probe {spec}: local_grad of {named[0]} is not known; it is for "
            f"{', '.join(SLOPES)}; probe grad_input for the gradient that flows through"
        ]
    )


def counts_positive(spec: ProbeSpec, types: Iterable[str]) -> bool:
    """Whether the reduced derivative is the number of positive outputs: at a ReLU it is 1 or 0."""
    is_relu = any(name.lower().rstrip("_") == "relu" for name in types)
    return spec.quantity == "local_grad" and spec.reducer in ("sum", "sq_sum") and is_relu


def main_tensor(
    tensors: Iterable[Tensor], constants: frozenset[int] = frozenset()
) -> Tensor | None:
    """The first floating-point tensor, one that is no parameter or buffer if there is such a one."""
    usable = [
        tensor
        for tensor in tensors
        if tensor.is_floating_point() and not tensor.is_nested and tensor.layout == torch.strided
    ]
    moving = [tensor for tensor in usable if id(tensor) not in constants]
    return next(iter(moving or usable), None)


def edge_of(tensor: Tensor) -> tuple[Any, int] | None:
    """Where the gradient of a tensor goes: a node of the graph and the place in it."""
    if not tensor.requires_grad:
        return None
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def next_number() -> int:
    """The number the next node of the graph will have: tells apart what a call adds to it."""
    return int(torch._C._autograd._get_sequence_nr())


def edges_into(outputs: Iterable[Tensor], since: int, target: tuple[Any, int]) -> Iterator[Any]:
    """Nodes made since then that hand gradients to the target, each with the places it does so."""
    pending, seen = [output.grad_fn for output in outputs], set()
    while pending:
        node: Any = pending.pop()
        if node is None or node in seen or not _is_since(node, since):
            continue
        seen.add(node)
        following = node.next_functions
        places = [
            i for i, edge in enumerate(following) if edge[0] is target[0] and edge[1] == target[1]
        ]
        if places:
            yield node, places
        pending += [next_node for next_node, _ in following]


def _is_since(node: Any, since: int) -> bool:
    return type(node).__name__ != "AccumulateGrad" and bool(node._sequence_nr() >= since)


class Gathered:
    """The gradient of one input, added up from the parts that several nodes hand to it."""

    def __init__(self, num_parts: int, done: Callable[[Tensor], None]) -> None:
        self._num_parts = self._num_missing = num_parts
        self._done = done
        self._sum: Tensor | None = None
        self._is_done = False

    def add(self, part: Tensor | None) -> None:
        """One part, or none where a node had nothing to give."""
        self._num_missing -= 1
        if part is not None:
            self._sum = part if self._sum is None else self._sum + part
        if self._num_missing == 0:
            self.finish()

    def finish(self) -> bool:
        """What has come is all that this pass gives; whether anything has, by now or before."""
        has_come = self._num_missing < self._num_parts or self._is_done
        total, self._sum, self._num_missing = self._sum, None, self._num_parts
        if total is not None:
            self._done(total)
        self._is_done = has_come
        return has_come
