"""What the probes of a run saw: a tidy table, and curves over seeds with intervals."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from trainlab.record.probe import FiredRecord, ProbeRecord
from trainlab.record.trial import TrialRecord
from trainlab.stats.means import Mean, mean_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Probed:
    """One learn trial: its values in order, and what fired."""

    trial: TrialRecord
    lines: tuple[ProbeRecord, ...]
    rows: tuple[FiredRecord, ...]

    def last(self, probe: str, target: str) -> ProbeRecord | None:
        """The value of the last period."""
        return next(
            (x for x in reversed(self.lines) if (x.probe, x.target) == (probe, target)), None
        )


@dataclass(frozen=True)
class CurvePoint:
    """A period: every seed's value, and their mean."""

    epoch: int
    step: int
    by_seed: Mapping[int, float]
    """Not a number where the value was not finite."""
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
        series = [[p.by_seed[s] for p in self.points if s in p.by_seed] for s in seeds]
        falls = [all(b < a for a, b in pairwise(x)) for x in series if len(x) > 1]
        return sum(falls), len(falls)


def probe_table(trials: Sequence[Probed]) -> "pd.DataFrame":
    """One row per value, with its trial; histograms are in `histogram_table`."""
    import pandas as pd

    columns = [*_about(None), *ProbeRecord.model_fields, "target"]
    rows = [
        {**_about(one.trial), **line.model_dump(), "target": line.target}
        for one in trials
        for line in one.lines
        if line.histogram is None
    ]
    return pd.DataFrame(rows, columns=columns).drop(columns="histogram")


def histogram_table(trials: Sequence[Probed]) -> "pd.DataFrame":
    """One row per bin: its edges and how many elements fell into it."""
    import pandas as pd

    columns = [*_about(None), "probe", "target", "epoch", "step", "low", "high", "num_elements"]
    rows = [
        {
            **_about(one.trial),
            **line.model_dump(include={"probe", "epoch", "step"}),
            "target": line.target,
            "low": low,
            "high": high,
            "num_elements": count,
        }
        for one in trials
        for line in one.lines
        for low, high, count in _bins(line)
    ]
    return pd.DataFrame(rows, columns=columns)


def probe_curves(trials: Sequence[Probed]) -> list[ProbeCurve]:
    """Every probe at every layer in every cell, in the order of the records."""
    groups: dict[tuple[str, str, str], dict[tuple[int, int], dict[int, float]]] = {}
    for one in trials:
        for line in one.lines:
            if line.histogram is None:
                points = groups.setdefault((one.trial.cell, line.probe, line.target), {})
                value = math.nan if line.value is None else line.value
                points.setdefault((line.step, line.epoch), {})[one.trial.seed] = value
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
    return (math.sqrt(line.value) if line.reducer == "sq_sum" else line.value) / math.sqrt(
        line.fired
    )


def per_element(line: ProbeRecord) -> float:
    """The root mean square of the elements: comparable between layers of different sizes."""
    return per_step_norm(line) * math.sqrt(line.fired / line.count)


def _about(trial: TrialRecord | None) -> dict[str, object]:
    if trial is None:
        return dict.fromkeys(("trial", "cell", "seed", "state"))
    return {"trial": trial.id, "cell": trial.cell, "seed": trial.seed, "state": trial.state}


def _bins(line: ProbeRecord) -> Iterator[tuple[float, float, int]]:
    found = line.histogram
    if found is None:
        return
    low, high = found.low, found.high
    if found.log:
        low, high = math.log10(low), math.log10(high)
    width = (high - low) / len(found.counts)
    edges = [low + width * i for i in range(len(found.counts) + 1)]
    if found.log:
        edges = [10**edge for edge in edges]
    yield -math.inf if not found.log else 0.0, edges[0], found.below
    yield from zip(edges, edges[1:], found.counts, strict=False)
    yield edges[-1], math.inf, found.above
