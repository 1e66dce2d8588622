"""Network: a step's calls as boxes and what flows between them, drawn as SVG.

A network of many calls is shown by block: neighbours under one name become one box. A chain is wrapped into
columns, branches stand side by side, connections that skip layers run beside the column.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import accumulate, cycle, groupby, pairwise, takewhile
from typing import Any, NamedTuple

from trainlab.analysis.charts import text_width
from trainlab.analysis.document import Drawing, Paragraph, Section
from trainlab.analysis.finding import RunData
from trainlab.analysis.layers import call_name, call_table, layer_table, layer_times
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
LANES = 40
"""Room beside a column, for connections that skip layers."""
NAME, SMALL = 13, 12
"""Sizes of letters: printed across a page they must still be read."""
MARGIN = 10
FILLS = {
    "ink": "#1c2430",
    "faint": "#566070",
    "batch": "#eef1f5",
    "box": "#ffffff",
    "track": "#e4e8ee",
    "share": "#3b82c4",
}
"""By the class that a page's style may override."""
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


def network_section(data: RunData, words: Words) -> Section | None:
    """The network as it was called: with each layer's share of a step where layers were timed, else as the
    first setting that trained had it; None where neither was recorded."""
    evidence = data.evidence
    timed = (one for mode in MODES for one in evidence.measured_in(mode))
    measurement = next((one for one in timed if one.layers and one.layers.rows), None)
    learned = (
        (c.id, one) for c in evidence.cells for one in evidence.learned.get(c.id, {}).values()
    )
    known = ((cell, record) for cell, one in learned if (record := one.read_network()))
    rows: Sequence[CallRow]
    if measurement is not None and measurement.layers is not None:
        summary = measurement.summary
        times_ms = layer_times(measurement.layers, summary.phases_ms)
        step_ms = sum(summary.phases_ms.values()) or math.inf
        rows = measurement.layers.rows
        nodes = network(rows, [sum(ms) / step_ms for ms in times_ms])
        about = {"step": words.step(summary.mode), "cell": measurement.trial.cell}
        where = words("network_where", batch=summary.batch_size, **about)
        table, note = layer_table(measurement, words), "network_note"
    elif (first := next(known, None)) is not None:
        cell, record = first
        rows, nodes = record.rows, network(record.rows)
        where = words("network_shapes", batch=record.batch_size)
        table, note = call_table(record, cell, words), "network_note_plain"
    else:
        return None
    num_parameters = sum(row.num_parameters for row in rows)
    counts: dict[str, Any] = {"number": len(rows), "parameters": f"{num_parameters:,}"}
    drawing = Drawing(
        id="flow",
        caption=words("network_caption"),
        alt=words("network_alt", **counts, chain=" → ".join(node.name for node in nodes)),
        svg=draw(nodes, words),
        note=words.sentences(words(note), *[words("network_collapsed")] * (len(nodes) < len(rows))),
    )
    intro = Paragraph(words("network_intro", **counts) + where)
    return Section("network", words("network"), (intro, drawing, replace(table, is_folded=True)))


def network(rows: Sequence[CallRow], shares: Sequence[float] | None = None) -> list[Node]:
    """The calls of a step as boxes, at most MOST_BOXES; `shares` of the step where they are known."""
    nodes = []
    known: Sequence[float | None] = shares or [None] * len(rows)
    for row, share in zip(rows, known, strict=True):
        inputs = tuple(dict.fromkeys(row.inputs))
        if row.phase == "loss" and len(inputs) > 1:
            # The labels go straight from the batch to the loss: a line across the whole picture says
            # nothing.
            inputs = tuple(number for number in inputs if number != BATCH)
        shape = " ".join("x".join(map(str, shape)) or "1" for shape in row.output_shapes[:2])
        kind = row.type if row.type != row.name else ""
        nodes.append(Node(call_name(row), kind, shape, row.num_parameters, share, inputs))
    if len(nodes) <= MOST_BOXES:
        return nodes
    groupings = _groupings([row.name for row in rows])
    blocks = next(blocks for blocks in groupings if len(set(blocks)) <= MOST_BOXES)
    return list(_merged(nodes, blocks))


def _groupings(names: Sequence[str]) -> Iterator[list[int]]:
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
        starts = (block is None or block != before for before, block in pairwise(blocks))
        yield list(accumulate(starts, initial=0))
    size = math.ceil(len(names) / MOST_BOXES)
    yield [number // size for number in range(len(names))]


def _merged(nodes: Sequence[Node], blocks: Sequence[int]) -> Iterator[Node]:
    """One box per block; only neighbours share one, so that data still flows forward."""
    for block, members in groupby(zip(nodes, blocks, strict=True), key=lambda pair: pair[1]):
        group = [node for node, _ in members]
        sources = (source for node in group for source in node.inputs)
        inputs = dict.fromkeys(BATCH if source == BATCH else blocks[source] for source in sources)
        merged = replace(group[-1], inputs=tuple(one for one in inputs if one != block))
        if len(group) > 1:
            names = [node.name for node in group]
            # The dotted path that the calls share; the first and the last call where they share none.
            paths = [name.split(".") for name in names if "." in name]
            by_depth = zip(names[0].split(".")[:-1], *paths, strict=False)
            shared = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, by_depth)]
            shares = [node.share for node in group if node.share is not None]
            merged = replace(
                merged,
                name=".".join(shared) or f"{names[0]} … {names[-1]}",
                type=", ".join(dict.fromkeys(node.type or node.name for node in group)),
                num_parameters=sum(node.num_parameters for node in group),
                share=sum(shares) if shares else None,
                num_calls=len(group),
            )
        yield merged


