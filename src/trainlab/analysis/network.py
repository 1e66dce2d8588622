"""Network: a step's calls as boxes and what flows between them, drawn as SVG.

A network of many calls is shown by block: neighbours under one name become one box. A chain is wrapped into
columns, branches stand side by side, connections that skip layers run beside the column.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import cycle, pairwise, takewhile
from typing import Any

from trainlab.analysis.document import Drawing, Paragraph, Section, Table
from trainlab.analysis.finding import RunData
from trainlab.analysis.layers import call_table, layer_table, layer_times
from trainlab.analysis.measurement import MODES
from trainlab.record.cost_record import CallRow
from trainlab.words import Words
from trainlab.words.numbers import percent

MOST_BOXES = 60
"""More calls than this are drawn by block."""
BATCH = -1
"""Stands for the batch itself among the inputs of a box."""
SHORT = 5
"""Up to so many ranks stand in one column."""
MOST_COLUMNS = 3
BOX_W, BOX_H = 236, 54
GAP_X, GAP_Y = 22, 20
LANE, AISLE = 56, 34
"""Room beside a column, with and without connections that skip layers."""
NAME, SMALL = 13, 12
"""Sizes of letters: printed across a page they must still be read."""
MARGIN = 10
FONT = "Trainlab Report, Trainlab Sans SC, Noto Sans SC, Noto Sans CJK SC, sans-serif"


@dataclass(frozen=True)
class Node:
    """One box: a call, or neighbouring calls of one block."""

    name: str
    type: str
    shape: str
    num_parameters: int
    share: float | None
    """Of the whole step, forward and backward; None where no time was measured."""
    inputs: tuple[int, ...]
    """The boxes whose output it takes, by number; BATCH for the batch."""
    num_calls: int = 1


@dataclass(frozen=True)
class Network:
    """The boxes in the order of the calls."""

    nodes: tuple[Node, ...]
    is_collapsed: bool


def network_section(data: RunData, words: Words) -> Section | None:
    """The network as it was called: with each layer's share of a step where layers were timed, else as the
    first setting that trained had it; None where neither was recorded."""
    for measurement in (m for mode in MODES for m in data.evidence.measured_in(mode)):
        if measurement.layers is not None and measurement.layers.rows:
            summary = measurement.summary
            layers = layer_times(measurement.layers, summary.phases_ms)
            step_ms = sum(summary.phases_ms.values())
            rows = [layer.row for layer in layers]
            shares = [layer.total_ms / step_ms if step_ms else 0.0 for layer in layers]
            step, cell = words.step(summary.mode), measurement.trial.cell
            where = words("network_where", step=step, cell=cell, batch=summary.batch_size)
            table = layer_table(measurement, words)
            return _section(rows, network(rows, shares), where, "network_note", table, words)
    for cell in (one.id for one in data.evidence.cells):
        for learned in data.evidence.learned.get(cell, {}).values():
            if (record := learned.read_network()) is not None:
                graph, table = network(record.rows), call_table(record, cell, words)
                where = words("network_shapes", batch=record.batch_size)
                return _section(record.rows, graph, where, "network_note_plain", table, words)
    return None


def _section(
    rows: Sequence[CallRow], graph: Network, where: str, note: str, table: Table, words: Words
) -> Section:
    num_parameters = sum(row.num_parameters for row in rows)
    counts: dict[str, Any] = {"number": len(rows), "parameters": f"{num_parameters:,}"}
    drawing = Drawing(
        id="flow",
        caption=words("network_caption"),
        alt=words("network_alt", **counts, chain=" → ".join(node.name for node in graph.nodes)),
        svg=draw(graph, words),
        note=words.sentences(words(note), *[words("network_collapsed")] * graph.is_collapsed),
    )
    intro = Paragraph(words("network_intro", **counts) + where)
    return Section("network", words("network"), (intro, drawing, table))


def network(
    rows: Sequence[CallRow], shares: Sequence[float] | None = None, most: int = MOST_BOXES
) -> Network:
    """The calls of a step as boxes, at most so many; `shares` of the step where they are known."""
    known = [None] * len(rows) if shares is None else shares
    nodes = [_node(row, share) for row, share in zip(rows, known, strict=True)]
    if len(nodes) <= most:
        return Network(tuple(nodes), False)
    groupings = _groupings([row.name for row in rows], most)
    blocks = next(blocks for blocks in groupings if len(set(blocks)) <= most)
    return Network(tuple(_merged(nodes, blocks)), True)


def _node(row: CallRow, share: float | None) -> Node:
    inputs = tuple(dict.fromkeys(row.inputs))
    if row.phase == "loss" and len(inputs) > 1:
        # The labels go straight from the batch to the loss: a line across the whole picture says nothing.
        inputs = tuple(number for number in inputs if number != BATCH)
    return Node(
        name=row.name + (f" ({row.call})" if row.call > 1 else ""),
        type=row.type if row.type != row.name else "",
        shape=" ".join("x".join(map(str, shape)) or "1" for shape in row.output_shapes[:2]),
        num_parameters=row.num_parameters,
        share=share,
        inputs=inputs,
    )


def _groupings(names: Sequence[str], most: int) -> Iterator[list[int]]:
    """Ways to put neighbours together: a block's number for every call; the finest first, the last fits."""
    paths = [name.split(".") for name in names]
    for depth in range(max(map(len, paths)) - 1, 0, -1):
        blocks = [".".join(path[:depth]) if len(path) > depth else None for path in paths]
        # A function called between two calls of a block belongs to it.
        for number in range(1, len(blocks) - 1):
            after = next((b for b in blocks[number + 1 : number + 4] if b is not None), None)
            if blocks[number] is None and blocks[number - 1] == after:
                blocks[number] = after
        # The same number for neighbours of one block; a call by itself has its own.
        numbers = [0]
        for before, block in pairwise(blocks):
            numbers.append(numbers[-1] + (block is None or block != before))
        yield numbers
    size = math.ceil(len(names) / most)
    yield [number // size for number in range(len(names))]


def _merged(nodes: Sequence[Node], blocks: Sequence[int]) -> Iterator[Node]:
    """One box per block; only neighbours share one, so that data still flows forward."""
    for block in range(blocks[-1] + 1):
        group = [node for node, number in zip(nodes, blocks, strict=True) if number == block]
        sources = (source for node in group for source in node.inputs)
        inputs = dict.fromkeys(BATCH if source == BATCH else blocks[source] for source in sources)
        inputs.pop(block, None)
        merged = replace(group[-1], inputs=tuple(inputs))
        if len(group) > 1:
            shares = [node.share for node in group if node.share is not None]
            merged = replace(
                merged,
                name=_block_name([node.name for node in group]),
                type=", ".join(dict.fromkeys(node.type or node.name for node in group)),
                num_parameters=sum(node.num_parameters for node in group),
                share=sum(shares) if shares else None,
                num_calls=len(group),
            )
        yield merged


def _block_name(names: Sequence[str]) -> str:
    """The dotted path that the calls share; the first and the last call where they share none."""
    paths = [name.split(".") for name in names if "." in name]
    by_depth = zip(names[0].split(".")[:-1], *paths, strict=False)
    shared = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, by_depth)]
    return ".".join(shared) or f"{names[0]} … {names[-1]}"


