"""That the reducers of many trials give each trial what its own reducer would give it alone."""

import math

import pytest
import torch
from torch import Tensor

from trainlab.errors import SpecError
from trainlab.instruments.probes.lanes.reducers import LaneDeadUnits, lane_reduction_for
from trainlab.instruments.probes.reducers import DeadUnits, reduction_for
from trainlab.record.learning_record import HistogramRecord
from trainlab.spec.probe import REDUCERS, probe_of

CPU = torch.device("cpu")
LANES = 3


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
    if kind == "huge":
        made[0][2] *= 1e30
    return made


@pytest.mark.parametrize("kind", ["usual", "far", "bf16", "strided", "not finite", "huge"])
@pytest.mark.parametrize("reducer", [*REDUCERS, "histogram(-1,1,9)"])
def test_each_trial_gets_its_own_value(reducer: str, kind: str) -> None:
    spec = probe_of(f"relu:activation:{reducer}")
    together = lane_reduction_for(spec, None, LANES, CPU)
    alone = [reduction_for(spec, None, CPU) for _ in range(LANES)]
    for one in (together, *alone):
        if isinstance(one, DeadUnits | LaneDeadUnits):
            one.dimension = 1
    for _ in range(2):  # periods
        given = tensors(kind)
        for values in given:
            together.add(values)
            for reduction, own in zip(alone, values, strict=True):
                reduction.add(own)
        count = sum(values[0].numel() for values in given)
        rows = together.close().tolist()
        for row, reduction in zip(rows, alone, strict=True):
            expected = reduction.read(reduction.close().tolist(), count, len(given))
            found = together.read(row, count, len(given))
            if isinstance(expected, HistogramRecord):
                assert found == expected
            else:
                assert found == pytest.approx(expected, rel=2e-6, nan_ok=True)


def test_numbers_can_be_read_before_a_period_ends() -> None:
    together = lane_reduction_for(probe_of("relu:activation:sum"), None, LANES, CPU)
    together.add(torch.ones(LANES, 4))
    before = together.numbers()
    together.add(torch.ones(LANES, 2))
    assert before.tolist() == [[4.0]] * LANES
    assert together.close().tolist() == [[6.0]] * LANES
    assert together.numbers().tolist() == [[0.0]] * LANES


def test_what_is_kept_stays_where_it_is() -> None:
    """A captured step writes to the same memory again and again."""
    for reducer in REDUCERS:
        together = lane_reduction_for(probe_of(f"relu:activation:{reducer}"), None, LANES, CPU)
        if isinstance(together, LaneDeadUnits):
            together.dimension = 1
        together.add(torch.ones(LANES, 4, 2))
        places = [tensor.data_ptr() for tensor in together.tensors]
        assert places
        together.close()
        together.add(torch.ones(LANES, 4, 2))
        assert [tensor.data_ptr() for tensor in together.tensors] == places


def test_the_smallest_of_nothing_is_not_a_number() -> None:
    together = lane_reduction_for(probe_of("relu:activation:min"), None, LANES, CPU)
    together.add(torch.ones(LANES, 0))
    assert math.isnan(float(str(together.read(together.close()[0].tolist(), 0, 1))))


def test_units_must_stay_as_many_as_they_are() -> None:
    together = lane_reduction_for(probe_of("relu:activation:dead_fraction"), None, LANES, CPU)
    assert isinstance(together, LaneDeadUnits)
    together.dimension = 1
    together.add(torch.ones(LANES, 4, 2))
    with pytest.raises(SpecError, match="got 3 units after 2"):
        together.add(torch.ones(LANES, 4, 3))
