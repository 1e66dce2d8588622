"""Which call of a step each tensor came from: the edges of its data-flow graph."""

import weakref
from collections.abc import Iterable

import torch
from torch import Tensor, nn

BATCH = -1
"""The source of what the model and the loss were given."""


class DataFlow:
    """The sources of the tensors of one step. Holds no tensor: watching must not cost memory."""

    def __init__(self) -> None:
        self._sources: dict[int, tuple[weakref.ref[Tensor], frozenset[int]]] = {}
        self._writers: dict[int, int] = {}

    def set_sources(self, tensors: Iterable[Tensor], sources: Iterable[int]) -> None:
        """These tensors come from these calls."""
        calls = frozenset(sources)
        for tensor in tensors:
            self._sources[id(tensor)] = (weakref.ref(tensor), calls)

    def set_writer(self, tensors: Iterable[Tensor], call: int) -> None:
        """The call changed these in place, and so every view of their memory."""
        for tensor in tensors:
            self.set_sources([tensor], [call])
            if (storage := storage_id(tensor)) is not None:
                self._writers[storage] = call

    def has_sources(self, tensor: Tensor) -> bool:
        """Whether the tensor's sources are set; its id alone may be that of a tensor freed since."""
        entry = self._sources.get(id(tensor))
        return entry is not None and entry[0]() is tensor

    def sources(self, tensors: Iterable[Tensor]) -> set[int]:
        """The calls these came from, or were last changed by; none for constants."""
        calls: set[int] = set()
        for tensor in filter(self.has_sources, tensors):
            came_from = self._sources[id(tensor)][1]
            writer = self._writers.get(storage_id(tensor) or 0) if self._writers else None
            # A writer before the source no longer counts: the source read what it wrote, or the memory
            # was freed in between.
            if writer is not None and writer > max(came_from, default=BATCH):
                calls.add(writer)
            else:
                calls |= came_from
        return calls


def constants_of(model: nn.Module) -> frozenset[int]:
    """Ids of the model's parameters and buffers."""
    return frozenset(id(tensor) for tensor in [*model.parameters(), *model.buffers()])


def storage_id(tensor: Tensor) -> int | None:
    """Equal for two living tensors if they share memory; None for one without, such as a sparse one."""
    if not torch._C._has_storage(tensor):
        return None
    return int(tensor.untyped_storage()._cdata)


def storage_bytes(tensor: Tensor) -> int:
    """All the memory that the tensor keeps alive: a view keeps that of its whole base."""
    return tensor.untyped_storage().nbytes() if torch._C._has_storage(tensor) else 0


def version_of(tensor: Tensor) -> int:
    """Counts changes in place; always 0 where torch does not track them."""
    return 0 if tensor.is_inference() else tensor._version
