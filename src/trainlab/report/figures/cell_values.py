"""CellValues: one quantity of every cell, each value with its interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.measurement import MODES, Estimate
from trainlab.analysis.metrics import limits_of
from trainlab.report.run_data import MOST_CELLS
from trainlab.stats.means import mean_of
from trainlab.words.numbers import MIB

COSTS = ("step_ms", "sample_us", "epoch_s", "samples_per_s")
"""Quantities of a cost summary that are drawn over cells."""


@dataclass(frozen=True)
class CellValue:
    """The value of one cell, and its interval where there is one."""

    cell: str
    mode: str | None
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class CellValues:
    """One quantity over cells: `step_ms`, `peak_mib`, or a metric."""

    quantity: str
    values: tuple[CellValue, ...]
    seed_values: tuple[tuple[str, float], ...] = ()
    """Cell and value of each seed."""
    num_left_out: int = 0
    """Cells beyond those drawn."""


def metric_values(evidence: Evidence, metric: str) -> CellValues | None:
    """Where each cell ended: the mean over seeds and the value of every seed."""
    values, seed_values = [], []
    for cell in evidence.cells:
        by_seed = list(evidence.values(cell.id, metric).values())
        if (mean := mean_of(by_seed, limits_of(metric, by_seed))) is not None:
            values.append(CellValue(cell.id, None, mean.value, *mean.ends))
            seed_values += [(cell.id, value) for value in by_seed if math.isfinite(value)]
    return _first_cells(metric, values, seed_values)


def cost_values(evidence: Evidence, quantity: str) -> CellValues | None:
    """One of COSTS of every cell, by mode."""
    values = []
    for mode in MODES:
        for measurement in evidence.measured_in(mode):
            cost: Estimate = getattr(measurement.summary, quantity)
            cell = measurement.trial.cell
            values.append(CellValue(cell, mode, cost.value, cost.low, cost.high))
    return _first_cells(quantity, values)


def memory_values(evidence: Evidence) -> CellValues | None:
    """`peak_mib` of every cell, by mode."""
    values = [
        CellValue(measurement.trial.cell, mode, measurement.memory.peak_bytes / MIB)
        for mode in MODES
        for measurement in evidence.measured_in(mode)
        if measurement.memory is not None
    ]
    return _first_cells("peak_mib", values)


def _first_cells(
    quantity: str, values: Sequence[CellValue], seed_values: Sequence[tuple[str, float]] = ()
) -> CellValues | None:
    """The values of the first MOST_CELLS cells; None where there are no values."""
    if not values:
        return None
    cells = list(dict.fromkeys(value.cell for value in values))
    drawn = set(cells[:MOST_CELLS])
    return CellValues(
        quantity,
        tuple(value for value in values if value.cell in drawn),
        tuple((cell, value) for cell, value in seed_values if cell in drawn),
        num_left_out=len(cells) - len(drawn),
    )
