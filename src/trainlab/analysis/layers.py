"""Layers: each call as the user wrote it, its share of the step, its work and the limit it is near.

Shares come from the watched process, times from the bare ones.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainlab.analysis.document import Entry, Table
from trainlab.analysis.measurement import Measurement
from trainlab.analysis.roofline import layer_roofline
from trainlab.analysis.tables import EMPTY, Field, count, name, share, table_of, value
from trainlab.record.cost_record import CallRow, LayerRow, LayersRecord, NetworkRecord
from trainlab.words import Words

MANY_LAYERS = 30


@dataclass(frozen=True)
class Times:
    """Milliseconds of a bare step that some of it takes."""

    forward_ms: float
    """Of forward and loss."""
    backward_ms: float

    @property
    def total_ms(self) -> float:
        """Forward and backward."""
        return self.forward_ms + self.backward_ms


@dataclass(frozen=True)
class Layer(Times):
    """One call of a module or function. Work is per step, at the record's batch size."""

    row: LayerRow
    forward_share: float
    """Of the whole forward (or loss) phase."""
    backward_share: float


def layer_times(record: LayersRecord, phases_ms: Mapping[str, float]) -> list[Layer]:
    """Every call in order, with the bare step's phases divided by share: what each costs when it is not
    watched."""

    def part(times_us: Sequence[float], phase: str) -> float:
        """Of the phase in all watched steps, those in which the layer did not run included."""
        watched_us = record.phases_us.get(phase)
        phase_us = statistics.fmean(watched_us) if watched_us else 0.0
        return sum(times_us) / record.num_steps / phase_us if phase_us else 0.0

    layers = []
    for row in record.rows:
        forward, backward = part(row.forward_us, row.phase), part(row.backward_us, "backward")
        forward_ms = forward * phases_ms.get(row.phase, 0.0)
        backward_ms = backward * phases_ms.get("backward", 0.0)
        layers.append(Layer(forward_ms, backward_ms, row, forward, backward))
    return layers


def between_layers(layers: Sequence[Layer], phases_ms: Mapping[str, float]) -> Times:
    """Time that no layer accounts for: Python, and autograd's own work."""
    forward_ms = phases_ms.get("forward", 0.0) + phases_ms.get("loss", 0.0)
    inside = _together(layers)
    backward_ms = phases_ms.get("backward", 0.0) - inside.backward_ms
    return Times(forward_ms - inside.forward_ms, backward_ms)


def _together(layers: Sequence[Layer]) -> Times:
    return Times(
        sum(layer.forward_ms for layer in layers), sum(layer.backward_ms for layer in layers)
    )


Line = tuple[str, Times]
"""A row of the table: a call, or a sum of times under a name of its own."""


def layer_table(measurement: Measurement, words: Words) -> Table:
    """A row per call in their order, of many the costliest; then the others together, and the time between
    the calls."""
    assert measurement.layers is not None
    phases_ms = measurement.summary.phases_ms
    layers = layer_times(measurement.layers, phases_ms)
    step_ms = sum(phases_ms.values())
    by_time = sorted(layers, key=lambda layer: layer.total_ms, reverse=True)
    chosen = {id(layer) for layer in by_time[:MANY_LAYERS]}
    rows: list[Line] = [(_name(one.row), one) for one in layers if id(one) in chosen]
    if others := [one for one in layers if id(one) not in chosen]:
        rows.append((words("other_layers", number=f"{len(others):,}"), _together(others)))
    rows.append((words("between_layers"), between_layers(layers, phases_ms)))

    def facts(row: Line) -> tuple[str, str, Entry, float | None, str]:
        """Type, output, parameters, MFLOP and the limit that is near, of a call."""
        if not isinstance(row[1], Layer):
            return "", "", EMPTY, None, ""
        call, near = row[1].row, _near_text(measurement, row[1], words)
        mflop = call.forward_flops / 1e6 or None
        return call.type, _shapes(call), _parameters(call), mflop, near

    fields: list[Field[Line]] = [
        name(words("layer"), lambda row: row[0]),
        name(words("type"), lambda row: facts(row)[0], is_extra=True),
        name(words("output"), lambda row: facts(row)[1]),
        value(words("parameters"), lambda row: facts(row)[2], is_extra=True),
        value(words("forward_mflop"), lambda row: facts(row)[3], is_extra=True),
        value(words("forward_ms"), lambda row: row[1].forward_ms),
    ]
    if measurement.summary.mode == "train":
        fields.append(value(words("backward_ms"), lambda row: row[1].backward_ms))
    fields.append(value(words("share"), lambda row: share(row[1].total_ms / step_ms)))
    fields.append(name(words("near"), lambda row: facts(row)[4]))
    caption, note = (
        words("layer_table", cell=measurement.trial.cell),
        _note(measurement, layers, words),
    )
    return table_of(caption, fields, rows, note, num_shown=MANY_LAYERS + 2, is_sortable=True)


def call_table(record: NetworkRecord, cell: str, words: Words) -> Table:
    """A row per call in their order, without times."""
    fields: list[Field[CallRow]] = [
        name(words("layer"), _name),
        name(words("type"), lambda row: row.type),
        name(words("output"), _shapes),
        value(words("parameters"), _parameters),
    ]
    caption = words("call_table", cell=cell)
    return table_of(caption, fields, record.rows, num_shown=MANY_LAYERS, is_sortable=True)


def _name(row: CallRow) -> str:
    return row.name + (f" ({row.call})" if row.call > 1 else "")


def _shapes(row: CallRow) -> str:
    return " ".join("x".join(map(str, shape)) for shape in row.output_shapes)


def _parameters(row: CallRow) -> Entry:
    return count(row.num_parameters) if row.num_parameters else Entry("", 0.0)


def _near_text(measurement: Measurement, layer: Layer, words: Words) -> str:
    """`compute 45%`: the nearer limit and how much of it was reached."""
    found = layer_roofline(measurement, layer.row, layer.total_ms)
    if found is None:
        return ""
    if found.near == "neither":
        return words("near_neither")
    reached = found.compute_share if found.near == "compute" else found.memory_share
    return f"{words(f'near_{found.near}')} {100 * reached:.0f}%"


def _note(measurement: Measurement, layers: Sequence[Layer], words: Words) -> str:
    assert measurement.layers is not None
    notes = [words("layers_note")]
    if len(layers) > MANY_LAYERS:
        counts = {"number": MANY_LAYERS, "all": f"{len(layers):,}"}
        notes.append(words("costliest_layers", **counts, file="trials/*/layers.json"))
    found = [layer_roofline(measurement, layer.row, layer.total_ms) for layer in layers]
    if any(roofline is not None and roofline.memory_share > 1 for roofline in found):
        notes.append(words("above_memory"))
    if measurement.layers.uncounted:
        notes.append(words("uncounted", names=words.listed(measurement.layers.uncounted)))
    return words.sentences(*notes)
