"""What the probes of a run saw: a tidy table, and curves over seeds with intervals."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from trainlab.record.probe import FiredRecord, HistogramRecord, ProbeRecord
from trainlab.record.trial import TrialRecord
from trainlab.stats.means import Mean, mean_of

if TYPE_CHECKING:
    import pandas as pd

TRIAL_COLUMNS = ("trial", "cell", "seed", "state")


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


def probe_table(trials: Sequence[ProbedTrial]) -> "pd.DataFrame":
    """One row per value, with its trial; histograms are in `histogram_table`."""
    import pandas as pd

    columns = [*TRIAL_COLUMNS, *ProbeRecord.model_fields, "target"]
    rows = [
        (*_trial_values(probed.trial), *line.model_dump().values(), line.target)
        for probed in trials
        for line in probed.lines
        if line.histogram is None
    ]
    return pd.DataFrame(rows, columns=columns).drop(columns="histogram")


def histogram_table(trials: Sequence[ProbedTrial]) -> "pd.DataFrame":
    """One row per bin: its edges and how many elements fell into it."""
    import pandas as pd

    columns = [*TRIAL_COLUMNS, "probe", "target", "epoch", "step", "low", "high", "num_elements"]
    rows = [
        (*_trial_values(probed.trial), line.probe, line.target, line.epoch, line.step, *edges_count)
        for probed in trials
        for line in probed.lines
        if line.histogram is not None
        for edges_count in _bins(line.histogram)
    ]
    return pd.DataFrame(rows, columns=columns)


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
    return per_step_norm(line) * math.sqrt(line.fired / line.count)


def _trial_values(trial: TrialRecord) -> tuple[object, ...]:
    return trial.id, trial.cell, trial.seed, trial.state


def _bins(histogram: HistogramRecord) -> Iterator[tuple[float, float, int]]:
    """Low edge, high edge and count of every bin, the two open ones included."""
    low, high = histogram.low, histogram.high
    if histogram.log:
        low, high = math.log10(low), math.log10(high)
    width = (high - low) / len(histogram.counts)
    edges = [low + width * i for i in range(len(histogram.counts) + 1)]
    if histogram.log:
        edges = [10**edge for edge in edges]
    yield 0.0 if histogram.log else -math.inf, edges[0], histogram.below
    yield from zip(edges, edges[1:], histogram.counts, strict=False)
    yield edges[-1], math.inf, histogram.above
