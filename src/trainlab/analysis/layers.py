"""Layers with their share of the step: shares from the watched process, times from the bare ones."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainlab.record.cost_record import LayerRow, LayersRecord


@dataclass(frozen=True)
class Layer:
    """One call of a module or function. Work is per step, at the record's batch size."""

    row: LayerRow
    forward_share: float
    """Of the whole forward (or loss) phase."""
    backward_share: float
    forward_ms: float
    """Its share of the bare step's phase: what it costs when it is not watched."""
    backward_ms: float

    @property
    def total_ms(self) -> float:
        """Forward and backward."""
        return self.forward_ms + self.backward_ms


def layer_times(record: LayersRecord, phases_ms: Mapping[str, float]) -> list[Layer]:
    """Every call in order, with the bare step's phases divided by share."""
    watched_us = {
        name: statistics.fmean(times_us) if times_us else 0.0
        for name, times_us in record.phases_us.items()
    }
    return [_layer(row, record.num_steps, watched_us, phases_ms) for row in record.rows]


@dataclass(frozen=True)
class Between:
    """Time that no layer accounts for: Python, and autograd's own work."""

    forward_ms: float
    """Of forward and loss."""
    backward_ms: float

    @property
    def total_ms(self) -> float:
        """Forward and backward."""
        return self.forward_ms + self.backward_ms


def between_layers(layers: Sequence[Layer], phases_ms: Mapping[str, float]) -> Between:
    """What is left of each phase."""
    forward_ms = phases_ms.get("forward", 0.0) + phases_ms.get("loss", 0.0)
    return Between(
        forward_ms - sum(layer.forward_ms for layer in layers),
        phases_ms.get("backward", 0.0) - sum(layer.backward_ms for layer in layers),
    )


def _layer(
    row: LayerRow, num_steps: int, watched_us: Mapping[str, float], phases_ms: Mapping[str, float]
) -> Layer:
    forward = _share(row.forward_us, num_steps, watched_us.get(row.phase, 0.0))
    backward = _share(row.backward_us, num_steps, watched_us.get("backward", 0.0))
    return Layer(
        row=row,
        forward_share=forward,
        backward_share=backward,
        forward_ms=forward * phases_ms.get(row.phase, 0.0),
        backward_ms=backward * phases_ms.get("backward", 0.0),
    )


def _share(times_us: Sequence[float], num_steps: int, phase_us: float) -> float:
    """Of the phase in all watched steps, those in which the layer did not run included."""
    return sum(times_us) / num_steps / phase_us if phase_us else 0.0
