"""Counts the work of a step's calls: FLOPs, bytes read and written, memory kept for the backward pass."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from trainlab.instruments.calls.flow import storage_bytes, storage_id, tensors_in
from trainlab.instruments.calls.recorder import PassCost
from trainlab.measure.flops import formula_for, may_multiply
from trainlab.train.moments import Phase

OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_"}
"""Operators that write their first argument without reading it."""


class WorkCounter(TorchDispatchMode):
    """Sees every operator of one step and adds its work to the call that runs; nothing is timed."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.uncounted: set[str] = set()
        self._running: PassCost | None = None
        self._new_storages: set[int] = set()
        """Made in this step; parameters and the batch were there before."""
        self._saved_storages: set[int] = set()
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

    def pass_begins(self, cost: PassCost) -> None:
        self._running = cost

    def pass_ends(self, cost: PassCost) -> None:
        self._running = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        formula = formula_for(func)
        if formula is None and isinstance(func, torch._ops.OpOverload):
            # An operator made of others is counted by those, as torch's own counter does.
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        inputs, outputs = list(tensors_in((args, kwargs))), list(tensors_in(result))
        if not outputs:
            return result
        storages = {storage for storage in map(storage_id, outputs) if storage is not None}
        self._new_storages |= storages - set(map(storage_id, inputs))
        if self._running is None:
            return result
        self._running.num_bytes += _traffic_bytes(func, inputs, outputs)
        if formula is not None and not any(tensor.is_nested for tensor in inputs):
            self._running.flops += int(formula(*args, **kwargs, out_val=result))
        elif may_multiply(func):
            self.uncounted.add(str(getattr(func, "_overloadpacket", func)))
        return result

    def _save(self, tensor: Tensor) -> Tensor:
        """Counts each storage once, and only those that this step made."""
        storage = storage_id(tensor)
        if self._running is not None and storage in self._new_storages - self._saved_storages:
            self._saved_storages.add(storage)
            self._running.saved_bytes += storage_bytes(tensor)
        return tensor


def _traffic_bytes(operator: Any, inputs: list[Tensor], outputs: list[Tensor]) -> int:
    """Bytes an operator reads and writes, each tensor once; none where it only makes a view."""
    name = getattr(getattr(operator, "_overloadpacket", operator), "__name__", "")
    is_mutable = getattr(getattr(operator, "_schema", None), "is_mutable", False)
    is_view = not is_mutable and set(map(storage_id, outputs)) <= set(map(storage_id, inputs))
    if is_view or name.startswith(("empty", "new_empty")):
        return 0
    read = {id(tensor): tensor for tensor in inputs[1 if name in OVERWRITES else 0 :]}
    written = {id(tensor): tensor for tensor in outputs}
    return sum(_bytes(tensor) for tensor in [*read.values(), *written.values()])


def _bytes(tensor: Tensor) -> int:
    # An expanded tensor has more elements than memory.
    if tensor.is_nested or not torch._C._has_storage(tensor):
        return storage_bytes(tensor)
    return min(tensor.numel() * tensor.element_size(), storage_bytes(tensor))
