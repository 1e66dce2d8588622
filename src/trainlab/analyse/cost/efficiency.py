"""A measured step and its layers, held against what the machine can do."""

from trainlab.analyse.cost.layers import Layer
from trainlab.analyse.cost.measurement import Measurement
from trainlab.analyse.cost.roofline import Reach, limiting_precision, reach


def step_reach(found: Measurement) -> Reach | None:
    """Of the whole bare step; None where layers were not watched. The optimizer's work is not counted."""
    if found.layers is None:
        return None
    rows = found.layers.rows
    flops = sum(row.forward_flops + row.backward_flops for row in rows)
    moved = sum(row.forward_bytes + row.backward_bytes for row in rows)
    return _reach(found, flops, moved, found.summary.step_ms.value)


def layer_reach(found: Measurement, layer: Layer) -> Reach | None:
    """Of one layer, forward and backward together."""
    row = layer.row
    flops, moved = row.forward_flops + row.backward_flops, row.forward_bytes + row.backward_bytes
    return _reach(found, flops, moved, layer.total_ms)


def _reach(found: Measurement, flops: float, num_bytes: float, time_ms: float) -> Reach | None:
    if found.limits is None or time_ms <= 0:
        return None
    settings, used = found.trial.settings, found.trial.resolved
    precision = limiting_precision(settings["precision"], used.get("tf32"), found.limits)
    return reach(flops, num_bytes, time_ms / 1e3, found.limits, precision)
