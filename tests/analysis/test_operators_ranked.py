from typing import Any

import pytest

from trainlab.analysis.operators import classic_table, outside_us, ranked
from trainlab.record.cost_record import OperatorRow, OperatorsRecord


def row(name: str, **values: Any) -> OperatorRow:
    zeros = dict.fromkeys(("self_cpu_us", "total_cpu_us", "self_device_us", "total_device_us"), 0.0)
    counts = {"kind": "operator", "phase": "forward", "calls": 4}
    sizes = {"self_cpu_bytes": 0, "self_device_bytes": 0}
    return OperatorRow(name=name, **(zeros | counts | sizes | values))


RECORD = OperatorsRecord(
    mode="train",
    batch_size=8,
    num_steps=2,
    profiled_step_us=100.0,
    calls_are_equal=True,
    rows=[
        row("aten::conv2d", self_cpu_us=2.0, total_cpu_us=122.0),
        row("aten::mkldnn_convolution", self_cpu_us=120.0, total_cpu_us=120.0, self_cpu_bytes=2048),
        row("aten::add", self_cpu_us=30.0, total_cpu_us=30.0, calls=10),
        row("aten::add", self_cpu_us=10.0, total_cpu_us=10.0, calls=2, phase="backward"),
    ],
)


def test_wrappers_do_not_count_twice_when_ranked_by_self_time() -> None:
    found = ranked(RECORD)
    assert [op.name for op in found] == ["aten::mkldnn_convolution", "aten::add", "aten::conv2d"]
    assert found[0].share == pytest.approx(0.6)
    assert (found[0].self_us, found[0].average_us) == (60.0, 30.0)


def test_phases_are_merged_and_units_are_per_step_and_per_call() -> None:
    add = ranked(RECORD)[1]
    assert (add.calls, add.calls_per_step, add.self_us) == (12, 6.0, 20.0)
    assert add.average_us == pytest.approx(40 / 12)


def test_other_orders() -> None:
    assert ranked(RECORD, "total")[0].name == "aten::conv2d"
    assert ranked(RECORD, "calls")[0].name == "aten::add"
    assert ranked(RECORD, "memory")[0].memory_bytes == 1024


def test_what_lies_outside_is_the_rest_of_the_step() -> None:
    assert outside_us(RECORD) == pytest.approx(100 - 162 / 2)


def test_the_classic_table_has_its_seven_columns_in_order() -> None:
    head, first, *_, last = classic_table(RECORD).splitlines()
    assert last == "Self CPU time total: 162.000us"
    columns = [
        "Name",
        "Self CPU %",
        "Self CPU",
        "CPU total %",
        "CPU total",
        "CPU time avg",
        "# of Calls",
    ]
    places = [head.index(column) for column in columns[:2]]
    assert places == sorted(places)
    assert all(column in head for column in columns)
    expected = [
        "aten::mkldnn_convolution",
        "74.07%",
        "120.000us",
        "74.07%",
        "120.000us",
        "30.000us",
        "4",
    ]
    assert first.split() == expected


def test_on_a_gpu_shares_are_of_device_time() -> None:
    record = RECORD.model_copy(
        update={
            "rows": [
                row("aten::conv2d", self_device_us=30.0, total_device_us=30.0),
                row("aten::add", self_device_us=10.0, total_device_us=10.0),
                row("a_kernel", kind="kernel", phase="", self_device_us=30.0),
            ]
        }
    )
    assert [(op.name, op.share) for op in ranked(record)] == [
        ("aten::conv2d", 0.75),
        ("aten::add", 0.25),
    ]
