"""The network: its data flow, and its layers with their share of a step."""

from trainlab.analyse.cost.layers import layer_times
from trainlab.analyse.cost.measurement import MODES
from trainlab.report.document import Drawing, Paragraph, Section
from trainlab.report.figures.network import network
from trainlab.report.figures.network_drawing import draw
from trainlab.report.run_data import RunData
from trainlab.report.tables.layers import layer_table
from trainlab.words import Words


def network_section(data: RunData, words: Words) -> Section | None:
    """The network as it was called, with each layer's share of a step; None where no layers were timed."""
    measured = [m for mode in MODES for m in data.evidence.measured_in(mode)]
    shown = next((m for m in measured if m.layers is not None and m.layers.rows), None)
    if shown is None or shown.layers is None:
        return None
    layers = layer_times(shown.layers, shown.summary.phases_ms)
    graph = network(layers, sum(shown.summary.phases_ms.values()))
    counts = {
        "number": len(layers),
        "parameters": f"{sum(layer.row.num_parameters for layer in layers):,}",
    }
    where = words(
        "network_where",
        step=words.step(shown.summary.mode),
        cell=shown.trial.cell,
        batch=shown.summary.batch_size,
    )
    notes = [words("network_note")]
    if graph.is_collapsed:
        notes.append(words("network_collapsed"))
    drawing = Drawing(
        id="flow",
        caption=words("network_caption"),
        alt=words("network_alt", **counts, chain=" → ".join(node.name for node in graph.nodes)),
        svg=draw(graph, words),
        note=words.sentences(*notes),
    )
    intro = Paragraph(words("network_intro", **counts) + where)
    return Section("network", words("network"), (intro, drawing, layer_table(shown, words)))
