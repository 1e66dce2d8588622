"""Warm-up: how the first steps of a process settle."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from trainlab.analyse.cost.measurement import Measurement
from trainlab.report.run_data import MOST_LINES


@dataclass(frozen=True)
class FirstSteps:
    """The first steps of a process as multiples of a settled one."""

    mode: str
    points: tuple[tuple[str, int, float], ...]
    """Cell, step from 1, times as long as the median bare step; the median over processes."""


def first_steps(measured: Sequence[Measurement], mode: str) -> FirstSteps | None:
    """From the warm-up steps of the timed processes, as many as all processes of a cell have."""
    points = []
    for measurement in measured[:MOST_LINES]:
        ratios = []
        for record in measurement.costs:
            settled_ms = statistics.median(record.step_ms)
            ratios.append([step_ms / settled_ms for step_ms in record.warmup_ms])
        for number, times in enumerate(zip(*ratios, strict=False), start=1):
            points.append((measurement.trial.cell, number, statistics.median(times)))
    return FirstSteps(mode, tuple(points)) if points else None
