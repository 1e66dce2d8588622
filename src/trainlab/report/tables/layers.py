"""Layers as a table: each call as the user wrote it, with its work, its time and the limit it is near."""

from collections.abc import Sequence

from trainlab.analyse.cost.layers import Layer, between_layers, layer_times
from trainlab.analyse.cost.measurement import Measurement
from trainlab.analyse.cost.roofline import Roofline, layer_roofline
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

    def layer_name(layer: Layer | None) -> str:
        if layer is None:
            return words("between_layers")
        return layer.row.name + (f" ({layer.row.call})" if layer.row.call > 1 else "")

    def shapes(layer: Layer | None) -> str:
        output_shapes = [] if layer is None else layer.row.output_shapes
        return " ".join("x".join(map(str, shape)) for shape in output_shapes)

    def parameters(layer: Layer | None) -> Entry:
        if layer is None:
            return EMPTY
        return count(layer.row.num_parameters) if layer.row.num_parameters else Entry("", 0.0)

    def mflop(layer: Layer | None) -> float | None:
        return layer.row.forward_flops / 1e6 if layer and layer.row.forward_flops else None

    def near(layer: Layer | None) -> str:
        return "" if layer is None else near_text(layer_roofline(measurement, layer), words)

    fields: list[Field[Layer | None]] = [
        name(words("layer"), layer_name),
        name(words("type"), lambda layer: layer.row.type if layer else "", is_extra=True),
        name(words("output"), shapes),
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
