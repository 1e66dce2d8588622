"""Counts the work of a step's calls: FLOPs, bytes read and written, memory kept for backward."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from trainlab.instruments.calls.flow import memory_bytes, memory_of, tensors_in
from trainlab.instruments.calls.recorder import Call
from trainlab.measure.flops import formula_for, may_multiply
from trainlab.train.moments import Phase

OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_"}
"""Operators that write their first argument without reading it."""


class WorkCounter(TorchDispatchMode):
    """Sees every operator of one step and counts it for the call that runs; nothing is timed."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.uncounted: set[str] = set()
        self._running: tuple[Call, bool] | None = None
        """The call and whether it runs backward."""
        self._made: set[int] = set()
        self._kept: set[int] = set()
        self._counting, self._saving = ExitStack(), ExitStack()

    def begin(self) -> None:
        self._saving.enter_context(saved_tensors_hooks(self._save, lambda tensor: tensor))
        self._counting.enter_context(self)

    def phase_ends(self, phase: Phase) -> None:
        if phase == "loss":
            self._saving.close()

    def end(self) -> None:
        """The step is over, or broke off."""
        self._counting.close()
        self._saving.close()

    def forward_begins(self, call: Call) -> None:
        self._running = (call, False)

    def forward_ends(self, call: Call) -> None:
        self._running = None

    def backward_begins(self, call: Call) -> None:
        self._running = (call, True)

    def backward_ends(self, call: Call) -> None:
        self._running = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        formula = formula_for(func)
        if formula is None and isinstance(func, torch._ops.OpOverload):
            # What is made of other operators is counted by those, as torch's own counter does.
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        taken, made = list(tensors_in((args, kwargs))), list(tensors_in(result))
        if not made:
            return result
        held = {memory_of(tensor) for tensor in taken}
        self._made |= {key for key in map(memory_of, made) if key is not None} - held
        if self._running is None:
            return result
        if formula is None or any(tensor.is_nested for tensor in taken):
            flops = 0
            if may_multiply(func):
                self.uncounted.add(str(getattr(func, "_overloadpacket", func)))
        else:
            flops = int(formula(*args, **kwargs, out_val=result))
        self._add(flops, _traffic_bytes(func, taken, made))
        return result

    def _add(self, flops: int, num_bytes: int) -> None:
        assert self._running is not None
        call, backward = self._running
        if backward:
            call.backward_flops += flops
            call.backward_bytes += num_bytes
        else:
            call.forward_flops += flops
            call.forward_bytes += num_bytes

    def _save(self, tensor: Tensor) -> Tensor:
        """Counts memory that this step made; parameters and the batch were there before."""
        memory = memory_of(tensor)
        if self._running is not None and memory in self._made - self._kept:
            self._kept.add(memory)
            self._running[0].saved_bytes += memory_bytes(tensor)
        return tensor


def _traffic_bytes(operator: Any, taken: list[Tensor], made: list[Tensor]) -> int:
    """Bytes of what an operator reads and writes, each tensor once; none where it only looks anew."""
    name = getattr(getattr(operator, "_overloadpacket", operator), "__name__", "")
    schema = getattr(operator, "_schema", None)
    held = {memory_of(tensor) for tensor in taken}
    is_view = not getattr(schema, "is_mutable", False) and {memory_of(t) for t in made} <= held
    if is_view or name.startswith(("empty", "new_empty")):
        return 0
    read = {id(tensor): tensor for tensor in taken[1 if name in OVERWRITES else 0 :]}
    written = {id(tensor): tensor for tensor in made}
    return sum(_bytes(tensor) for tensor in [*read.values(), *written.values()])


def _bytes(tensor: Tensor) -> int:
    # An expanded tensor has more elements than memory.
    if tensor.is_nested or not torch._C._has_storage(tensor):
        return memory_bytes(tensor)
    return min(tensor.numel() * tensor.element_size(), memory_bytes(tensor))
