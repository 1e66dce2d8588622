"""The network: its data flow and its layers, with their share of a step where that was measured."""

from collections.abc import Sequence
from typing import Any

from trainlab.analysis.document import Drawing, Paragraph, Section, Table
from trainlab.analysis.finding import RunData
from trainlab.analysis.layers import layer_times
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.record.cost_record import CallRow, NetworkRecord
from trainlab.report.figures.network import Network, network
from trainlab.report.figures.network_drawing import draw
from trainlab.report.tables.layers import call_table, layer_table
from trainlab.words import Words


def network_section(data: RunData, words: Words) -> Section | None:
    """The network as it was called: with each layer's share of a step where layers were timed, else as the
    first setting that trained had it; None where neither was recorded."""
    measured = [m for mode in MODES for m in data.evidence.measured_in(mode)]
    timed = next((m for m in measured if m.layers is not None and m.layers.rows), None)
    if timed is not None:
        return _timed_section(timed, words)
    for cell in data.evidence.cells:
        for learned in data.evidence.learned.get(cell.id, {}).values():
            if (record := learned.read_network()) is not None:
                return _plain_section(record, cell.id, words)
    return None


def _timed_section(measurement: Measurement, words: Words) -> Section:
    assert measurement.layers is not None
    phases_ms = measurement.summary.phases_ms
    layers, step_ms = layer_times(measurement.layers, phases_ms), sum(phases_ms.values())
    rows = [layer.row for layer in layers]
    graph = network(rows, [layer.total_ms / step_ms if step_ms else 0.0 for layer in layers])
    where = words(
        "network_where",
        step=words.step(measurement.summary.mode),
        cell=measurement.trial.cell,
        batch=measurement.summary.batch_size,
    )
    table = layer_table(measurement, words)
    return _section(rows, graph, where, words("network_note"), table, words)


def _plain_section(record: NetworkRecord, cell: str, words: Words) -> Section:
    where = words("network_shapes", batch=record.batch_size)
    table = call_table(record, cell, words)
    return _section(
        record.rows, network(record.rows), where, words("network_note_plain"), table, words
    )


def _section(
    rows: Sequence[CallRow], graph: Network, where: str, note: str, table: Table, words: Words
) -> Section:
    counts: dict[str, Any] = {
        "number": len(rows),
        "parameters": f"{sum(row.num_parameters for row in rows):,}",
    }
    drawing = Drawing(
        id="flow",
        caption=words("network_caption"),
        alt=words("network_alt", **counts, chain=" → ".join(node.name for node in graph.nodes)),
        svg=draw(graph, words),
        note=words.sentences(note, *([words("network_collapsed")] if graph.is_collapsed else [])),
    )
    intro = Paragraph(words("network_intro", **counts) + where)
    return Section("network", words("network"), (intro, drawing, table))
