"""Dots: one figure of every cell with how well it is known."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainlab.analyse.cost.summary import Estimate
from trainlab.analyse.findings.cost import MODES
from trainlab.report.material import MOST_CELLS, Material
from trainlab.stats.means import mean_of
from trainlab.words.numbers import MIB


@dataclass(frozen=True)
class Dot:
    """One figure of one cell with how well it is known."""

    cell: str
    mode: str | None
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Dots:
    """One figure over cells: `step_ms`, `peak_mib`, or a metric."""

    quantity: str
    dots: tuple[Dot, ...]
    singles: tuple[tuple[str, float], ...] = ()
    """Each seed's value, by cell."""
    num_left_out: int = 0
    """Cells beyond those drawn."""


def metric_dots(material: Material, metric: str) -> Dots | None:
    """Where each cell ended, the mean over seeds and every seed."""
    evidence = material.evidence
    dots, singles = [], []
    for cell in evidence.cells:
        values = list(evidence.values(cell.id, metric).values())
        mean = mean_of(values)
        if mean is not None:
            dots.append(Dot(cell.id, None, mean.value, *mean.ends))
            singles += [(cell.id, value) for value in values if math.isfinite(value)]
    if not dots:
        return None
    kept = dots[:MOST_CELLS]
    names = {dot.cell for dot in kept}
    return Dots(
        quantity=metric,
        dots=tuple(kept),
        singles=tuple(one for one in singles if one[0] in names),
        num_left_out=len(dots) - len(kept),
    )


def cost_dots(material: Material, quantity: str) -> Dots | None:
    """`step_ms`, `sample_us`, `epoch_s` or `samples_per_s` of every cell, by mode."""
    found = [(mode, one) for mode in MODES for one in material.measured(mode)]
    dots = []
    for mode, one in found:
        value: Estimate = getattr(one.summary, quantity)
        dots.append(Dot(one.trial.cell, mode, value.value, value.low, value.high))
    return _dots(quantity, dots)


def memory_dots(material: Material) -> Dots | None:
    """`peak_mib` of every cell, by mode."""
    return _dots(
        "peak_mib",
        [
            Dot(one.trial.cell, mode, one.memory.peak_bytes / MIB, None, None)
            for mode in MODES
            for one in material.measured(mode)
            if one.memory is not None
        ],
    )


def _dots(quantity: str, dots: Sequence[Dot]) -> Dots | None:
    if not dots:
        return None
    cells = list(dict.fromkeys(dot.cell for dot in dots))
    kept = set(cells[:MOST_CELLS])
    shown = tuple(dot for dot in dots if dot.cell in kept)
    return Dots(quantity, shown, num_left_out=len(cells) - len(kept))
