"""Layers as a table: each call as the user wrote it, with its work, its time and the limit it is near."""

from collections.abc import Sequence

from trainlab.analyse.cost.layers import Layer, between_layers, layer_times
from trainlab.analyse.cost.measurement import Measurement
from trainlab.analyse.cost.roofline import Roofline, layer_roofline
from trainlab.record.cost import CallRow, NetworkRecord
from trainlab.report.document import Entry, Table
from trainlab.report.tables.columns import EMPTY, Field, count, name, share, table_of, value
from trainlab.words import Words

MANY_LAYERS = 30


def layer_table(measurement: Measurement, words: Words) -> Table:
    """A row per call in their order; the last row is the time between them."""
    assert measurement.layers is not None
    phases_ms = measurement.summary.phases_ms
    layers = layer_times(measurement.layers, phases_ms)
    step_ms, rest = sum(phases_ms.values()), between_layers(layers, phases_ms)

    def parameters(layer: Layer | None) -> Entry:
        return EMPTY if layer is None else _parameters(layer.row)

    def mflop(layer: Layer | None) -> float | None:
        return layer.row.forward_flops / 1e6 if layer and layer.row.forward_flops else None

    def near(layer: Layer | None) -> str:
        return "" if layer is None else near_text(layer_roofline(measurement, layer), words)

    fields: list[Field[Layer | None]] = [
        name(words("layer"), lambda layer: _name(layer.row) if layer else words("between_layers")),
        name(words("type"), lambda layer: layer.row.type if layer else "", is_extra=True),
        name(words("output"), lambda layer: _shapes(layer.row) if layer else ""),
        value(words("parameters"), parameters, is_extra=True),
        value(words("forward_mflop"), mflop, is_extra=True),
        value(words("forward_ms"), lambda layer: (layer or rest).forward_ms),
    ]
    if measurement.summary.mode == "train":
        fields.append(value(words("backward_ms"), lambda layer: (layer or rest).backward_ms))
    fields += [
        value(words("share"), lambda layer: share((layer or rest).total_ms / step_ms)),
        name(words("near"), near),
    ]
    return table_of(
        words("layer_table", cell=measurement.trial.cell),
        fields,
        [*layers, None],
        _note(measurement, layers, words),
        num_shown=MANY_LAYERS,
        is_sortable=True,
    )


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


def near_text(roofline: Roofline | None, words: Words) -> str:
    """`compute 45%`: the nearer limit and how much of it was reached."""
    if roofline is None:
        return ""
    if roofline.near == "neither":
        return words("near_neither")
    reached = roofline.compute_share if roofline.near == "compute" else roofline.memory_share
    return f"{words(f'near_{roofline.near}')} {100 * reached:.0f}%"


def _note(measurement: Measurement, layers: Sequence[Layer], words: Words) -> str:
    assert measurement.layers is not None
    notes = [words("layers_note")]
    rooflines = (layer_roofline(measurement, layer) for layer in layers)
    if any(roofline is not None and roofline.memory_share > 1 for roofline in rooflines):
        notes.append(words("above_memory"))
    if measurement.layers.uncounted:
        notes.append(words("uncounted", names=words.listed(measurement.layers.uncounted)))
    return words.sentences(*notes)
