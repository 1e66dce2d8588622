"""How near some work came to what the machine can do: the roofline's two limits, and neither."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainlab.errors import RecordError
from trainlab.record.cost import LimitsRecord

NEAR = 0.15
"""Below this share of both limits, neither explains the time."""

Limit = Literal["compute", "memory", "neither"]


@dataclass(frozen=True)
class Reach:
    """What some work achieved, against the best this machine was measured to do.

    Work of F FLOPs and B bytes takes at least F / peak FLOP/s and at least B / peak bytes/s: the
    larger of the two is its limit (the roofline), and the limit whose share is larger is the one
    it is nearer to. Far below both, the time goes elsewhere: into launching kernels and Python.
    """

    precision: str
    """The matrix product it is held against: fp32, tf32 or bf16."""
    flops_per_s: float
    bytes_per_s: float
    compute_share: float
    """Of the best matrix product; never clipped."""
    memory_share: float
    """Of the best large copy; never clipped."""
    near: Limit
    above: tuple[str, ...]
    """Why a share is above 1, for each that is."""


def reach(
    flops: float, num_bytes: float, time_s: float, limits: LimitsRecord, precision: str = "fp32"
) -> Reach:
    """What work of this many FLOPs and bytes (read plus written) reached in this time."""
    assert time_s > 0, "work takes time"
    if precision not in limits.flops_per_s:
        known = ", ".join(limits.flops_per_s)
        raise RecordError(f"limits.json: has no {precision}, only {known}; measure again")
    compute = flops / time_s / limits.flops_per_s[precision]
    memory = num_bytes / time_s / limits.bytes_per_s
    return Reach(
        precision=precision,
        flops_per_s=flops / time_s,
        bytes_per_s=num_bytes / time_s,
        compute_share=compute,
        memory_share=memory,
        near=_near(compute, memory),
        above=_above(compute, memory),
    )


def limiting_precision(
    precision: str, tf32: Mapping[str, bool] | None, limits: LimitsRecord
) -> str:
    """Which matrix product a trial is held against; `tf32` as in its `resolved`.

    TF32 for convolutions is on by default, but only a GPU's limits have an entry for it.
    """
    if precision == "bf16":
        return "bf16"
    on = tf32 is not None and any(tf32.values())
    return "tf32" if on and "tf32" in limits.flops_per_s else "fp32"


def _near(compute: float, memory: float) -> Limit:
    if max(compute, memory) < NEAR:
        return "neither"
    return "compute" if compute >= memory else "memory"


def _above(compute: float, memory: float) -> tuple[str, ...]:
    reasons = []
    if compute > 1:
        reasons.append(
            f"compute {compute:.2f}: the peak was measured too low, or FLOPs are counted that the "
            "kernels save"
        )
    if memory > 1:
        reasons.append(
            f"memory {memory:.2f}: caches served bytes that memory did not, or the peak was "
            "measured too low"
        )
    return tuple(reasons)
