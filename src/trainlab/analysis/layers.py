"""Layers: each call as the user wrote it, its share of the step, its work and the limit it is near.

Shares come from the watched process, times from the bare ones.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainlab.analysis.document import Entry, Table
from trainlab.analysis.measurement import Measurement
from trainlab.analysis.roofline import layer_roofline, peak_note
from trainlab.analysis.tables import EMPTY, Field, count, name, share, table_of, value
from trainlab.record.cost_record import CallRow, LayerRow, LayersRecord, NetworkRecord
from trainlab.words import Words

MANY_LAYERS = 30


def layer_times(record: LayersRecord, phases_ms: Mapping[str, float]) -> list[tuple[float, float]]:
    """Of every call in order, its forward (or loss) and its backward pass, with the bare step's phases
    divided by share: what each costs when it is not watched."""

    def part_ms(times_us: Sequence[float], phase: str) -> float:
        """Of the phase in all watched steps, those in which the layer did not run included."""
        watched_us = record.phases_us.get(phase)
        phase_us = statistics.fmean(watched_us) if watched_us else 0.0
        share = sum(times_us) / record.num_steps / phase_us if phase_us else 0.0
        return share * phases_ms.get(phase, 0.0)

    return [
        (part_ms(row.forward_us, row.phase), part_ms(row.backward_us, "backward"))
        for row in record.rows
    ]


class Line(NamedTuple):
    """A row of the table: a call, or a sum of times under a name of its own."""

    name: str
    forward_ms: float
    backward_ms: float
    call: LayerRow | None = None
    near: str = ""
    """`compute 45%`: the nearer limit and how much of it was reached."""


def layer_table(measurement: Measurement, words: Words) -> Table:
    """A row per call in their order, of many the costliest; then the others together, and the time between
    the calls."""
    record, phases_ms = measurement.layers, measurement.summary.phases_ms
    assert record is not None
    times_ms, step_ms = layer_times(record, phases_ms), sum(phases_ms.values())
    limits = [
        layer_roofline(measurement, row, sum(ms))
        for row, ms in zip(record.rows, times_ms, strict=True)
    ]
    by_time = sorted(range(len(times_ms)), key=lambda place: -sum(times_ms[place]))
    others = by_time[MANY_LAYERS:]
    rows, notes = [], [words("layers_note")]
    for place, (row, limit) in enumerate(zip(record.rows, limits, strict=True)):
        if place not in others:
            near = ""
            if limit is not None:
                shares = {"compute": limit.compute_share, "memory": limit.memory_share}
                near = words(f"near_{limit.near}")
                near += f" {100 * shares[limit.near]:.0f}%" if limit.near in shares else ""
            rows.append(Line(call_name(row), *times_ms[place], row, near))
    if others:
        rest = [times_ms[place] for place in sorted(others)]
        sums = sum(forward for forward, _ in rest), sum(backward for _, backward in rest)
        rows.append(Line(words("other_layers", number=f"{len(others):,}"), *sums))
        counts = {"number": MANY_LAYERS, "all": f"{len(times_ms):,}"}
        notes.append(words("costliest_layers", **counts, file="trials/*/layers.json"))
    # Time that no layer accounts for: Python, and autograd's own work.
    forward_ms = phases_ms.get("forward", 0.0) + phases_ms.get("loss", 0.0)
    between = (
        forward_ms - sum(forward for forward, _ in times_ms),
        phases_ms.get("backward", 0.0) - sum(backward for _, backward in times_ms),
    )
    rows.append(Line(words("between_layers"), *between))
    notes.append(peak_note(limits, words))
    if record.uncounted:
        notes.append(words("uncounted", names=words.listed(record.uncounted)))
    fields: list[Field[Line]] = [
        name(words("layer"), lambda row: row.name),
        name(words("type"), lambda row: row.call.type if row.call else "", is_extra=True),
        name(words("output"), lambda row: _shapes(row.call)),
        value(words("parameters"), lambda row: _parameters(row.call), is_extra=True),
        value(
            words("forward_mflop"),
            lambda row: (row.call and row.call.forward_flops / 1e6) or None,
            is_extra=True,
        ),
        value(words("forward_ms"), lambda row: row.forward_ms),
        value(words("backward_ms"), lambda row: row.backward_ms),
        value(words("share"), lambda row: share((row.forward_ms + row.backward_ms) / step_ms)),
        name(words("near"), lambda row: row.near),
    ]
    if measurement.summary.mode != "train":
        del fields[6]
    caption, note = words("layer_table", cell=measurement.trial.cell), words.sentences(*notes)
    return table_of(caption, fields, rows, note, num_shown=MANY_LAYERS + 2, is_sortable=True)


def call_table(record: NetworkRecord, cell: str, words: Words) -> Table:
    fields: list[Field[CallRow]] = [
        name(words("layer"), call_name),
        name(words("type"), lambda row: row.type),
        name(words("output"), _shapes),
        value(words("parameters"), _parameters),
    ]
    caption = words("call_table", cell=cell)
    return table_of(caption, fields, record.rows, num_shown=MANY_LAYERS, is_sortable=True)


def call_name(row: CallRow) -> str:
    """With which call of the layer it is, from the second on."""
    return row.name + (f" ({row.call})" if row.call > 1 else "")


def _shapes(row: CallRow | None) -> str:
    return " ".join("x".join(map(str, shape)) for shape in row.output_shapes) if row else ""


def _parameters(row: CallRow | None) -> Entry:
    """Empty of a sum of calls, and of a call without any, which is sorted among the numbers."""
    if row is None:
        return EMPTY
    return count(row.num_parameters) if row.num_parameters else Entry("", 0.0)
