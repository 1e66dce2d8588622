"""CellValues: one figure of every cell with how well it is known."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainlab.analyse.cost.measurement import MODES
from trainlab.analyse.cost.summary import Estimate
from trainlab.analyse.evidence import Evidence
from trainlab.report.run_data import MOST_CELLS
from trainlab.stats.means import mean_of
from trainlab.words.numbers import MIB

COSTS = ("step_ms", "sample_us", "epoch_s", "samples_per_s")
"""Figures of a cost summary that are drawn over cells."""


@dataclass(frozen=True)
class CellValue:
    """One figure of one cell with how well it is known."""

    cell: str
    mode: str | None
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class CellValues:
    """One figure over cells: `step_ms`, `peak_mib`, or a metric."""

    quantity: str
    dots: tuple[CellValue, ...]
    singles: tuple[tuple[str, float], ...] = ()
    """Each seed's value, by cell."""
    num_left_out: int = 0
    """Cells beyond those drawn."""


def metric_values(evidence: Evidence, metric: str) -> CellValues | None:
    """Where each cell ended, the mean over seeds and every seed."""
    dots, singles = [], []
    for cell in evidence.cells:
        values = list(evidence.values(cell.id, metric).values())
        mean = mean_of(values)
        if mean is not None:
            dots.append(CellValue(cell.id, None, mean.value, *mean.ends))
            singles += [(cell.id, value) for value in values if math.isfinite(value)]
    if not dots:
        return None
    kept = dots[:MOST_CELLS]
    names = {dot.cell for dot in kept}
    return CellValues(
        quantity=metric,
        dots=tuple(kept),
        singles=tuple(one for one in singles if one[0] in names),
        num_left_out=len(dots) - len(kept),
    )


def cost_values(evidence: Evidence, quantity: str) -> CellValues | None:
    """One of COSTS of every cell, by mode."""
    found = [(mode, one) for mode in MODES for one in evidence.measured_in(mode)]
    dots = []
    for mode, one in found:
        value: Estimate = getattr(one.summary, quantity)
        dots.append(CellValue(one.trial.cell, mode, value.value, value.low, value.high))
    return _dots(quantity, dots)


def memory_values(evidence: Evidence) -> CellValues | None:
    """`peak_mib` of every cell, by mode."""
    return _dots(
        "peak_mib",
        [
            CellValue(one.trial.cell, mode, one.memory.peak_bytes / MIB, None, None)
            for mode in MODES
            for one in evidence.measured_in(mode)
            if one.memory is not None
        ],
    )


def _dots(quantity: str, dots: Sequence[CellValue]) -> CellValues | None:
    if not dots:
        return None
    cells = list(dict.fromkeys(dot.cell for dot in dots))
    kept = set(cells[:MOST_CELLS])
    shown = tuple(dot for dot in dots if dot.cell in kept)
    return CellValues(quantity, shown, num_left_out=len(cells) - len(kept))