class BoxPlace(NamedTuple):
    """The upper left corner of a box, its column and its rank from the top of the flow."""

    x: float
    y: float
    column: int
    rank: int


def draw(nodes: Sequence[Node], words: Words) -> str:
    """SVG with its colours as attributes, which a page's style may override by class."""
    places, width = _layout(nodes)
    batch = places[0]
    middle, foot = batch.x + BOX_W / 2, batch.y + BOX_H - 15
    height = max(place.y for place in places) + BOX_H + MARGIN
    largest_share = max((node.share or 0.0 for node in nodes), default=0.0)
    boxes = zip(nodes, places[1:], strict=True)
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" font-family="{FONT}" class="graph">',
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path class="arrow" d="M0 0L8 4L0 8z" fill="#7f8792"/>'
            "</marker></defs>",
            *_edges(nodes, places),
            _rect("batch", middle - 50, foot - 15, 100, 30, 15, "#7f8792"),
            _text(
                "ink", middle, foot + 4, 12, escape(words("network_input")), ' text-anchor="middle"'
            ),
            *(_box(node, place, largest_share, words) for node, place in boxes),
            "</svg>",
        ]
    )


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
    starts = [MARGIN + 0.0]
    for number in widest:
        starts.append(starts[-1] + number * (BOX_W + GAP_X) - GAP_X + LANES)
    width = starts[-1] + MARGIN
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
        for source in (places[number + 1] for number in node.inputs):
            x, y, end_x, end_y = source.x, source.y + BOX_H, target.x, target.y - 1
            if source.column != target.column:
                # To another column: out at the right, in at the left.
                x, y, end_x, end_y = x + BOX_W, y - BOX_H / 2, end_x - 1, target.y + BOX_H / 2
                bend = min(60.0, max(24.0, (end_x - x) / 2))
                curve = f"C{x + bend:g} {y:g} {end_x - bend:g} {end_y:g} {end_x:g} {end_y:g}"
            elif target.rank - source.rank == 1:
                x, end_x, half = x + BOX_W / 2, end_x + BOX_W / 2, (y + end_y) / 2
                curve = f"C{x:g} {half:g} {end_x:g} {half:g} {end_x:g} {end_y:g}"
                curve = f"V{end_y:g}" if x == end_x else curve
            else:
                # Along a lane beside the column and through gaps, so that it never runs behind a box.
                lane = next(lanes)
                x, end_x = x + 0.8 * BOX_W, end_x + 0.8 * BOX_W
                down, up = y + 6 + 2 * lane, end_y - 13 + 2 * lane
                beside = column_ends[source.column] + 10 + 7 * lane
                curve = f"V{down:g}H{beside:g}V{up:g}H{end_x:g}V{end_y:g}"
            yield (
                f'<path class="edge" d="M{x:g} {y:g}{curve}" fill="none" stroke="#7f8792" '
                'stroke-width="1.4" stroke-linejoin="round" marker-end="url(#arrow)"/>'
            )


def _box(node: Node, place: BoxPlace, largest_share: float, words: Words) -> str:
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
    kind = _fitting(node.type, SMALL, BOX_W - 16 - (56 if share else 0) - text_width(name, NAME))
    beside = (
        f'<tspan class="faint" dx="5" font-weight="normal" font-size="{SMALL}" '
        f'fill="{FILLS["faint"]}">{escape(kind)}</tspan>'
    )
    parts = [
        f"<g><title>{escape(hover)}</title>",
        _rect("box", x, place.y, BOX_W, BOX_H, 7, "#aab3bf"),
        _text("ink", x + 9, y + 19, NAME, escape(name) + beside, ' font-weight="bold"'),
        _text("faint", x + 9, y + 36, SMALL, escape(_fitting(details, SMALL, BOX_W - 16))),
    ]
    if node.share is not None:
        bar = (BOX_W - 16) * (node.share / largest_share if largest_share else 0.0)
        parts += [
            _text("ink", x + BOX_W - 8, y + 19, SMALL, share, ' text-anchor="end"'),
            _rect("track", x + 8, y + 43, BOX_W - 16, 5, 2.5),
            _rect("share", x + 8, y + 43, f"{bar:.1f}", 5, 2.5),
        ]
    return "".join([*parts, "</g>"])


def _rect(
    look: str, x: float, y: float, width: float | str, height: int, r: float, stroke: str = ""
) -> str:
    outline = f' stroke="{stroke}"' if stroke else ""
    place = f'x="{x:g}" y="{y:g}" width="{width}" height="{height}" rx="{r}"'
    return f'<rect class="{look}" {place} fill="{FILLS[look]}"{outline}/>'


def _text(look: str, x: float, y: float, size: int, text: str, more: str = "") -> str:
    """A text with further attributes; `text` may hold marks of SVG."""
    place = f'x="{x:g}" y="{y:g}" font-size="{size}"{more} fill="{FILLS[look]}"'
    return f'<text class="{look}" {place}>{text}</text>'


def _fitting(text: str, size: float, room: float) -> str:
    """The text, cut where it does not fit; the box's hover shows all of it."""
    if text_width(text, size) <= room:
        return text
    while text and text_width(text + "…", size) > room:
        text = text[:-1]
    return text + "…" if text else ""
