"""One number of one tensor: its sum, its sum of squares, its counts; accurate, and soon done.

Each function says for a device with or without float64 how a tensor is reduced.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

ROW = 64
"""Elements that a CPU adds in float32 before float64 takes over, seven times as fast as float64
alone: at most eight roundings each, an error below 1e-6."""
SQUARES = 512
"""Elements whose squares a matrix product adds in float32, a fifth sooner done: in 32 lanes or more, so at
most 16 roundings each, and those of many rows are random."""
FEW = 1 << 14
"""Fewer elements are sooner done in float64."""
ONE_SIGN = 0.5
"""A sum this near to that of its rows' magnitudes does not cancel, so rows are exact enough."""
SMALLEST_SQUARE = 1e-30
"""A mean square below it may have lost elements to underflow in float32."""
CHUNK = 1 << 20
"""Elements compared at once: bounds the memory that counting needs, and is exact in float32."""

Reduce = Callable[[Tensor], Tensor]


def total(exact: bool) -> Reduce:
    """The sum of all elements."""
    return _total if exact else lambda values: values.sum(dtype=torch.float32)


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


def _total(values: Tensor) -> Tensor:
    if (rows := _rows(values)) is not None:
        row_sums = rows[0].sum(dim=1)
        found = row_sums.sum(dtype=torch.float64)
        if abs(float(found)) >= ONE_SIGN * float(row_sums.abs().sum(dtype=torch.float64)):
            return found + rows[1].sum(dtype=torch.float64)
    return values.sum(dtype=torch.float64)


def _square_sum(values: Tensor) -> Tensor:
    # A product may be asked to be less than exact; then sums are taken the long way.
    is_exact = torch.get_float32_matmul_precision() == "highest"
    if is_exact and (rows := _rows(values, SQUARES)) is not None:
        across = rows[0].unsqueeze(1)
        found = torch.bmm(across, across.mT).sum(dtype=torch.float64)
        if SMALLEST_SQUARE < float(found) / values.numel() < math.inf:
            return found + _norm(rows[1]).square()
    return _norm(values).square()


def _norm(values: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(values, dtype=torch.float64)
    return found


def _rows(values: Tensor, length: int = ROW) -> tuple[Tensor, Tensor] | None:
    """The elements as rows and what is left over, on a CPU, where reading a number waits for nothing."""
    if values.device.type != "cpu" or values.dtype != torch.float32 or values.numel() < FEW:
        return None
    row = in_memory_order(values)
    if row is None:
        return None
    whole = row.numel() - row.numel() % length
    return row[:whole].view(-1, length), row[whole:]


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
