"""Ratios of what cells cost, within a run and between two runs."""

import math
from collections.abc import Sequence

import numpy as np

from trainlab.analysis.cost.benches import figures_of, measured_twice
from trainlab.analysis.cost.measurement import Measurement
from trainlab.analysis.evidence import Evidence
from trainlab.stats.cost_ratio import (
    CostComparison,
    Floats,
    compare_costs,
    excess_variance,
    ratio_twice,
)

MeasuredPair = tuple[Measurement, Measurement]


def ratios_in(
    evidence: Evidence, mode: str, pairs: Sequence[MeasuredPair]
) -> tuple[CostComparison, ...]:
    """Time per sample of pairs of cells of one run, decided as one family; noise is that of all cells."""
    rows = _rows(evidence, mode)
    places = {id(measurement): row for row, measurement in enumerate(rows)}
    return compare_costs(
        figures_of(rows),
        [(places[id(first)], places[id(second)]) for first, second in pairs],
        measured_twice(rows),
        evidence.study.margins.get(f"{mode}/sample_us"),
    )


def ratios_between(
    first: Evidence, second: Evidence, mode: str, pairs: Sequence[MeasuredPair]
) -> tuple[CostComparison, ...]:
    """The same cells in two runs: nothing ran in turns here, so whole times are compared, process by
    process as they come."""
    if not pairs:
        return ()
    sides = [figures_of(side) for side in zip(*pairs, strict=True)]
    width = max(side.shape[1] for side in sides)
    figures = np.vstack([_packed(side, width) for side in sides])
    excesses = [_excess(run, mode) for run in (first, second)]
    known = [excess for excess in excesses if excess is not None]
    return compare_costs(
        figures,
        [(place, len(pairs) + place) for place in range(len(pairs))],
        [],
        first.study.margins.get(f"{mode}/sample_us"),
        max(known, default=None),
    )


def noise_ratio(evidence: Evidence, mode: str) -> float | None:
    """How many times as long a cell takes as itself, measured twice: the farthest from 1; None without."""
    rows = _rows(evidence, mode)
    return ratio_twice(figures_of(rows), measured_twice(rows))


def cells_twice(evidence: Evidence, mode: str) -> list[str]:
    """The cells that were measured twice."""
    rows = _rows(evidence, mode)
    return list(dict.fromkeys(rows[second].trial.cell for _, second in measured_twice(rows)))


def _excess(evidence: Evidence, mode: str) -> float | None:
    rows = _rows(evidence, mode)
    return excess_variance(figures_of(rows), measured_twice(rows)) if rows else None


def _rows(evidence: Evidence, mode: str) -> list[Measurement]:
    return [measurement for measurement in evidence.measured if measurement.summary.mode == mode]


def _packed(figures: Floats, width: int) -> Floats:
    """Each row's figures moved to the left."""
    packed = np.full((len(figures), width), math.nan)
    for row, values in enumerate(figures):
        known = values[np.isfinite(values)]
        packed[row, : len(known)] = known
    return packed
