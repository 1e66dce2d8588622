"""The first step of a process compared with settled ones: what it pays for that they do not."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainlab.record.cost import ColdStep, CostRecord, LayersRecord


@dataclass(frozen=True)
class Pair:
    """A figure of the first step and of settled ones."""

    name: str
    first: float
    settled: float

    @property
    def ratio(self) -> float | None:
        """The first figure over the settled one; None where that is 0."""
        return self.first / self.settled if self.settled else None


@dataclass(frozen=True)
class ColdStart:
    """Medians over the timed processes; layers from the watched one."""

    step_ms: Pair
    phases_ms: tuple[Pair, ...]
    """In the order of the step."""
    layers_ms: tuple[Pair, ...]
    """Forward passes of the layers, those that gained most by warming up first."""
    evidence: tuple[Pair, ...]
    """What was counted during the step: memory touched first, modules and libraries loaded, …"""


COUNTS: dict[str, Callable[[ColdStep], int | None]] = {
    "page_faults": lambda step: step.page_faults,
    "modules": lambda step: step.modules_imported,
    "libraries": lambda step: step.libraries_loaded,
    "allocations": lambda step: step.device_allocations,
}


def cold_start(costs: Sequence[CostRecord], layers: LayersRecord | None) -> ColdStart | None:
    """None where no warm-up step was recorded."""
    records = [record for record in costs if record.cold and record.settled]
    if not records:
        return None
    phases = dict.fromkeys(name for r in records for step in r.cold for name in step.phases_ms)
    return ColdStart(
        step_ms=_pair("step", records, _total_ms),
        phases_ms=tuple(_phase(name, records) for name in phases),
        layers_ms=_layers(layers),
        evidence=tuple(
            _pair(name, records, count)
            for name, count in COUNTS.items()
            if count(records[0].cold[0]) is not None
        ),
    )


def settled_ms(costs: Sequence[CostRecord]) -> float:
    """A settled step: what a first one is measured against, everywhere.

    One after the measurement, waited for after every phase like the first ones; in records without
    such steps, a bare one. The median over processes.
    """
    return statistics.median(
        statistics.median([_total_ms(step) for step in record.settled] or record.step_ms)
        for record in costs
    )


def _total_ms(step: ColdStep) -> float:
    return sum(step.phases_ms.values())


def _phase(name: str, records: Sequence[CostRecord]) -> Pair:
    return _pair(name, records, lambda step: step.phases_ms.get(name, 0.0))


def _pair(
    name: str, records: Sequence[CostRecord], value: Callable[[ColdStep], float | None]
) -> Pair:
    return Pair(
        name,
        statistics.median(value(record.cold[0]) or 0 for record in records),
        statistics.median(
            statistics.median(value(step) or 0 for step in record.settled) for record in records
        ),
    )


def _layers(layers: LayersRecord | None) -> tuple[Pair, ...]:
    if layers is None:
        return ()
    pairs = [
        Pair(row.name, row.first_forward_us / 1e3, statistics.median(row.forward_us) / 1e3)
        for row in layers.rows
        if row.first_forward_us is not None and row.forward_us
    ]
    return tuple(sorted(pairs, key=lambda pair: pair.settled - pair.first))
