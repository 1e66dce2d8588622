import pytest

from trainlab.analyse.cost.roofline import limiting_precision, roofline
from trainlab.errors import RecordError
from trainlab.record.cost import LimitsRecord


def machine_of(**flops_per_s: float) -> LimitsRecord:
    """A machine of 100 bytes/s."""
    return LimitsRecord(
        device_name="d", threads=1, torch="2", measured="", flops_per_s=flops_per_s, bytes_per_s=100
    )


A_CPU = machine_of(fp32=1000, bf16=4000)
A_GPU = machine_of(fp32=1000, tf32=2000, bf16=4000)


def test_shares_are_those_of_the_peaks_by_hand() -> None:
    found = roofline(flops=3000, num_bytes=80, time_s=4, limits=A_CPU)
    assert (found.flops_per_s, found.bytes_per_s) == (750, 20)
    assert (found.compute_share, found.memory_share) == (0.75, 0.2)
    assert (found.near, found.precision) == ("compute", "fp32")


@pytest.mark.parametrize(
    ("flops", "num_bytes", "near"),
    [
        (900, 10, "compute"),
        (900, 95, "memory"),
        (149, 14, "neither"),
        (150, 14, "compute"),
        (0, 15, "memory"),
        (0, 0, "neither"),
        (500, 50, "compute"),
    ],
)
def test_the_limit_with_the_larger_share_is_near_and_far_below_both_neither_is(
    flops: float, num_bytes: float, near: str
) -> None:
    assert roofline(flops, num_bytes, 1, A_CPU).near == near


def test_work_is_near_compute_where_its_flops_per_byte_are_above_the_machines() -> None:
    # 1000 FLOP/s and 100 bytes/s: ten FLOPs for a byte.
    for flops_per_byte, near in [(11, "compute"), (9, "memory")]:
        for time_s in (1, 3):
            assert roofline(50 * flops_per_byte, 50, time_s, A_CPU).near == near


def test_a_share_above_one_is_kept() -> None:
    cached = roofline(10, 250, 1, A_CPU)
    assert (cached.memory_share, cached.near) == (2.5, "memory")
    assert roofline(1100, 0, 1, A_CPU).compute_share == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("precision", "tf32", "machine", "expected"),
    [
        ("bf16", {"matmul": True, "convolution": True}, A_GPU, "bf16"),
        ("fp32", {"matmul": False, "convolution": True}, A_GPU, "tf32"),
        ("fp32", {"matmul": True, "convolution": False}, A_GPU, "tf32"),
        ("fp32", {"matmul": False, "convolution": False}, A_GPU, "fp32"),
        ("fp32", {"matmul": False, "convolution": True}, A_CPU, "fp32"),
        ("fp32", None, A_GPU, "fp32"),
    ],
)
def test_the_peak_is_that_of_the_precision_the_work_ran_in(
    precision: str, tf32: dict[str, bool] | None, machine: LimitsRecord, expected: str
) -> None:
    assert limiting_precision(precision, tf32, machine) == expected
    assert (
        roofline(500, 0, 1, machine, expected).compute_share == 500 / machine.flops_per_s[expected]
    )


def test_a_precision_that_was_not_measured_is_told() -> None:
    with pytest.raises(RecordError, match=r"limits.json: has no tf32, only fp32, bf16"):
        roofline(1, 1, 1, A_CPU, "tf32")
