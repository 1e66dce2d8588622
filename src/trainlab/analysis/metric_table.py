"""MetricTable: one metric of all cells by seed, ready to be compared."""

import math
from dataclasses import dataclass, replace

import numpy as np

from trainlab.analysis.contrast import with_like_seeds
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.metrics import resolution_of
from trainlab.spec import Cell
from trainlab.stats.contrasts import Family, Floats, compare_cells, table_of


@dataclass(frozen=True)
class MetricTable:
    """The cells that have a value of the metric, and their values."""

    metric: str
    cells: tuple[Cell, ...]
    values: Floats
    """Cells by seeds, NaN where there is no value."""
    looks: tuple[int, ...]
    resolution: float

    @property
    def means(self) -> Floats:
        """Over the seeds of each cell."""
        return np.asarray(np.nanmean(self.values, axis=1))

    @property
    def index_of(self) -> dict[str, int]:
        """The row of each cell, by its id."""
        return {cell.id: row for row, cell in enumerate(self.cells)}

    def of_rows(self, rows: list[int]) -> "MetricTable":
        """The same for some of its cells."""
        return replace(self, cells=tuple(self.cells[row] for row in rows), values=self.values[rows])

    def compared(self, weights: Floats) -> Family:
        """The contrasts as one family."""
        return compare_cells(self.values, weights, self.looks, self.resolution)


def metric_table(evidence: Evidence, metric: str) -> MetricTable:
    """Of the trials that ended well, in the cells that can be compared."""
    by_id = {cell.id: cell for cell in with_like_seeds(evidence.cells)}
    ids, values = table_of({cell: evidence.values(cell, metric) for cell in by_id})
    cells = tuple(by_id[cell] for cell in ids)
    looks, resolution = evidence.study.looks, resolution_of(evidence, metric)
    return MetricTable(metric, cells, values, looks, resolution)


def never_diverged(evidence: Evidence, table: MetricTable) -> list[int]:
    """The rows of the cells all of whose seeds have a value."""
    return [
        row
        for row, cell in enumerate(table.cells)
        if all(map(math.isfinite, evidence.values(cell.id, table.metric).values()))
    ]
