"""Reducers against float64 on all elements of a period, one trial alone and several side by side."""

import math

import pytest
import torch
from torch import Tensor, nn

from trainlab.errors import SpecError
from trainlab.instruments.reducers import (
    DeadUnits,
    Histogram,
    Reduction,
    reduction_for,
    unit_dimension,
)
from trainlab.record.learning_record import HistogramRecord
from trainlab.spec.probe import REDUCERS, Bins, probe_of

LANES = 3


def reduction(reducer: str) -> Reduction:
    made = reduction_for(probe_of(f"relu:activation:{reducer}"))
    if isinstance(made, DeadUnits):
        made.dimension = 1
    return made


def closed(one: Reduction) -> Tensor:
    """The period's numbers; the next period starts."""
    numbers = one.numbers()
    one.reset()
    return numbers


def value_of(reducer: str, tensors: list[Tensor]) -> object:
    one = reduction(reducer)
    for tensor in tensors:
        one.add(tensor[None])
    count = sum(tensor.numel() for tensor in tensors)
    return one.read(closed(one)[0].tolist(), count, len(tensors))


def tensors(kind: str) -> list[Tensor]:
    """What three trials give in four steps."""
    draw = torch.Generator().manual_seed(5)
    made = [torch.randn(LANES, 40, 3, 5, generator=draw).relu() - 0.2 for _ in range(4)]
    if kind == "far":
        return [one * 1e-3 + 1e4 for one in made]
    if kind == "bf16":
        return [one.bfloat16() for one in made]
    if kind == "strided":
        return [one.movedim(0, 2).contiguous().movedim(2, 0) for one in made]
    if kind == "not finite":
        made[1][0, 3, 1, 2], made[2][1, 0, 0, 0] = math.nan, math.inf
    return made


@pytest.mark.parametrize("reducer", [*REDUCERS, "histogram(-1,1,9)"])
def test_each_trial_gets_its_own_value_in_memory_that_stays_in_place(reducer: str) -> None:
    """A captured step writes to the same memory again and again."""
    for kind in ("usual", "far", "bf16", "strided", "not finite"):
        together, given = reduction(reducer), tensors(kind)
        places = None
        for _ in range(2):  # periods
            for values in given:
                together.add(values)
            count = sum(values[0].numel() for values in given)
            for lane, row in enumerate(closed(together).tolist()):
                expected = value_of(reducer, [values[lane] for values in given])
                found = together.read(row, count, len(given))
                if isinstance(expected, HistogramRecord):
                    assert found == expected
                else:
                    assert found == pytest.approx(expected, rel=2e-6, nan_ok=True), kind
            now = [tensor.data_ptr() for tensor in together.tensors]
            assert now == (places or now)
            places = now


def test_sums_are_right_to_a_millionth_whatever_the_size_and_layout() -> None:
    draw = torch.Generator().manual_seed(1)
    for shape in ((7,), (16384,), (133, 177), (8, 6, 20, 20)):
        for scale in (1e-19, 1.0, 1e25):
            plain = torch.randn(shape, generator=draw) * scale
            strided = torch.randn((*shape, 2), generator=draw)[..., 0] * scale
            for values in (plain, plain.transpose(0, -1), strided, plain[:1].expand(shape)):
                wide = values.double()
                for reducer, wanted in (("sum", wide.sum()), ("sq_sum", wide.square().sum())):
                    found = value_of(reducer, [values])
                    assert found == pytest.approx(float(wanted), rel=1e-6), reducer


def test_counts_are_exact() -> None:
    draw = torch.Generator().manual_seed(1)
    for shape in ((0,), (1,), ((1 << 20) + 5,), (3, 1 << 20)):
        values = torch.randint(-2, 3, shape, generator=draw).float()
        for given in (values, values.bfloat16(), values.double()):
            assert value_of("positive_count", [given]) == int((values > 0).sum())
            if values.numel():
                assert value_of("zero_fraction", [given]) == float((values == 0).double().mean())


def test_the_spread_is_right_whatever_the_mean() -> None:
    draw = torch.Generator().manual_seed(3)
    for offset in (0.0, -1e3, 1e6):
        for num_tensors, size in ((1, 7), (3, 40_000), (70, 7)):
            given = [torch.randn(size, generator=draw) + offset for _ in range(num_tensors)]
            wanted = float(torch.cat(given).double().std(correction=0))
            assert value_of("std", given) == pytest.approx(wanted, rel=1e-6)
    mixed = [torch.full((3,), 10.0), torch.zeros(1), torch.tensor([]), torch.full((2, 2), -5.0)]
    wanted = float(torch.cat([tensor.reshape(-1) for tensor in mixed]).double().std(correction=0))
    assert value_of("std", mixed) == pytest.approx(wanted, rel=1e-12)
    assert math.isnan(float(str(value_of("std", [torch.tensor([1.0, math.inf])]))))
    assert math.isnan(float(str(value_of("std", [torch.tensor([])]))))
    assert value_of("std", [torch.full((5,), 1e6)]) == 0.0
    assert math.isnan(float(str(value_of("min", [torch.ones(0)]))))


def test_numbers_can_be_read_before_a_period_ends() -> None:
    together = reduction("sum")
    together.add(torch.ones(LANES, 4))
    before = together.numbers()
    together.add(torch.ones(LANES, 2))
    assert before.tolist() == [[4.0]] * LANES
    assert closed(together).tolist() == [[6.0]] * LANES
    assert together.numbers().tolist() == [[0.0]] * LANES


def test_units_are_channels_of_convolutions_and_features_of_all_else() -> None:
    tokens, channels = torch.ones(2, 4, 2), nn.Conv1d(4, 4, 1)(torch.ones(2, 4, 2))
    for values, dimension in (
        (nn.Dropout(0.1)(channels), 1),
        (nn.ConvTranspose1d(4, 4, 1)(tokens) * 2, 1),
        (nn.Conv3d(1, 4, 1)(torch.ones(2, 1, 2, 2, 2)), 1),
        (nn.BatchNorm1d(4, affine=False)(channels) - 100.0, 1),
        (torch.max_pool1d(channels, 2), 1),
        (nn.Linear(2, 5)(tokens), 2),
        (nn.Linear(2, 5)(torch.ones(2, 2, 2, 2)), 3),
        (nn.Linear(2, 5)(torch.ones(2, 2)), 1),
        (tokens, 2),
    ):
        assert unit_dimension(["relu"], torch.relu(values)) == dimension
    assert unit_dimension(["Conv1d"], tokens) == 1


def test_units_must_stay_as_many_as_they_are() -> None:
    together = reduction("dead_fraction")
    together.add(torch.ones(LANES, 4, 2))
    with pytest.raises(SpecError, match="got 3 units after 2"):
        together.add(torch.ones(LANES, 4, 3))


def test_what_is_not_a_number_falls_above_the_last_bin() -> None:
    histogram = Histogram(Bins(log=False, low=0, high=1, num=2))
    histogram.add(torch.tensor([[math.nan, math.inf, -math.inf, 0.0, 0.5, 1.0]]))
    assert closed(histogram).tolist() == [[1, 1, 1, 3]]
