"""The first step of a process compared with settled ones: what it pays for that they do not."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from trainlab.analysis.document import Paragraph, Section, Table
from trainlab.analysis.finding import RunData
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.analysis.tables import Field, name, table_of, value
from trainlab.record.cost_record import ColdStep, CostRecord, LayersRecord
from trainlab.words import Words

SMALL_PHASE = 0.05
"""A phase that takes a smaller share of the first step explains nothing and is left out."""
COLD_LAYERS = 3
COUNTS = {
    "page_faults": "page_faults",
    "modules": "modules_imported",
    "libraries": "libraries_loaded",
    "allocations": "device_allocations",
}
"""What is counted during a step, by its name in the words: its field in the record."""


@dataclass(frozen=True)
class ColdPair:
    """A figure of the first step and of settled ones."""

    name: str
    first: float
    settled: float

    @property
    def ratio(self) -> float | None:
        """The first figure over the settled one; None where that is 0."""
        return self.first / self.settled if self.settled else None

    @property
    def excess(self) -> float:
        """How much more the first step has."""
        return self.first - self.settled


@dataclass(frozen=True)
class ColdStart:
    """Medians over the timed processes; layers from the watched one."""

    step_ms: ColdPair
    phases_ms: tuple[ColdPair, ...]
    """In the order of the step."""
    layers_ms: tuple[ColdPair, ...]
    """Forward passes of the layers, those that gained most by warming up first."""
    evidence: tuple[ColdPair, ...]
    """What was counted during the step: memory touched first, modules and libraries loaded, …"""
    slowest: ColdPair
    """The phase that takes longer by most."""
    in_slowest: tuple[ColdPair, ...]
    """What was counted during that phase."""


def cold_start(costs: Sequence[CostRecord], layers: LayersRecord | None) -> ColdStart | None:
    """None where no warm-up step was recorded."""
    records = [record for record in costs if record.cold and record.settled]
    if not records:
        return None

    def pair(name: str, read: Callable[[ColdStep], float | None]) -> ColdPair:
        first = statistics.median(read(record.cold[0]) or 0 for record in records)
        settled = [statistics.median(read(step) or 0 for step in r.settled) for r in records]
        return ColdPair(name, first, statistics.median(settled))

    def phase(name: str) -> ColdPair:
        return pair(name, lambda step: step.phases_ms.get(name))

    phases = dict.fromkeys(name for r in records for step in r.cold for name in step.phases_ms)
    forward = [
        ColdPair(row.name, row.first_forward_us / 1e3, statistics.median(row.forward_us) / 1e3)
        for row in (() if layers is None else layers.rows)
        if row.first_forward_us is not None and row.forward_us
    ]
    counts = {name: attrgetter(field) for name, field in COUNTS.items()}
    first = records[0].cold[0]
    phases_ms = tuple(map(phase, phases))
    slowest = max(phases_ms, key=attrgetter("excess"))

    def in_phase(name: str) -> ColdPair:
        return pair(name, lambda step: step.in_phases.get(slowest.name, {}).get(COUNTS[name]))

    return ColdStart(
        step_ms=pair("step", _total_ms),
        phases_ms=phases_ms,
        layers_ms=tuple(sorted(forward, key=lambda one: one.settled - one.first)),
        evidence=tuple(
            pair(name, read) for name, read in counts.items() if read(first) is not None
        ),
        slowest=slowest,
        in_slowest=tuple(map(in_phase, COUNTS)),
    )


def _total_ms(step: ColdStep) -> float:
    return sum(step.phases_ms.values())


def cold_table(measurement: Measurement, words: Words) -> Table | None:
    """The first step of a process beside a settled one; None where no warm-up step was kept."""
    cold = cold_start(measurement.costs, measurement.layers)
    if cold is None:
        return None
    rows = {words("whole_step_ms"): cold.step_ms}
    for pair in cold.phases_ms:
        if pair.first > SMALL_PHASE * cold.step_ms.first:
            rows[words("phase_ms", phase=words.phase(pair.name))] = pair
    for pair in cold.layers_ms[:COLD_LAYERS]:
        rows[words("layer_forward_ms", layer=pair.name)] = pair
    rows |= {words.named("counted", pair.name): pair for pair in cold.evidence if pair.first}
    fields: list[Field[tuple[str, ColdPair]]] = [
        name(words("what"), lambda row: row[0]),
        value(words("first_step"), lambda row: row[1].first),
        value(words("settled"), lambda row: row[1].settled),
        value(words("ratio"), lambda row: row[1].ratio),
    ]
    step, cell = words.step(measurement.summary.mode), measurement.trial.cell
    caption = words("cold_table", step=step, cell=cell)
    return table_of(caption, fields, rows.items(), words("cold_note"))


def cold_section(data: RunData, words: Words) -> Section | None:
    """Why the first step takes longer; None where no warm-up step was kept."""
    tables: list[Table] = []
    for mode in MODES:
        # One cell shows as well as any other why the first step is slow.
        found = (cold_table(one, words) for one in data.evidence.measured_in(mode))
        tables += filter(None, [next(filter(None, found), None)])
    if not tables:
        return None
    return Section("cold", words("cold"), (Paragraph(words("cold_intro")), *tables), is_folded=True)
