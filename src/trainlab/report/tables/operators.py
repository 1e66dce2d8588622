"""Operators as a table, the costliest first."""

from trainlab.analysis.document import Table
from trainlab.analysis.measurement import Measurement
from trainlab.analysis.operators import Sort, device_us, is_on_device, outside_us, ranked
from trainlab.analysis.tables import count, name, number, share, table_of, value
from trainlab.record.cost_record import OperatorsRecord
from trainlab.words import Words
from trainlab.words.numbers import bare_operator, percent

TOP = 10


def operator_table(
    measurement: Measurement, words: Words, *, sort: Sort = "self", top: int = TOP
) -> Table:
    """All operators, of which `top` are shown at first."""
    record, cell = measurement.operators, measurement.trial.cell
    assert record is not None
    by_shape = any(row.shapes for row in record.rows)
    notes = [_outside_text(record, words)]
    if not record.calls_are_equal:
        notes.append(words("calls_differ"))
    caption = words(
        "operator_table",
        cell=cell,
        step=words.step(measurement.summary.mode),
        device=measurement.trial.resolved.get("device_name", ""),
    )
    return table_of(
        caption,
        [
            name(words("operator"), lambda op: bare_operator(op.name)),
            *([name(words("shapes"), lambda op: op.shapes)] if by_shape else []),
            value(words("share"), lambda op: share(op.share)),
            value(words("self_us"), lambda op: number(op.self_us, f"{op.self_us:,.1f}")),
            value(words("total_us"), lambda op: number(op.total_us, f"{op.total_us:,.1f}")),
            value(words("average_us"), lambda op: number(op.average_us, f"{op.average_us:,.1f}")),
            value(words("calls"), lambda op: op.calls_per_step),
            value(words("memory_kib"), lambda op: count(round(op.memory_bytes / 1024))),
        ],
        ranked(record, sort),
        words.sentences(*notes),
        cell=lambda op: cell,
        num_shown=top,
        is_sortable=True,
    )


def _outside_text(record: OperatorsRecord, words: Words) -> str:
    """What no operator accounts for; on a GPU the table has times of the device, which this is not."""
    outside, step_us = outside_us(record), record.profiled_step_us
    if is_on_device(record):
        device, time, wall = (f"{us:,.1f}" for us in (device_us(record), outside, step_us))
        return words("device_note", device=device, time=time, wall=wall)
    return words("outside_note", time=f"{outside:,.1f}", share=percent(outside / step_us))
