"""The first step of a process compared with settled ones: what it pays for that they do not."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from trainlab.analysis.charts import (
    Hover,
    Spec,
    axis_title,
    colour,
    layer,
    named_lines,
    quantity,
    scale_for,
    tooltip,
)
from trainlab.analysis.document import Block, Figure, Paragraph, Section, Table
from trainlab.analysis.finding import MOST_LINES, RunData
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.analysis.tables import Field, name, table_of, value
from trainlab.record.cost_record import ColdStep, CostRecord, LayersRecord
from trainlab.words import Words
from trainlab.words.numbers import figure

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


def first_steps(measured: Sequence[Measurement]) -> list[Spec]:
    """The warm-up steps of the timed processes, as many as all processes of a cell have: a row each, with
    the median over processes in multiples of a settled step."""
    rows: list[Spec] = []
    for measurement in measured[:MOST_LINES]:
        # A settled step is one after the measurement, waited for after every phase like the first ones; in
        # records without such steps, a bare one.
        base_ms = statistics.median(
            statistics.median([*map(_total_ms, record.settled)] or record.step_ms)
            for record in measurement.costs
        )
        steps = zip(*(record.warmup_ms for record in measurement.costs), strict=False)
        for number, step_ms in enumerate(steps, start=1):
            times = statistics.median(step_ms) / base_ms
            rows.append({"cell": measurement.trial.cell, "x": number, "y": times})
    return rows


def first_steps_chart(rows: Sequence[Spec], among: Sequence[str], words: Words) -> Spec:
    """How many times as long as a settled step each of the first steps takes."""
    x, y = words("step_number"), words("times_settled")
    axis = scale_for([row["y"] for row in rows], fits_zero=True)
    hover: Hover = [("cell", words("cell"), None), ("x", x, None), ("y", y, ".3~r")]
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    place: Spec = {
        "x": quantity("x", x, axis={"tickMinStep": 1, "format": "d"}, scale={"nice": False}),
        "y": quantity("y", axis_title(y, axis, words), scale=axis),
        "color": colour("cell", cells, words("cell"), among=among),
        "tooltip": tooltip(hover),
    }
    line = layer("line", place, point={"filled": True, "size": 34}, strokeWidth=2)
    return named_lines(rows, [line], place["x"], place["y"], place["color"], 220)


def cold_section(data: RunData, words: Words) -> Section | None:
    """Why the first step takes longer; None where no warm-up step was kept."""
    figures: list[Block] = []
    tables: list[Block] = []
    for mode in MODES:
        measured = data.evidence.measured_in(mode)
        rows = first_steps(measured)
        if len(rows) > 1:
            caption = words("cold_caption", step=words.step(mode))
            firsts = (f"{row['cell']} {figure(row['y'])}" for row in rows[:200] if row["x"] == 1)
            alt = words("cold_alt", caption=caption, values=words.listed(firsts))
            among = [cell.id for cell in data.evidence.cells]
            spec, note = first_steps_chart(rows, among, words), words("settled_note")
            figures.append(Figure(f"cold-{mode}", caption, alt, spec, note))
        # One cell shows as well as any other why the first step is slow.
        tables += [table for m in measured if (table := cold_table(m, words))][:1]
    if not figures and not tables:
        return None
    blocks = (Paragraph(words("cold_intro")), *figures, *tables)
    return Section("cold", words("cold"), blocks, is_folded=True)
