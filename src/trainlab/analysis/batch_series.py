"""Cells that differ by batch size alone: what a step costs as a function of the batch."""

from dataclasses import dataclass

from trainlab.analysis.cost.measurement import Measurement
from trainlab.analysis.evidence import Evidence
from trainlab.spec import Cell
from trainlab.spec.settings import Scalar
from trainlab.stats.scaling import BatchScaling, fit_batches, noise_of


@dataclass(frozen=True)
class BatchSeries:
    """Measurements in one mode by batch size, the smallest first."""

    mode: str
    by_size: dict[int, Measurement]

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of their batch sizes."""
        return tuple(measurement.trial.cell for measurement in self.by_size.values())

    def fit(self) -> BatchScaling:
        """The time of a step by batch size, and the noise between the processes that measured it."""
        times = {size: m.summary.step_ms.value for size, m in self.by_size.items()}
        return fit_batches(times, noise_of(m.process_ms for m in self.by_size.values()))


def _others(cell: Cell, size: int) -> str:
    """All settings but the batch size; of a script, but the argument that is that size."""
    arguments = {
        name for name, level in cell.settings.script.items() if _sets_size(name, level, size)
    }
    return cell.settings.model_dump_json(exclude={"batch_size": True, "script": arguments})


def _sets_size(name: str, level: Scalar, size: int) -> bool:
    return "batch" in name.lower() and type(level) is int and level == size


def batch_series(evidence: Evidence, mode: str) -> list[BatchSeries]:
    """Each set of two or more batch sizes with all else equal."""
    groups: dict[str, dict[int, Measurement]] = {}
    for cell in evidence.cells:
        measurement = evidence.measurement(cell.id, mode)
        if measurement is not None:
            size = measurement.summary.batch_size
            groups.setdefault(_others(cell, size), {})[size] = measurement
    return [
        BatchSeries(mode, dict(sorted(by_size.items())))
        for by_size in groups.values()
        if len(by_size) > 1
    ]
