"""The values of the probes of a run, and their curves over seeds with intervals."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy import special

from trainlab.record.learning_record import FiredRecord, ProbeRecord
from trainlab.record.trial_record import TrialRecord
from trainlab.stats.means import Mean, mean_of

FEWEST_POINTS = 3
"""With fewer points no growth is fitted."""
MOST_ITERATIONS = 200
MOST_PLACES = 100_000
"""Steps of a period over which a mean is taken; of longer ones, so many of them."""


@dataclass(frozen=True)
class ProbedTrial:
    """One learn trial: the values of its probes in order, and which probes fired."""

    trial: TrialRecord
    lines: tuple[ProbeRecord, ...]
    rows: tuple[FiredRecord, ...]

    @cached_property
    def _series(self) -> dict[tuple[str, str], list[ProbeRecord]]:
        series: dict[tuple[str, str], list[ProbeRecord]] = {}
        for line in self.lines:
            series.setdefault((line.probe, line.target), []).append(line)
        return series

    def series(self, probe: str, target: str) -> Sequence[ProbeRecord]:
        """The values of one probe at one layer, in order."""
        return self._series.get((probe, target), [])

    def last(self, probe: str, target: str) -> ProbeRecord | None:
        """The value of the last period."""
        return next(reversed(self.series(probe, target)), None)


@dataclass(frozen=True)
class CurvePoint:
    """One period: the value of every seed, and their mean."""

    epoch: int
    step: int
    by_seed: Mapping[int, float]
    """NaN where the value was not finite."""
    mean: Mean | None


@dataclass(frozen=True)
class ProbeCurve:
    """One probe at one layer in one cell, over time."""

    cell: str
    probe: str
    target: str
    points: tuple[CurvePoint, ...]

    def falling(self) -> tuple[int, int]:
        """In how many seeds the value falls from every period to the next, and of how many."""
        seeds = sorted({seed for point in self.points for seed in point.by_seed})
        curves = [[p.by_seed[s] for p in self.points if s in p.by_seed] for s in seeds]
        falls = [all(b < a for a, b in pairwise(curve)) for curve in curves if len(curve) > 1]
        return sum(falls), len(falls)


def probe_curves(trials: Sequence[ProbedTrial]) -> list[ProbeCurve]:
    """Every probe at every layer in every cell, in the order of the records."""
    groups: dict[tuple[str, str, str], dict[tuple[int, int], dict[int, float]]] = {}
    for probed in trials:
        for line in probed.lines:
            if line.histogram is None:
                points = groups.setdefault((probed.trial.cell, line.probe, line.target), {})
                value = math.nan if line.value is None else line.value
                points.setdefault((line.step, line.epoch), {})[probed.trial.seed] = value
    return [
        ProbeCurve(
            *key,
            points=tuple(
                CurvePoint(epoch, step, by_seed, mean_of(list(by_seed.values())))
                for (step, epoch), by_seed in sorted(points.items())
            ),
        )
        for key, points in groups.items()
    ]


def per_step_norm(line: ProbeRecord) -> float:
    """The norm of one tensor, root mean square over the period; for reducers sq_sum and norm."""
    if line.value is None:
        return math.nan
    norm = math.sqrt(line.value) if line.reducer == "sq_sum" else line.value
    return norm / math.sqrt(line.fired)


def per_element(line: ProbeRecord) -> float:
    """The root mean square of the elements: comparable between layers of different sizes."""
    return per_step_norm(line) * math.sqrt(line.fired / line.count) if line.count else math.nan


def middle_step(line: ProbeRecord) -> float:
    """The middle of a period, in updates: where its value belongs on a curve."""
    return line.step - (line.num_steps - 1) / 2


def growth_exponent(lines: Sequence[ProbeRecord]) -> float | None:
    """The power of the step that norms grow as; None with fewer than FEWEST_POINTS positive ones.

    The slope of log norm over log step. A period's norm is the root mean square over its steps, and
    belongs to the step at which a curve of that power has this value: found by iteration, from the
    middle of the period on.
    """
    norms = [(line, norm) for line in lines if (norm := per_step_norm(line)) > 0]
    norms = [(line, norm) for line, norm in norms if math.isfinite(norm)]
    if len(norms) < FEWEST_POINTS:
        return None
    log_norms = [math.log(norm) for _, norm in norms]
    places = [math.log(middle_step(line)) for line, _ in norms]
    exponent = math.nan
    for _ in range(MOST_ITERATIONS):
        before, exponent = exponent, statistics.linear_regression(places, log_norms).slope
        if abs(exponent - before) < 1e-9:
            break
        places = [_log_step(line, exponent) for line, _ in norms]
    return exponent


def _log_step(line: ProbeRecord, exponent: float) -> float:
    """The log of the step at which `step ** exponent` is its root mean square over the period."""
    if line.num_steps == 1 or abs(exponent) < 1e-9:
        return math.log(middle_step(line))
    num_places = min(line.num_steps, MOST_PLACES)
    logs = np.log(np.linspace(line.step - line.num_steps + 1, line.step, num_places))
    mean = special.logsumexp(2 * exponent * logs) - math.log(num_places)
    return float(mean) / (2 * exponent)
