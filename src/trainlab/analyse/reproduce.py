"""Published single runs against ours: does each figure fall where one more run of ours would?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainlab.analyse.evidence import Evidence
from trainlab.analyse.statistics import Interval, Mean, mean_of, new_run_interval


@dataclass(frozen=True)
class Reproduced:
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
        """Whether the published figure is such a run; None where that cannot be said.

        It was rounded: it stands for every value that rounds to it, and one of them inside is enough.
        """
        if self.interval is None:
            return None
        half = 0.5 * 10.0**-self.places
        return self.interval.low - half <= self.published <= self.interval.high + half


def reproduce(
    evidence: Evidence, published: Mapping[str, Mapping[str, tuple[float, ...]]]
) -> list[Reproduced]:
    """Every published figure that the run has an epoch for, in the order published."""
    return [
        one
        for cell, metrics in published.items()
        for metric, values in metrics.items()
        for one in _curve(evidence, cell, metric, values)
    ]


def _curve(
    evidence: Evidence, cell: str, metric: str, values: tuple[float, ...]
) -> Iterator[Reproduced]:
    for epoch, value in enumerate(values, start=1):
        ours = [
            float(line[metric])
            for one in evidence.learned.get(cell, {}).values()
            for line in one.epochs
            if line["epoch"] == epoch and line.get(metric) is not None
        ]
        if ours:
            interval = new_run_interval(ours)
            yield Reproduced(cell, metric, epoch, value, _places(values), mean_of(ours), interval)


def _places(values: tuple[float, ...]) -> int:
    """Of the figure of a curve that has most: others may end in zeros."""
    return max(len(f"{value:.6f}".rstrip("0").partition(".")[2]) for value in values)
