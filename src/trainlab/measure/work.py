"""Counts the work of a step's calls: FLOPs, bytes read and written, memory kept for the backward pass."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from trainlab.data.nesting import tensors_in
from trainlab.instruments.calls import PassCost, storage_bytes, storage_id
from trainlab.measure.flops import formula_for, kind_of, may_multiply
from trainlab.measure.traffic import traffic_bytes
from trainlab.train.callbacks import Phase


class WorkCounter(TorchDispatchMode):
    """Sees every operator of one step and adds its work to the call that runs; nothing is timed."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.uncounted: set[str] = set()
        self.between, self.optimizer = PassCost(), PassCost()
        """The work of no call: up to the end of a backward pass, and from there to the next call."""
        self._rest = self.between
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
        elif phase == "backward":
            self._rest = self.optimizer

    def passes_go_on(self) -> None:
        self._saving.enter_context(saved_tensors_hooks(self._save, lambda tensor: tensor))

    def end(self) -> None:
        """The step is over, or broke off."""
        self._counting.close()
        self._saving.close()

    def pass_begins(self, cost: PassCost) -> None:
        self._running, self._rest = cost, self.between

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
        if not inputs and not outputs:
            return result
        storages = {storage for storage in map(storage_id, outputs) if storage is not None}
        self._new_storages |= storages - set(map(storage_id, inputs))
        cost = self._running or self._rest
        cost.num_bytes += traffic_bytes(func, args, kwargs, result)
        if formula is not None and not any(tensor.is_nested for tensor in inputs):
            cost.add_flops(kind_of(func), int(formula(*args, **kwargs, out_val=result)))
        elif self._running is not None and outputs and may_multiply(func):
            self.uncounted.add(str(getattr(func, "_overloadpacket", func)))
        return result

    def _save(self, tensor: Tensor) -> Tensor:
        """Counts each storage once, and only those that this step made."""
        storage = storage_id(tensor)
        if self._running is not None and storage in self._new_storages - self._saved_storages:
            self._saved_storages.add(storage)
            self._running.saved_bytes += storage_bytes(tensor)
        return tensor
