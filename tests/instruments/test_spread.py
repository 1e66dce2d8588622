"""The standard deviation of a period against float64 on all its elements."""

import math

import pytest
import torch
from torch import Tensor

from trainlab.instruments.probes.reducers import reduction_for
from trainlab.spec.probe import probe_of

STD = probe_of("x:activation:std")
CPU = torch.device("cpu")


def std_of(tensors: list[Tensor]) -> float:
    reduction = reduction_for(STD, None, CPU)
    for tensor in tensors:
        reduction.add(tensor)
    count = sum(tensor.numel() for tensor in tensors)
    value = reduction.read(reduction.close().tolist(), count, len(tensors))
    assert isinstance(value, float)
    return value


@pytest.mark.parametrize("offset", [0.0, 1.0, -1e3, 1e6])
@pytest.mark.parametrize("num_tensors", [1, 3, 200])
@pytest.mark.parametrize("size", [7, 40_000])
def test_the_spread_is_right_whatever_the_mean(offset: float, num_tensors: int, size: int) -> None:
    if num_tensors * size > 1e6:
        num_tensors = 70
    draw = torch.Generator().manual_seed(3)
    tensors = [torch.randn(size, generator=draw) + offset for _ in range(num_tensors)]
    wanted = float(torch.cat(tensors).double().std(correction=0))
    assert std_of(tensors) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_are_taken_as_they_are(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(4)
    tensors = [(torch.randn(300, generator=draw) + 50).to(dtype) for _ in range(5)]
    wanted = float(torch.cat(tensors).double().std(correction=0))
    assert std_of(tensors) == pytest.approx(wanted, rel=1e-6)


def test_tensors_of_other_means_and_sizes_are_merged() -> None:
    tensors = [torch.full((3,), 10.0), torch.zeros(1), torch.tensor([]), torch.full((2, 2), -5.0)]
    wanted = float(torch.cat([tensor.reshape(-1) for tensor in tensors]).double().std(correction=0))
    assert std_of(tensors) == pytest.approx(wanted, rel=1e-12)


def test_what_is_not_finite_has_no_spread_and_what_is_equal_has_none() -> None:
    assert math.isnan(std_of([torch.tensor([1.0, math.inf])]))
    assert math.isnan(std_of([torch.tensor([1.0, 2.0]), torch.tensor([math.nan])]))
    assert math.isnan(std_of([torch.tensor([])]))
    assert std_of([torch.full((5,), 1e6)]) == 0.0


def test_without_float64_it_is_right_to_four_digits() -> None:
    draw = torch.Generator().manual_seed(5)
    tensors = [torch.randn(1000, generator=draw) + 1e3 for _ in range(100)]
    reduction = reduction_for(STD, None, torch.device("mps"))
    for tensor in tensors:
        reduction.add(tensor)
    value = reduction.read(reduction.close().tolist(), 100_000, 100)
    wanted = float(torch.cat(tensors).double().std(correction=0))
    assert value == pytest.approx(wanted, rel=1e-4)
