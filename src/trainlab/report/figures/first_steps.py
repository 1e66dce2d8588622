"""Warm-up: how the first steps of a process settle."""

import statistics
from collections.abc import Iterable, Sequence
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
    """From the warm-up steps of the timed processes."""
    points: list[tuple[str, int, float]] = []
    for one in measured[:MOST_LINES]:
        points += _first_steps(one)
    return FirstSteps(mode, tuple(points)) if points else None


def _first_steps(measurement: Measurement) -> Iterable[tuple[str, int, float]]:
    shortest = min(len(record.warmup_ms) for record in measurement.costs)
    for number in range(shortest):
        times = [
            record.warmup_ms[number] / statistics.median(record.step_ms)
            for record in measurement.costs
        ]
        yield measurement.trial.cell, number + 1, statistics.median(times)
