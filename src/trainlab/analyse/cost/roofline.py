"""How near a piece of work came to the limits of the machine: the roofline of compute and memory.

Work of F FLOPs and B bytes takes at least F / peak FLOP/s and at least B / peak bytes/s: the larger of
the two is its limit, and the limit whose share is larger is the one it is nearer to. Far below both, the
time goes elsewhere: into launching kernels and Python.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainlab.analyse.cost.layers import Layer
from trainlab.analyse.cost.measurement import Measurement
from trainlab.errors import RecordError
from trainlab.record.cost import LayerRow, LimitsRecord

NEAR_SHARE = 0.15
"""Below this share of both limits, neither explains the time."""

Limit = Literal["compute", "memory", "neither"]


@dataclass(frozen=True)
class Roofline:
    """What a piece of work achieved, against the best this machine was measured to do."""

    precision: str
    """Of the matrix product it is compared with: fp32, tf32 or bf16."""
    flops_per_s: float
    bytes_per_s: float
    compute_share: float
    """Of the best matrix product; never clipped. Above 1 the peak was measured too low, or FLOPs are
    counted that the kernels save."""
    memory_share: float
    """Of the best large copy; never clipped. Above 1 caches served bytes that memory did not, or the
    peak was measured too low."""
    near: Limit


def step_roofline(measurement: Measurement) -> Roofline | None:
    """Of the whole bare step; None where layers were not watched. The optimizer's work is not counted."""
    if measurement.layers is None:
        return None
    return _of_rows(measurement, measurement.layers.rows, measurement.summary.step_ms.value)


def layer_roofline(measurement: Measurement, layer: Layer) -> Roofline | None:
    """Of one layer, forward and backward together."""
    return _of_rows(measurement, [layer.row], layer.total_ms)


def roofline(
    flops: float, num_bytes: float, time_s: float, limits: LimitsRecord, precision: str = "fp32"
) -> Roofline:
    """Of work of this many FLOPs and bytes (read plus written) done in this time."""
    assert time_s > 0, "work takes time"
    if precision not in limits.flops_per_s:
        precisions = ", ".join(limits.flops_per_s)
        raise RecordError(f"limits.json: has no {precision}, only {precisions}; measure again")
    compute = flops / time_s / limits.flops_per_s[precision]
    memory = num_bytes / time_s / limits.bytes_per_s
    return Roofline(
        precision=precision,
        flops_per_s=flops / time_s,
        bytes_per_s=num_bytes / time_s,
        compute_share=compute,
        memory_share=memory,
        near=_near(compute, memory),
    )


def limiting_precision(
    precision: str, tf32: Mapping[str, bool] | None, limits: LimitsRecord
) -> str:
    """The precision of the matrix product that a trial is compared with; `tf32` as in its `resolved`.

    TF32 for convolutions is on by default, but only a GPU's limits have an entry for it.
    """
    if precision == "bf16":
        return "bf16"
    is_on = tf32 is not None and any(tf32.values())
    return "tf32" if is_on and "tf32" in limits.flops_per_s else "fp32"


def _of_rows(measurement: Measurement, rows: Sequence[LayerRow], time_ms: float) -> Roofline | None:
    limits, trial = measurement.limits, measurement.trial
    if limits is None or time_ms <= 0:
        return None
    flops = sum(row.forward_flops + row.backward_flops for row in rows)
    num_bytes = sum(row.forward_bytes + row.backward_bytes for row in rows)
    precision = limiting_precision(trial.settings["precision"], trial.resolved.get("tf32"), limits)
    return roofline(flops, num_bytes, time_ms / 1e3, limits, precision)


def _near(compute: float, memory: float) -> Limit:
    if max(compute, memory) < NEAR_SHARE:
        return "neither"
    return "compute" if compute >= memory else "memory"
