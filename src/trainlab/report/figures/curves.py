"""Trends: metrics over training, a curve per cell, computed from the curves of the trials."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainlab.report.run_data import RunData
from trainlab.stats.means import mean_of

MOST_POINTS = 120
"""Of one curve; more are thinned out, the last is kept."""


@dataclass(frozen=True)
class CurvePoint:
    """The mean over seeds at one moment of training, and its 95 % interval."""

    cell: str
    epoch: float
    """How many times the training set had been seen."""
    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Curves:
    """One metric over training, a curve per cell."""

    metric: str
    points: tuple[CurvePoint, ...]
    by_step: bool
    """Whether the points lie within epochs."""


def trend(data: RunData, metric: str) -> Curves | None:
    """None where no trial got to a first point. Within epochs where the curve has such points."""
    steps = {
        cell: [list(_step_points(data, cell, seed, metric)) for seed in seeds]
        for cell, seeds in data.steps.items()
    }
    by_step = any(points for seeds in steps.values() for points in seeds)
    if not by_step:
        steps = {
            cell: [
                [(float(line["epoch"]), line[metric]) for line in one.epochs if metric in line]
                for one in data.evidence.learned[cell].values()
            ]
            for cell in data.drawn
        }
    points = [point for cell, seeds in steps.items() for point in _averaged(cell, seeds)]
    return Curves(metric, tuple(points), by_step) if points else None


def _step_points(
    data: RunData, cell: str, seed: int, metric: str
) -> Iterator[tuple[float, float | None]]:
    used = data.evidence.learned[cell][seed].trial.data
    if used is None or not used.num_train:
        return
    for line in data.steps[cell][seed]:
        if metric in line:
            yield line["samples"] / used.num_train, line[metric]


def _averaged(
    cell: str, seeds: Sequence[Sequence[tuple[float, float | None]]]
) -> Iterator[CurvePoint]:
    """Over the seeds that have a finite value at the same moment."""
    at: dict[float, list[float]] = {}
    for points in seeds:
        for epoch, value in points:
            if value is not None and math.isfinite(value):
                at.setdefault(epoch, []).append(value)
    for epoch in thinned(sorted(at)):
        mean = mean_of(at[epoch])
        if mean is not None:
            yield CurvePoint(cell, epoch, mean.value, *mean.ends, mean.n)


def thinned(moments: Sequence[float], most: int = MOST_POINTS) -> list[float]:
    """Evenly, with the last one kept."""
    if len(moments) <= most:
        return list(moments)
    stride = math.ceil(len(moments) / most)
    return list(moments[len(moments) - 1 :: -stride])[::-1]
