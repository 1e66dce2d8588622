"""Batches of any nesting: tensors in tuples, lists, mappings, dataclasses, and objects with a `to`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


def moved(batch: Any, device: torch.device) -> Any:
    """The same nesting with its tensors on the device; what is no tensor stays as it is."""

    def move(one: Any) -> Any:
        if isinstance(one, Tensor):
            return one if one.device == device else one.to(device, non_blocking=True)
        return one.to(device)

    return _changed(batch, move)


def detached(outputs: Any) -> Any:
    """The same nesting without the graph of its gradients."""
    return _changed(outputs, lambda one: one.detach() if isinstance(one, Tensor) else one)


def first_of(batch: Any, num: int) -> Any:
    """The same nesting with its first so many samples, copied; whole where it has none or holds a sparse
    tensor, which cannot be cut."""
    size = count_of(batch)
    is_cut = all(one.layout == torch.strided for one in tensors_in(batch))

    def cut(one: Any) -> Any:
        if not isinstance(one, Tensor):
            return one
        has_samples = is_cut and one.dim() and len(one) == size
        return (one[:num] if has_samples else one).detach().clone()

    return _changed(batch, cut)


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Every tensor of a nesting, in order; once per occurrence."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from tensors_in(value)
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from tensors_in(value)
    elif isinstance(values, nn.Module | type):
        return  # has a `to` and fields, but is no batch
    elif is_dataclass(values) or hasattr(values, "to"):
        for value in vars(values).values() if hasattr(values, "__dict__") else ():
            yield from tensors_in(value)


def sized(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Those that have a size: the weights of a lazy layer have none until it is called."""
    return [one for one in tensors if not is_lazy(one)]


def count_of(batch: Any) -> int:
    """Its samples: the length of its first tensor; 1 where it has none."""
    first = next((one for one in tensors_in(batch) if one.dim()), None)
    return 1 if first is None else len(first)


def _changed(batch: Any, change: Callable[[Any], Any]) -> Any:
    """The same nesting with its tensors, and objects that move themselves, changed."""
    if isinstance(batch, Tensor) or hasattr(batch, "to"):
        return change(batch)
    if isinstance(batch, Mapping):
        changed = {name: _changed(value, change) for name, value in batch.items()}
        return changed if type(batch) is dict else type(batch)(changed)  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*[_changed(value, change) for value in batch])
    if isinstance(batch, tuple | list):
        return type(batch)(_changed(value, change) for value in batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        own = [one.name for one in fields(batch) if one.init]
        return replace(batch, **{name: _changed(getattr(batch, name), change) for name in own})
    return batch
