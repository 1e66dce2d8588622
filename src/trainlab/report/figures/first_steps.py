"""Warm-up: how the first steps of a process settle."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from trainlab.analysis.cost import settled_ms
from trainlab.analysis.measurement import Measurement
from trainlab.report.run_data import MOST_LINES


@dataclass(frozen=True)
class FirstSteps:
    """The first steps of a process as multiples of a settled one."""

    mode: str
    points: tuple[tuple[str, int, float], ...]
    """Cell, step from 1, the median of it over processes in multiples of `settled_ms`."""


def first_steps(measured: Sequence[Measurement], mode: str) -> FirstSteps | None:
    """From the warm-up steps of the timed processes, as many as all processes of a cell have."""
    points = []
    for measurement in measured[:MOST_LINES]:
        base_ms = settled_ms(measurement.costs)
        steps = zip(*(record.warmup_ms for record in measurement.costs), strict=False)
        for number, step_ms in enumerate(steps, start=1):
            points.append((measurement.trial.cell, number, statistics.median(step_ms) / base_ms))
    return FirstSteps(mode, tuple(points)) if points else None
