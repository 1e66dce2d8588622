"""Published single runs against ours: does each figure lie where one more run of ours would fall?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainlab.analyse.evidence import Evidence
from trainlab.spec import TrainSpec
from trainlab.spec.base import setting_of
from trainlab.stats.means import Interval, Mean, mean_of, new_run_interval


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
    """Where one more run of ours falls in 95 % of cases; None with fewer than two seeds."""

    @property
    def inside(self) -> bool | None:
        """Whether the published figure lies in the interval; None where there is none.

        It was rounded: it stands for every value that rounds to it, and one of them inside is enough.
        """
        if self.interval is None:
            return None
        rounding = 0.5 * 10.0**-self.places
        return self.interval.low - rounding <= self.published <= self.interval.high + rounding


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


def _curve(
    evidence: Evidence, cell: str, metric: str, values: tuple[float, ...]
) -> Iterator[PublishedFigure]:
    places = _places(values)
    for epoch, value in enumerate(values, start=1):
        ours = [
            float(line[metric])
            for learned in evidence.learned.get(cell, {}).values()
            for line in learned.epochs
            if line["epoch"] == epoch and line.get(metric) is not None
        ]
        if ours:
            interval = new_run_interval(ours)
            yield PublishedFigure(cell, metric, epoch, value, places, mean_of(ours), interval)


def _differences(ours: TrainSpec, published: TrainSpec) -> Iterator[str]:
    a, b = (spec.model_dump() | {"lr": spec.start_lr} for spec in (ours, published))
    for name in TrainSpec.model_fields:
        if a[name] != b[name] and setting_of(TrainSpec, name).changes_learning:
            yield f"{name} {a[name]}, published with {b[name]}"


def _places(values: tuple[float, ...]) -> int:
    """The most decimal places of any figure of a curve: others may end in zeros."""
    return max(len(f"{value:.6f}".rstrip("0").partition(".")[2]) for value in values)
