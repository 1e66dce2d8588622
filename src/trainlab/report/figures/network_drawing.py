"""The data flow through a network as a picture in SVG.

A chain is wrapped into columns, branches stand side by side, connections that skip layers run beside
the column.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle

from trainlab.report.figures.network import Network, Node
from trainlab.words import Words
from trainlab.words.numbers import percent

SHORT = 5
"""Up to so many ranks stand in one column."""
MOST_COLUMNS = 3
BOX_W, BOX_H = 236, 54
GAP_X, GAP_Y = 22, 20
LANE = 56
"""Room beside a column for connections that skip layers."""
AISLE = 34
"""Room between columns without such connections."""
NAME, SMALL = 13, 12
"""Sizes of letters: printed across a page they must still be read."""
MARGIN = 10
FONT = "Trainlab Report, Trainlab Sans SC, Noto Sans SC, Noto Sans CJK SC, sans-serif"


@dataclass(frozen=True)
class Place:
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
    ]
    parts += _edges(graph.nodes, places)
    parts.append(_batch(places[0], words))
    for node, place in zip(graph.nodes, places[1:], strict=True):
        parts += _box(node, place, largest_share, words)
    parts.append("</svg>")
    return "".join(parts)


def _ranks(nodes: Sequence[Node]) -> list[int]:
    """Boxes on the longest way from the batch to each box; of the batch itself, which is first, 0."""
    ranks = [0]
    for node in nodes:
        # Where calls differ from step to step, a box may get its input from one further down: no rank.
        before = [ranks[number + 1] for number in node.inputs if number + 1 < len(ranks)]
        ranks.append(1 + max(before, default=0))
    return ranks


def _layout(nodes: Sequence[Node]) -> tuple[list[Place], float]:
    """A place for the batch and for every box, and how wide all of it is."""
    ranks = _ranks(nodes)
    num_ranks, num_boxes = max(ranks) + 1, Counter(ranks)
    num_columns = _num_columns(num_ranks, max(num_boxes.values()))
    ranks_per_column = math.ceil(num_ranks / num_columns)
    widest = [0] * num_columns
    for rank, number in num_boxes.items():
        column = rank // ranks_per_column
        widest[column] = max(widest[column], number)
    with_lanes = _columns_with_lanes(nodes, ranks, ranks_per_column)
    starts = [MARGIN + 0.0]
    for column, number in enumerate(widest):
        beside = LANE if column in with_lanes else AISLE
        starts.append(starts[-1] + number * (BOX_W + GAP_X) - GAP_X + beside)
    last = num_columns - 1
    width = starts[-1] - (0 if last in with_lanes else AISLE) + MARGIN
    places = []
    num_placed: Counter[int] = Counter()
    for rank in ranks:
        column, row = divmod(rank, ranks_per_column)
        # Ranks with fewer boxes stand in the middle of their column.
        before = num_placed[rank] + (widest[column] - num_boxes[rank]) / 2
        x, y = starts[column] + before * (BOX_W + GAP_X), MARGIN + row * (BOX_H + GAP_Y)
        places.append(Place(x, y, column, rank))
        num_placed[rank] += 1
    return places, width


def _columns_with_lanes(
    nodes: Sequence[Node], ranks: Sequence[int], ranks_per_column: int
) -> set[int]:
    """Columns within which a connection skips a layer."""
    return {
        ranks[place] // ranks_per_column
        for place, node in enumerate(nodes, start=1)
        for number in node.inputs
        if ranks[number + 1] // ranks_per_column == ranks[place] // ranks_per_column
        and ranks[place] - ranks[number + 1] != 1
    }


def _num_columns(num_ranks: int, most_across: int) -> int:
    """About as wide as high; branches take the room of columns."""
    if num_ranks <= SHORT:
        return 1
    return max(1, min(math.ceil(math.sqrt(num_ranks / 3)), MOST_COLUMNS // most_across))


def _edges(nodes: Sequence[Node], places: Sequence[Place]) -> Iterator[str]:
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


def _down(source: Place, target: Place) -> str:
    x, y = source.x + BOX_W / 2, source.y + BOX_H
    end_x, end_y = target.x + BOX_W / 2, target.y - 1
    if x == end_x:
        return f"M{x:g} {y:g}V{end_y:g}"
    middle = (y + end_y) / 2
    return f"M{x:g} {y:g}C{x:g} {middle:g} {end_x:g} {middle:g} {end_x:g} {end_y:g}"


def _around(source: Place, target: Place, lane_x: float, shift: float) -> str:
    """Along a lane beside the column and through gaps between boxes, so that it never runs behind one."""
    x, end_x = source.x + 0.8 * BOX_W, target.x + 0.8 * BOX_W
    y, end_y = source.y + BOX_H, target.y - 1
    return f"M{x:g} {y:g}V{y + 6 + shift:g}H{lane_x:g}V{end_y - 13 + shift:g}H{end_x:g}V{end_y:g}"


def _across(source: Place, target: Place) -> str:
    """To another column: out at the right, in at the left."""
    x, y = source.x + BOX_W, source.y + BOX_H / 2
    end_x, end_y = target.x - 1, target.y + BOX_H / 2
    bend = min(60.0, max(24.0, (end_x - x) / 2))
    return f"M{x:g} {y:g}C{x + bend:g} {y:g} {end_x - bend:g} {end_y:g} {end_x:g} {end_y:g}"


def _batch(place: Place, words: Words) -> str:
    x, y = place.x + BOX_W / 2, place.y + BOX_H - 15
    return (
        f'<rect class="batch" x="{place.x + BOX_W / 2 - 50:g}" y="{y - 15:g}" width="100" height="30" '
        'rx="15" fill="#eef1f5" stroke="#7f8792"/>'
        f'<text class="ink" x="{x:g}" y="{y + 4:g}" font-size="12" text-anchor="middle" '
        f'fill="#1c2430">{escape(words("network_input"))}</text>'
    )


def _box(node: Node, place: Place, largest_share: float, words: Words) -> Iterator[str]:
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
    yield f"<g><title>{escape(hover)}</title>"
    yield (
        f'<rect class="box" x="{x:g}" y="{place.y:g}" width="{BOX_W}" height="{BOX_H}" rx="7" '
        'fill="#ffffff" stroke="#aab3bf"/>'
    )
    yield (
        f'<text class="ink" x="{x + 9:g}" y="{y + 19:g}" font-size="{NAME}" font-weight="bold" '
        f'fill="#1c2430">{escape(name)}'
        f'<tspan class="faint" dx="5" font-weight="normal" font-size="{SMALL}" fill="#566070">'
        f"{escape(kind)}</tspan></text>"
    )
    yield (
        f'<text class="faint" x="{x + 9:g}" y="{y + 36:g}" font-size="{SMALL}" fill="#566070">'
        f"{escape(_fitting(details, SMALL, BOX_W - 16))}</text>"
    )
    if node.share is not None:
        yield from _share_of_box(node.share, place, largest_share)
    yield "</g>"


def _share_of_box(share: float, place: Place, largest_share: float) -> Iterator[str]:
    """The number at the right, and the bar at the foot of a box."""
    x, y = place.x, place.y
    bar = (BOX_W - 16) * (share / largest_share if largest_share else 0.0)
    yield (
        f'<text class="ink" x="{x + BOX_W - 8:g}" y="{y + 19:g}" font-size="{SMALL}" '
        f'text-anchor="end" fill="#1c2430">{percent(share)}</text>'
    )
    yield (
        f'<rect class="track" x="{x + 8:g}" y="{y + 43:g}" width="{BOX_W - 16}" height="5" rx="2.5" '
        'fill="#e4e8ee"/>'
        f'<rect class="share" x="{x + 8:g}" y="{y + 43:g}" width="{bar:.1f}" height="5" rx="2.5" '
        'fill="#3b82c4"/>'
    )


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
