"""The network: its data flow, and its layers with their share of a step."""

from collections.abc import Sequence

from trainlab.analyse.cost.efficiency import layer_reach
from trainlab.analyse.cost.layers import Layer, between_ms, layer_times
from trainlab.analyse.cost.measurement import Measurement
from trainlab.analyse.cost.roofline import Reach
from trainlab.analyse.findings.cost import MODES
from trainlab.report.document import (
    Block,
    Drawing,
    Entry,
    Paragraph,
    Row,
    Section,
    Table,
    table,
)
from trainlab.report.entries import count, number, share, text
from trainlab.report.figures.network import network
from trainlab.report.figures.network_drawing import draw
from trainlab.report.material import Material
from trainlab.words import Words


def _has_rows(found: Measurement) -> bool:
    return found.layers is not None and bool(found.layers.rows)


def network_section(material: Material, words: Words) -> Section | None:
    """The network as it was called, with each layer's share of a step; None where no step was watched."""
    found = next((one for mode in MODES for one in material.measured(mode) if _has_rows(one)), None)
    if found is None or found.layers is None:
        return None
    layers = layer_times(found.layers, found.summary.phases_ms)
    whole = sum(found.summary.phases_ms.values())
    graph = network(layers, whole)
    parameters = sum(layer.row.num_parameters for layer in layers)
    where = words(
        "network_where",
        step=words(f"step_{found.summary.mode}"),
        cell=found.trial.cell,
        batch=found.summary.batch_size,
    )
    told = words(
        "network_alt",
        number=len(layers),
        parameters=f"{parameters:,}",
        chain=" → ".join(node.name for node in graph.nodes),
    )
    notes = [words("network_note")]
    if graph.is_collapsed:
        notes.append(words("network_collapsed"))
    blocks: list[Block] = [
        Paragraph(words("network_intro", number=len(layers), parameters=f"{parameters:,}") + where),
        Drawing(
            id="flow",
            caption=words("network_caption"),
            alt=told,
            svg=draw(graph, words),
            note=words.sentences(*notes),
        ),
        layer_table(found, words),
    ]
    return Section("network", words("network"), tuple(blocks))


def layer_table(found: Measurement, words: Words) -> Table:
    """Each call as the user wrote it."""
    assert found.layers is not None
    layers = layer_times(found.layers, found.summary.phases_ms)
    whole = sum(found.summary.phases_ms.values())
    trains = found.summary.mode == "train"
    rows = []
    for layer in layers:
        row = layer.row
        again = f" ({row.call})" if row.call > 1 else ""
        entries = (
            text(row.name + again),
            text(row.type),
            text(" ".join("x".join(map(str, shape)) for shape in row.output_shapes)),
            count(row.num_parameters) if row.num_parameters else Entry("", 0.0),
            number(row.forward_flops / 1e6 if row.forward_flops else None),
            number(layer.forward_ms),
            *((number(layer.backward_ms),) if trains else ()),
            share(layer.total_ms / whole),
            text(_near(layer_reach(found, layer), words)),
        )
        rows.append(Row(entries))
    rest = between_ms(layers, found.summary.phases_ms)
    blanks = [Entry("")] * 4
    rows.append(
        Row(
            (
                text(words("between_layers")),
                *blanks,
                number(rest),
                *((Entry(""),) if trains else ()),
                share(rest / whole),
                Entry(""),
            )
        )
    )
    headings = (
        (words("layer"), False),
        (words("type"), False),
        (words("output"), False),
        (words("parameters"), True),
        (words("forward_mflop"), True),
        (words("forward_ms"), True),
        *(((words("backward_ms"), True),) if trains else ()),
        (words("share"), True),
        (words("near"), False),
    )
    return table(
        words("layer_table", cell=found.trial.cell),
        headings,
        rows,
        note=_layer_note(found, layers, words),
        is_sortable=True,
        num_shown=30 if len(rows) > 30 else None,
        is_code=True,
    )


def _layer_note(found: Measurement, layers: Sequence[Layer], words: Words) -> str:
    assert found.layers is not None
    notes = [words("layers_note")]
    reached = (layer_reach(found, layer) for layer in layers)
    if any(reach is not None and reach.memory_share > 1 for reach in reached):
        notes.append(words("above_memory"))
    if found.layers.uncounted:
        notes.append(words("uncounted", names=words.listed(found.layers.uncounted)))
    return words.sentences(*notes)


def _near(reach: Reach | None, words: Words) -> str:
    """`compute 45 %`: the nearer limit and how much of it was reached."""
    if reach is None:
        return ""
    if reach.near == "neither":
        return words("near_neither")
    reached = reach.compute_share if reach.near == "compute" else reach.memory_share
    return f"{words(f'near_{reach.near}')} {100 * reached:.0f} %"
