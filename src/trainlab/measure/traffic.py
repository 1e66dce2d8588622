"""Bytes that an operator reads and writes, each tensor once; of a table, the rows that it reaches."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trainlab.data.nesting import tensors_in
from trainlab.instruments.calls import storage_bytes, storage_id

OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_"}
"""Operators that write their first argument without reading it."""
READS_ROWS = {"embedding", "index", "index_select", "gather", "take", "_embedding_bag"}
"""Operators that read of their first argument only what their indices name."""
WRITES_ROWS = {
    *("index_put_", "_index_put_impl_", "index_add_", "index_copy_", "index_fill_"),
    *("scatter_", "scatter_add_", "scatter_reduce_"),
}
"""Operators that change of their first argument only what their indices name."""
PARTS_OF_SPARSE = {"_indices", "_values", "indices", "values", "_coalesced_"}
NOT_WRITTEN = {"grads"}
"""Marked as written in the fused optimizers' schemas, but only where gradients are scaled."""


def traffic_bytes(operator: Any, args: tuple[Any, ...], kwargs: Any, result: Any) -> int:
    """None where the operator only makes a view, or memory that nobody has written to."""
    name = getattr(getattr(operator, "_overloadpacket", operator), "__name__", "")
    inputs, outputs = list(tensors_in((args, kwargs))), list(tensors_in(result))
    is_mutable = getattr(getattr(operator, "_schema", None), "is_mutable", False)
    is_view = not is_mutable and set(map(storage_id, outputs)) <= set(map(storage_id, inputs))
    makes_nothing = name.startswith(("empty", "new_empty", "_sparse_coo_tensor"))
    if is_view or makes_nothing or name in PARTS_OF_SPARSE:
        return 0
    read = {id(tensor): tensor for tensor in inputs}
    written = {id(tensor): tensor for tensor in [*outputs, *_written(operator, args, kwargs)]}
    num_bytes = sum(map(num_bytes_of, [*read.values(), *written.values()]))
    return num_bytes - (_not_reached(name, inputs, outputs) if inputs else 0)


def num_bytes_of(tensor: Tensor) -> int:
    """Of its elements; of a sparse one, of its values and their indices."""
    if tensor.layout == torch.sparse_coo:
        return num_bytes_of(tensor._indices()) + num_bytes_of(tensor._values())
    # An expanded tensor has more elements than memory.
    if tensor.is_nested or not torch._C._has_storage(tensor):
        return storage_bytes(tensor)
    return min(tensor.numel() * tensor.element_size(), storage_bytes(tensor))


def _not_reached(name: str, inputs: list[Tensor], outputs: list[Tensor]) -> int:
    """Bytes of the first argument that were counted as read or written and are not."""
    table, others = inputs[0], inputs[1:]
    whole = num_bytes_of(table)
    if name in OVERWRITES:
        return whole
    if name in READS_ROWS:
        rows = num_bytes_of(outputs[0])
        if name == "_embedding_bag":
            rows = others[0].numel() * (whole // max(1, len(table)))
        return max(0, whole - rows)
    is_sparse_sum = name == "add_" and others and others[0].layout == torch.sparse_coo
    if name in WRITES_ROWS or is_sparse_sum:
        values = max((num_bytes_of(t) for t in others if t.is_floating_point()), default=0)
        return 2 * max(0, whole - values)
    return 0


def _written(operator: Any, args: tuple[Any, ...], kwargs: Any) -> Iterator[Tensor]:
    """Arguments that the operator changes: those of a list are in no result."""
    schema = getattr(operator, "_schema", None)
    for place, argument in enumerate(schema.arguments if schema is not None else ()):
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written and argument.name not in NOT_WRITTEN:
            yield from tensors_in(args[place] if place < len(args) else kwargs.get(argument.name))
