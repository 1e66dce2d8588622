"""Published single runs against ours: does each figure lie where one more run of ours would fall?

One in twenty figures lies outside its 95% interval by chance, and those of one run move together: their
number decides nothing. What decides is each curve as a whole, by its mean deviation over the epochs, whose
spread between our seeds has the correlation of the epochs in it; and each figure alone, for one that is
far off. Both are t tests with bounds for all of them together (`benchmarks.reproduce`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainlab.analysis.evidence import Evidence, grouped
from trainlab.spec import TrainSpec
from trainlab.stats import special
from trainlab.stats.contrasts import Floats
from trainlab.stats.means import Interval, Mean, mean_of, new_run_interval

CURVES_LEVEL = 0.015
FIGURES_LEVEL = 0.005
"""How often a true reproduction may fail, by any of its curves and by any of its figures."""
CHANCE_OUTSIDE = 0.05
"""Of the figures, outside their 95% intervals though all is well."""


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure beside ours."""

    cell: str
    metric: str
    epoch: int
    published: float
    places: int
    """Decimal places it was published to."""
    by_seed: Mapping[int, float]
    """Ours, one by one."""

    @property
    def rounding(self) -> float:
        """How far the published figure may be from what was rounded to it."""
        return 0.5 * 10.0**-self.places

    @cached_property
    def ours(self) -> Mean | None:
        """None where all of ours diverged."""
        return mean_of([*self.by_seed.values()])

    @cached_property
    def interval(self) -> Interval | None:
        """Where one more run of ours falls in 95% of cases; None with fewer than two seeds."""
        return new_run_interval([*self.by_seed.values()])

    @property
    def inside(self) -> bool | None:
        """Whether the published figure may lie in the interval; None where there is none."""
        if self.interval is None:
            return None
        low, high = self.interval.low - self.rounding, self.interval.high + self.rounding
        return low <= self.published <= high


@dataclass(frozen=True)
class PublishedCurve:
    """All published figures of one metric of one cell, held against ours together."""

    cell: str
    metric: str
    deviation: float
    """Its mean over the epochs, in standard deviations of one of our figures; above: ours are lower."""
    p_curve: float
    """Of a mean deviation as large as this, for one more run of ours."""
    p_figure: float
    """The smallest of its figures, each by itself."""
    agrees: bool


def differing_settings(
    evidence: Evidence, settings: Mapping[str, TrainSpec]
) -> dict[str, tuple[str, ...]]:
    """Cells that did not train with the published settings, each with what differs."""
    found = {}
    for cell in evidence.cells:
        ours, published = cell.settings.learning, settings.get(cell.id, cell.settings).learning
        found[cell.id] = tuple(
            f"{name} {ours[name]}, published with {published[name]}"
            for name in ours
            if ours[name] != published[name]
        )
    return {cell: differences for cell, differences in found.items() if differences}


def reproduce(
    evidence: Evidence,
    published: Mapping[str, Mapping[str, tuple[float, ...]]],
    settings: Mapping[str, TrainSpec],
) -> list[PublishedFigure]:
    """Every published figure that the run has an epoch for, of the cells trained with those settings."""
    not_comparable = differing_settings(evidence, settings)
    curves = (
        (cell, metric, values)
        for cell, metrics in published.items()
        if cell not in not_comparable
        for metric, values in metrics.items()
    )
    figures = []
    for cell, metric, values in curves:
        # The most decimal places of any figure of a curve: others may end in zeros.
        places = max(len(f"{value:.6f}".rstrip("0").partition(".")[2]) for value in values)
        for epoch, value in enumerate(values, start=1):
            by_seed = {
                seed: float(line[metric])
                for seed, learned in evidence.learned.get(cell, {}).items()
                for line in learned.epochs
                if line["epoch"] == epoch and line.get(metric) is not None
            }
            if by_seed:
                figures.append(PublishedFigure(cell, metric, epoch, value, places, by_seed))
    return figures


def published_curves(figures: Sequence[PublishedFigure]) -> list[PublishedCurve]:
    """Every curve with two or more seeds of ours, and whether one more run of ours could look so."""
    tested: list[tuple[list[PublishedFigure], Floats]] = []
    for group in grouped(figures, lambda one: (one.cell, one.metric)).values():
        seeds = [seed for seed in group[0].by_seed if all(seed in one.by_seed for one in group)]
        ours = np.array([[one.by_seed[seed] for seed in seeds] for one in group])
        # Seeds that have every figure of the curve, and all of them finite.
        ours = ours[:, np.isfinite(ours).all(axis=0)]
        if ours.shape[1] > 1:
            tested.append((group, ours))
    num_figures = sum(len(group) for group, _ in tested)
    curves = []
    for group, ours in tested:
        published = np.array([one.published for one in group])
        rounding = np.array([one.rounding for one in group])
        p_figure = float(_p(published, rounding, ours).min())
        deviation, p_curve = 0.0, 1.0
        spread = ours.std(axis=1, ddof=1)
        # Figures in which all seeds agree have no scale of their own: they count by themselves alone.
        if (varies := np.ptp(ours, axis=1) > 0).any():
            scale = spread[varies]
            by_seed = (ours[varies] / scale[:, None]).mean(axis=0)
            mean = np.mean(published[varies] / scale)
            deviation = float(mean - by_seed.mean())
            p_curve = float(_p(mean, np.mean(rounding[varies] / scale), by_seed))
        fits = p_curve >= CURVES_LEVEL / len(tested) and p_figure >= FIGURES_LEVEL / num_figures
        cell, metric = group[0].cell, group[0].metric
        curves.append(PublishedCurve(cell, metric, deviation, p_curve, p_figure, fits))
    return curves


def _p(published: Floats, rounding: Floats, ours: Floats) -> Floats:
    """Two-sided, for one more run beside ours [..., seeds]; what rounding explains does not count."""
    beyond = np.maximum(0.0, np.abs(published - ours.mean(axis=-1)) - rounding)
    num_seeds = ours.shape[-1]
    error = ours.std(axis=-1, ddof=1) * math.sqrt(1 + 1 / num_seeds)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * special.stdtr(num_seeds - 1, -beyond / error)
    return np.where(beyond > 0, p, 1.0)
