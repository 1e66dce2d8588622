"""One number of one tensor: its sum, its sum of squares, its counts; accurate and fast.

`exact` sums are taken in float64, others in float32 alone, for a device without float64.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

ROW = 64
"""Elements that a CPU adds in float32 before float64 takes over, seven times as fast as float64
alone: at most eight roundings each, an error below 1e-6."""
SQUARES_ROW = 512
"""Elements whose squares a matrix product adds in float32, a fifth faster: in 32 lanes or more, so at
most 16 roundings each, and those of many rows are random."""
MIN_ELEMENTS = 1 << 14
"""Fewer elements are faster in float64."""
MIN_SUM_SHARE = 0.5
"""A sum of at least this share of its rows' magnitudes has not cancelled, so rows are exact enough."""
MIN_MEAN_SQUARE = 1e-30
"""A mean square below it may have lost elements to underflow in float32."""
CHUNK = 1 << 20
"""Elements compared at once: bounds the memory that counting needs, and is exact in float32."""


def total(values: Tensor, exact: bool) -> Tensor:
    """The sum of all elements."""
    if not exact:
        return values.sum(dtype=torch.float32)
    if (rows := _rows(values, ROW)) is not None:
        row_sums = rows[0].sum(dim=1)
        rows_sum = row_sums.sum(dtype=torch.float64)
        magnitude = float(row_sums.abs().sum(dtype=torch.float64))
        if abs(float(rows_sum)) >= MIN_SUM_SHARE * magnitude:
            return rows_sum + rows[1].sum(dtype=torch.float64)
    return values.sum(dtype=torch.float64)


def square_sum(values: Tensor, exact: bool) -> Tensor:
    """The sum of squares of all elements."""
    if not exact:
        return values.float().square().sum()
    # The user may allow matrix products to be less than exact; then they are not used.
    products_are_exact = torch.get_float32_matmul_precision() == "highest"
    if products_are_exact and (rows := _rows(values, SQUARES_ROW)) is not None:
        across = rows[0].unsqueeze(1)
        rows_sum = torch.bmm(across, across.mT).sum(dtype=torch.float64)
        if MIN_MEAN_SQUARE < float(rows_sum) / values.numel() < math.inf:
            return rows_sum + _square_sum_in_float64(rows[1])
    return _square_sum_in_float64(values)


def count_zero(values: Tensor, exact: bool) -> Tensor:
    """How many elements are zero."""
    return _count(torch.eq, values, exact)


def count_positive(values: Tensor, exact: bool) -> Tensor:
    """How many elements are above zero."""
    return _count(torch.gt, values, exact)


def units_above(values: Tensor, dimension: int) -> Tensor:
    """For every unit, of which that dimension has one each, whether any of its elements is above zero."""
    others = [dim for dim in range(values.dim()) if dim != dimension]
    return (values.amax(dim=others) if others else values) > 0


def in_memory_order(values: Tensor) -> Tensor | None:
    """The elements as one row in the order of memory, without a copy; None where that cannot be."""
    if values.is_contiguous():
        return values.view(-1)
    order = sorted(range(values.dim()), key=values.stride, reverse=True)
    permuted = values.permute(order)
    return permuted.view(-1) if permuted.is_contiguous() else None


def _square_sum_in_float64(values: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(values, dtype=torch.float64)
    return norm.square()


def _rows(values: Tensor, length: int) -> tuple[Tensor, Tensor] | None:
    """The elements as rows and what is left over, on a CPU, where reading a number waits for nothing."""
    if (
        values.device.type != "cpu"
        or values.dtype != torch.float32
        or values.numel() < MIN_ELEMENTS
    ):
        return None
    elements = in_memory_order(values)
    if elements is None:
        return None
    in_rows = elements.numel() - elements.numel() % length
    return elements[:in_rows].view(-1, length), elements[in_rows:]


def _count(compare: Callable[..., Tensor], values: Tensor, exact: bool) -> Tensor:
    """Through float32 where that is exact: adding up truth values is slower."""
    elements = in_memory_order(values)
    elements = values.reshape(-1) if elements is None else elements
    counts = []
    for chunk in elements.split(CHUNK) if elements.numel() else [elements]:
        if chunk.dtype == torch.float32:
            counts.append(compare(chunk, 0, out=torch.empty_like(chunk)).sum())
        else:
            counts.append(compare(chunk, 0).sum().float())
    dtype = torch.float64 if exact else torch.float32
    return torch.stack(counts).sum(dtype=dtype) if len(counts) > 1 else counts[0].to(dtype)
