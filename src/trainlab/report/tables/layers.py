"""Layers as a table: each call as the user wrote it, with its work, its time and the limit it is near."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainlab.analysis.document import Entry, Table
from trainlab.analysis.layers import Between, Layer, between_layers, layer_times
from trainlab.analysis.measurement import Measurement
from trainlab.analysis.roofline import Roofline, layer_roofline
from trainlab.analysis.tables import EMPTY, Field, count, name, share, table_of, value
from trainlab.record.cost_record import CallRow, NetworkRecord
from trainlab.words import Words

MANY_LAYERS = 30


def layer_table(measurement: Measurement, words: Words) -> Table:
    """A row per call in their order, of many the costliest; then the others together, and the time between
    the calls."""
    assert measurement.layers is not None
    phases_ms = measurement.summary.phases_ms
    layers = layer_times(measurement.layers, phases_ms)
    step_ms = sum(phases_ms.values())
    shown, others = _costliest(layers)
    sums = [_Sum(words("between_layers"), between_layers(layers, phases_ms))]
    if others:
        caption = words("other_layers", number=f"{len(others):,}")
        sums.insert(0, _Sum(caption, _together(others)))

    def parameters(row: Layer | _Sum) -> Entry:
        return EMPTY if isinstance(row, _Sum) else _parameters(row.row)

    def mflop(row: Layer | _Sum) -> float | None:
        counted = isinstance(row, Layer) and row.row.forward_flops
        return counted / 1e6 if counted else None

    def near(row: Layer | _Sum) -> str:
        return "" if isinstance(row, _Sum) else near_text(layer_roofline(measurement, row), words)

    def times(row: Layer | _Sum) -> Layer | Between:
        return row.times if isinstance(row, _Sum) else row

    fields: list[Field[Layer | _Sum]] = [
        name(words("layer"), lambda row: row.name if isinstance(row, _Sum) else _name(row.row)),
        name(
            words("type"), lambda row: row.row.type if isinstance(row, Layer) else "", is_extra=True
        ),
        name(words("output"), lambda row: _shapes(row.row) if isinstance(row, Layer) else ""),
        value(words("parameters"), parameters, is_extra=True),
        value(words("forward_mflop"), mflop, is_extra=True),
        value(words("forward_ms"), lambda row: times(row).forward_ms),
    ]
    if measurement.summary.mode == "train":
        fields.append(value(words("backward_ms"), lambda row: times(row).backward_ms))
    fields += [
        value(words("share"), lambda row: share(times(row).total_ms / step_ms)),
        name(words("near"), near),
    ]
    rows: list[Layer | _Sum] = [*shown, *sums]
    return table_of(
        words("layer_table", cell=measurement.trial.cell),
        fields,
        rows,
        _note(measurement, layers, words),
        num_shown=MANY_LAYERS + len(sums),
        is_sortable=True,
    )


@dataclass(frozen=True)
class _Sum:
    """A row that is no call."""

    name: str
    times: Between


def _costliest(layers: Sequence[Layer]) -> tuple[list[Layer], list[Layer]]:
    """Those to be shown, in their order, and the others."""
    ranked = sorted(layers, key=lambda layer: layer.total_ms, reverse=True)
    chosen = {id(layer) for layer in ranked[:MANY_LAYERS]}
    shown = [layer for layer in layers if id(layer) in chosen]
    return shown, [layer for layer in layers if id(layer) not in chosen]


def _together(layers: Sequence[Layer]) -> Between:
    return Between(
        sum(layer.forward_ms for layer in layers), sum(layer.backward_ms for layer in layers)
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
    if len(layers) > MANY_LAYERS:
        counts = {"number": MANY_LAYERS, "all": f"{len(layers):,}"}
        notes.append(words("costliest_layers", **counts, file="trials/*/layers.json"))
    rooflines = (layer_roofline(measurement, layer) for layer in layers)
    if any(roofline is not None and roofline.memory_share > 1 for roofline in rooflines):
        notes.append(words("above_memory"))
    if measurement.layers.uncounted:
        notes.append(words("uncounted", names=words.listed(measurement.layers.uncounted)))
    return words.sentences(*notes)
