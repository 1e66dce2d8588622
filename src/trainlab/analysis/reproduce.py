"""Published single runs against ours: does each figure lie where one more run of ours would fall?

One in twenty figures lies outside its 95% interval by chance, and those of one run move together: their
number decides nothing. What decides is each curve as a whole, by its mean deviation over the epochs, whose
spread between our seeds has the correlation of the epochs in it; and each figure alone, for one that is
far off. Both are t tests with bounds for all of them together (`benchmarks.reproduce`).
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from scipy import special

from trainlab.analysis.evidence import Evidence
from trainlab.spec import TrainSpec
from trainlab.spec.base import setting_of
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
    ours: Mean | None
    interval: Interval | None
    """Where one more run of ours falls in 95% of cases; None with fewer than two seeds."""
    by_seed: Mapping[int, float] = field(default_factory=dict)
    """Ours, one by one."""

    @property
    def rounding(self) -> float:
        """How far the published figure may be from what was rounded to it."""
        return 0.5 * 10.0**-self.places

    @property
    def inside(self) -> bool | None:
        """Whether the published figure lies in the interval; None where there is none.

        It was rounded: it stands for every value that rounds to it, and one of them inside is enough.
        """
        if self.interval is None:
            return None
        low, high = self.interval.low - self.rounding, self.interval.high + self.rounding
        return low <= self.published <= high


@dataclass(frozen=True)
class PublishedCurve:
    """All published figures of one metric of one cell, held against ours together."""

    cell: str
    metric: str
    num_figures: int
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
    """Cells that did not train with the published settings, each with what differs.

    Whether the data was a subset is reported elsewhere.
    """
    return {
        cell.id: differences
        for cell in evidence.cells
        if cell.id in settings
        and (differences := tuple(_differences(cell.settings, settings[cell.id])))
    }


def reproduce(
    evidence: Evidence,
    published: Mapping[str, Mapping[str, tuple[float, ...]]],
    settings: Mapping[str, TrainSpec],
) -> list[PublishedFigure]:
    """Every published figure that the run has an epoch for, in the order published.

    `settings` are those of the published cells: a cell trained with others is left out.
    """
    not_comparable = differing_settings(evidence, settings)
    return [
        figure
        for cell, metrics in published.items()
        if cell not in not_comparable
        for metric, values in metrics.items()
        for figure in _curve(evidence, cell, metric, values)
    ]


def published_curves(figures: Sequence[PublishedFigure]) -> list[PublishedCurve]:
    """Every curve with two or more seeds of ours, and whether one more run of ours could look so."""
    groups = [list(g) for _, g in groupby(figures, key=lambda f: (f.cell, f.metric))]
    tested = [(group, seeds) for group in groups if len(seeds := _shared_seeds(group)) > 1]
    num_figures = sum(len(group) for group, _ in tested)
    return [
        _published_curve(group, seeds, CURVES_LEVEL / len(tested), FIGURES_LEVEL / num_figures)
        for group, seeds in tested
    ]


def _published_curve(
    group: Sequence[PublishedFigure], seeds: Sequence[int], curve_bound: float, figure_bound: float
) -> PublishedCurve:
    """Figures in which all seeds agree have no scale of their own: they count by themselves alone."""
    ours = [[figure.by_seed[seed] for seed in seeds] for figure in group]
    spreads = [statistics.stdev(values) for values in ours]
    p_figure = min(
        _p(figure.published - statistics.fmean(values), figure.rounding, spread, len(seeds))
        for figure, values, spread in zip(group, ours, spreads, strict=True)
    )
    scaled = [
        (figure, values, spread)
        for figure, values, spread in zip(group, ours, spreads, strict=True)
        if spread > 0
    ]
    deviation, p_curve = 0.0, 1.0
    if scaled:
        by_seed = [
            statistics.fmean(values[place] / spread for _, values, spread in scaled)
            for place in range(len(seeds))
        ]
        published = statistics.fmean(figure.published / spread for figure, _, spread in scaled)
        rounding = statistics.fmean(figure.rounding / spread for figure, _, spread in scaled)
        deviation = published - statistics.fmean(by_seed)
        p_curve = _p(deviation, rounding, statistics.stdev(by_seed), len(seeds))
    agrees = p_curve >= curve_bound and p_figure >= figure_bound
    first = group[0]
    return PublishedCurve(
        first.cell, first.metric, len(group), deviation, p_curve, p_figure, agrees
    )


def _p(difference: float, rounding: float, std: float, n: int) -> float:
    """Two-sided, for one more run beside n of ours; what rounding explains is not held against it."""
    beyond = max(0.0, abs(difference) - rounding)
    if not beyond:
        return 1.0
    if not std:
        return 0.0
    return 2 * float(special.stdtr(n - 1, -beyond / (std * math.sqrt(1 + 1 / n))))


def _shared_seeds(group: Sequence[PublishedFigure]) -> list[int]:
    """Seeds that have every figure of a curve, and all of them finite."""
    first, *others = group
    return [
        seed
        for seed, value in first.by_seed.items()
        if math.isfinite(value)
        and all(math.isfinite(other.by_seed.get(seed, math.nan)) for other in others)
    ]


def _curve(
    evidence: Evidence, cell: str, metric: str, values: tuple[float, ...]
) -> Iterator[PublishedFigure]:
    places = _places(values)
    for epoch, value in enumerate(values, start=1):
        by_seed = {
            seed: float(line[metric])
            for seed, learned in evidence.learned.get(cell, {}).items()
            for line in learned.epochs
            if line["epoch"] == epoch and line.get(metric) is not None
        }
        if ours := list(by_seed.values()):
            mean, interval = mean_of(ours), new_run_interval(ours)
            yield PublishedFigure(cell, metric, epoch, value, places, mean, interval, by_seed)


def _differences(ours: TrainSpec, published: TrainSpec) -> Iterator[str]:
    a, b = (spec.model_dump() | {"lr": spec.start_lr} for spec in (ours, published))
    for name in TrainSpec.model_fields:
        if a[name] != b[name] and setting_of(TrainSpec, name).changes_learning:
            yield f"{name} {a[name]}, published with {b[name]}"


def _places(values: tuple[float, ...]) -> int:
    """The most decimal places of any figure of a curve: others may end in zeros."""
    return max(len(f"{value:.6f}".rstrip("0").partition(".")[2]) for value in values)