@dataclass(frozen=True)
class BoxPlace:
    """The upper left corner of a box, its column and its rank from the top of the flow."""

    x: float
    y: float
    column: int
    rank: int


def draw(graph: Network, words: Words) -> str:
    """SVG with its colours as attributes, which a page's style may override by class."""
    places, width = _layout(graph.nodes)
    height = max(place.y for place in places) + BOX_H + MARGIN
    largest_share = max((node.share or 0.0 for node in graph.nodes), default=0.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="{FONT}" class="graph">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="arrow" d="M0 0L8 4L0 8z" fill="#7f8792"/>'
        "</marker></defs>",
        *_edges(graph.nodes, places),
        _batch(places[0], words),
    ]
    for node, place in zip(graph.nodes, places[1:], strict=True):
        parts += _box(node, place, largest_share, words)
    return "".join([*parts, "</svg>"])


def _layout(nodes: Sequence[Node]) -> tuple[list[BoxPlace], float]:
    """A place for the batch and for every box, and how wide all of it is."""
    # The boxes on the longest way from the batch to each box; of the batch itself, which is first, 0.
    ranks = [0]
    for node in nodes:
        # Where calls differ from step to step, a box may get its input from one further down: no rank.
        before = [ranks[number + 1] for number in node.inputs if number + 1 < len(ranks)]
        ranks.append(1 + max(before, default=0))
    num_ranks, num_boxes = max(ranks) + 1, Counter(ranks)
    num_columns = 1
    if num_ranks > SHORT:  # about as wide as high; branches take the room of columns
        across = MOST_COLUMNS // max(num_boxes.values())
        num_columns = max(1, min(math.ceil(math.sqrt(num_ranks / 3)), across))
    per_column = math.ceil(num_ranks / num_columns)
    widest = [0] * num_columns
    for rank, number in num_boxes.items():
        widest[rank // per_column] = max(widest[rank // per_column], number)
    with_lanes = {
        ranks[place] // per_column
        for place, node in enumerate(nodes, start=1)
        for number in node.inputs
        if ranks[number + 1] // per_column == ranks[place] // per_column
        and ranks[place] - ranks[number + 1] != 1
    }
    starts = [MARGIN + 0.0]
    for column, number in enumerate(widest):
        beside = LANE if column in with_lanes else AISLE
        starts.append(starts[-1] + number * (BOX_W + GAP_X) - GAP_X + beside)
    width = starts[-1] - (0 if num_columns - 1 in with_lanes else AISLE) + MARGIN
    places = []
    num_placed: Counter[int] = Counter()
    for rank in ranks:
        column, row = divmod(rank, per_column)
        # Ranks with fewer boxes stand in the middle of their column.
        left = num_placed[rank] + (widest[column] - num_boxes[rank]) / 2
        x, y = starts[column] + left * (BOX_W + GAP_X), MARGIN + row * (BOX_H + GAP_Y)
        places.append(BoxPlace(x, y, column, rank))
        num_placed[rank] += 1
    return places, width


def _edges(nodes: Sequence[Node], places: Sequence[BoxPlace]) -> Iterator[str]:
    column_ends: dict[int, float] = defaultdict(float)
    for place in places:
        column_ends[place.column] = max(column_ends[place.column], place.x + BOX_W)
    lanes = cycle(range(4))
    for node, target in zip(nodes, places[1:], strict=True):
        for number in node.inputs:
            source = places[number + 1]
            if source.column != target.column:
                path = _across(source, target)
            elif target.rank - source.rank == 1:
                path = _down(source, target)
            else:
                lane = next(lanes)
                path = _around(source, target, column_ends[source.column] + 10 + 9 * lane, 2 * lane)
            yield (
                f'<path class="edge" d="{path}" fill="none" stroke="#7f8792" stroke-width="1.4" '
                'stroke-linejoin="round" marker-end="url(#arrow)"/>'
            )


def _down(source: BoxPlace, target: BoxPlace) -> str:
    x, y = source.x + BOX_W / 2, source.y + BOX_H
    end_x, end_y = target.x + BOX_W / 2, target.y - 1
    if x == end_x:
        return f"M{x:g} {y:g}V{end_y:g}"
    middle = (y + end_y) / 2
    return f"M{x:g} {y:g}C{x:g} {middle:g} {end_x:g} {middle:g} {end_x:g} {end_y:g}"


def _around(source: BoxPlace, target: BoxPlace, lane_x: float, shift: float) -> str:
    """Along a lane beside the column and through gaps between boxes, so that it never runs behind one."""
    x, end_x = source.x + 0.8 * BOX_W, target.x + 0.8 * BOX_W
    y, end_y = source.y + BOX_H, target.y - 1
    return f"M{x:g} {y:g}V{y + 6 + shift:g}H{lane_x:g}V{end_y - 13 + shift:g}H{end_x:g}V{end_y:g}"


def _across(source: BoxPlace, target: BoxPlace) -> str:
    """To another column: out at the right, in at the left."""
    x, y = source.x + BOX_W, source.y + BOX_H / 2
    end_x, end_y = target.x - 1, target.y + BOX_H / 2
    bend = min(60.0, max(24.0, (end_x - x) / 2))
    return f"M{x:g} {y:g}C{x + bend:g} {y:g} {end_x - bend:g} {end_y:g} {end_x:g} {end_y:g}"


def _batch(place: BoxPlace, words: Words) -> str:
    x, y = place.x + BOX_W / 2, place.y + BOX_H - 15
    return (
        f'<rect class="batch" x="{x - 50:g}" y="{y - 15:g}" width="100" height="30" '
        'rx="15" fill="#eef1f5" stroke="#7f8792"/>'
        f'<text class="ink" x="{x:g}" y="{y + 4:g}" font-size="12" text-anchor="middle" '
        f'fill="#1c2430">{escape(words("network_input"))}</text>'
    )


def _box(node: Node, place: BoxPlace, largest_share: float, words: Words) -> Iterator[str]:
    """A box, its texts, and where its time was measured, its share as a number and as a bar at its foot."""
    x, y = place.x, place.y if node.share is not None else place.y + 5
    facts = [words("num_calls", number=node.num_calls)] if node.num_calls > 1 else []
    facts.append(node.shape)
    if node.num_parameters:
        facts.append(words("num_parameters", number=f"{node.num_parameters:,}"))
    details = " · ".join(facts)
    share = "" if node.share is None else percent(node.share)
    hover = f"{node.name} {node.type}".strip() + f": {details}" + (share and f", {share}")
    name = _fitting(node.name, NAME, BOX_W - 80)
    kind = _fitting(node.type, SMALL, BOX_W - 16 - (56 if share else 0) - _width(name, NAME))
    yield (
        f"<g><title>{escape(hover)}</title>"
        f'<rect class="box" x="{x:g}" y="{place.y:g}" width="{BOX_W}" height="{BOX_H}" rx="7" '
        'fill="#ffffff" stroke="#aab3bf"/>'
        f'<text class="ink" x="{x + 9:g}" y="{y + 19:g}" font-size="{NAME}" font-weight="bold" '
        f'fill="#1c2430">{escape(name)}'
        f'<tspan class="faint" dx="5" font-weight="normal" font-size="{SMALL}" fill="#566070">'
        f"{escape(kind)}</tspan></text>"
        f'<text class="faint" x="{x + 9:g}" y="{y + 36:g}" font-size="{SMALL}" fill="#566070">'
        f"{escape(_fitting(details, SMALL, BOX_W - 16))}</text>"
    )
    if node.share is not None:
        bar = (BOX_W - 16) * (node.share / largest_share if largest_share else 0.0)
        yield (
            f'<text class="ink" x="{x + BOX_W - 8:g}" y="{y + 19:g}" font-size="{SMALL}" '
            f'text-anchor="end" fill="#1c2430">{share}</text>'
            f'<rect class="track" x="{x + 8:g}" y="{y + 43:g}" width="{BOX_W - 16}" height="5" '
            'rx="2.5" fill="#e4e8ee"/>'
            f'<rect class="share" x="{x + 8:g}" y="{y + 43:g}" width="{bar:.1f}" height="5" '
            'rx="2.5" fill="#3b82c4"/>'
        )
    yield "</g>"


def _width(text: str, size: float) -> float:
    """About how wide a text is drawn; Chinese characters are as wide as high."""
    return sum(size * (1.0 if ord(character) > 0x2E7F else 0.57) for character in text)


def _fitting(text: str, size: float, room: float) -> str:
    """The text, cut where it does not fit; the box's hover shows all of it."""
    if _width(text, size) <= room:
        return text
    while text and _width(text + "…", size) > room:
        text = text[:-1]
    return text + "…" if text else ""
