"""One number of one tensor: its sum, its sum of squares, its counts; accurate, and soon done.

Each function says for a device with or without float64 how a tensor is reduced.
"""

from collections.abc import Callable

import torch
from torch import Tensor

ROW = 64
"""Elements whose squares are added in float32 before float64 takes over: an error below 1e-6."""
SMALLEST_SQUARE = 1e-30
"""A mean square below it may have lost elements to underflow in float32."""
CHUNK = 1 << 20
"""Elements compared at once: bounds the memory that counting needs, and is exact in float32."""

Reduce = Callable[[Tensor], Tensor]


def total(exact: bool) -> Reduce:
    """The sum of all elements."""
    dtype = torch.float64 if exact else torch.float32
    return lambda values: values.sum(dtype=dtype)


def square_sum(exact: bool) -> Reduce:
    """The sum of squares of all elements."""
    return _square_sum if exact else lambda values: values.float().square().sum()


def count_zero(exact: bool) -> Reduce:
    """How many elements are zero."""
    return lambda values: _count(torch.eq, values, exact)


def count_positive(exact: bool) -> Reduce:
    """How many elements are above zero."""
    return lambda values: _count(torch.gt, values, exact)


def units_above(values: Tensor) -> Tensor:
    """For every unit whether any of its elements is above zero; see DeadUnits for what a unit is."""
    unit = 1 if values.dim() >= 4 else max(values.dim() - 1, 0)
    others = [dim for dim in range(values.dim()) if dim != unit]
    found = values.amax(dim=others) if others else values
    return found > 0


def in_memory_order(values: Tensor) -> Tensor | None:
    """The elements in a row without a copy, in whatever order they lie; None where they cannot be."""
    if values.is_contiguous():
        return values.view(-1)
    order = sorted(range(values.dim()), key=values.stride, reverse=True)
    turned = values.permute(order)
    return turned.view(-1) if turned.is_contiguous() else None


def _square_sum(values: Tensor) -> Tensor:
    norm = _row_norm(values) if values.device.type == "cpu" else None
    if norm is None:
        norm = torch.linalg.vector_norm(values, dtype=torch.float64)
    return norm.square()


def _row_norm(values: Tensor) -> Tensor | None:
    """The norm by rows of float32, seven times as fast on a CPU; None where that could be inexact."""
    if values.dtype != torch.float32 or values.numel() < 16 * ROW:
        return None
    row = in_memory_order(values)
    if row is None:
        return None
    whole = row.numel() - row.numel() % ROW
    norms = torch.linalg.vector_norm(row[:whole].view(-1, ROW), dim=1)
    norm = torch.linalg.vector_norm(norms, dtype=torch.float64)
    if whole < row.numel():
        rest = torch.linalg.vector_norm(row[whole:], dtype=torch.float64)
        norm = torch.hypot(norm, rest)
    # On a CPU there is nothing to wait for.
    return norm if float(norm) ** 2 / row.numel() > SMALLEST_SQUARE and norm.isfinite() else None


def _count(compare: Callable[..., Tensor], values: Tensor, exact: bool) -> Tensor:
    """Through float32 where that is exact: adding up truth values is slower."""
    row = in_memory_order(values)
    row = values.reshape(-1) if row is None else row
    counts = []
    for chunk in row.split(CHUNK) if row.numel() else [row]:
        if chunk.dtype == torch.float32:
            counts.append(compare(chunk, 0, out=torch.empty_like(chunk)).sum())
        else:
            counts.append(compare(chunk, 0).sum().float())
    dtype = torch.float64 if exact else torch.float32
    return torch.stack(counts).sum(dtype=dtype) if len(counts) > 1 else counts[0].to(dtype)
