"""Network: a step's calls as boxes and what flows between them.

A network of many calls is shown by block: neighbours under one name become one box.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from trainlab.record.cost_record import CallRow

MOST_BOXES = 60
"""More calls than this are drawn by block."""
BATCH = -1
"""Stands for the batch itself among the inputs of a box."""


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
    deepest = max(name.count(".") for name in names)
    for depth in range(deepest, 0, -1):
        yield _block_numbers(_smoothed([_prefix(name, depth) for name in names]))
    size = math.ceil(len(names) / most)
    yield [number // size for number in range(len(names))]


def _prefix(name: str, depth: int) -> str | None:
    """The block a call belongs to; None where it stands by itself."""
    parts = name.split(".")
    return ".".join(parts[:depth]) if len(parts) > depth else None


def _smoothed(blocks: Sequence[str | None]) -> list[str | None]:
    """A function called between two calls of a block belongs to it."""
    smoothed = list(blocks)
    for number in range(1, len(blocks) - 1):
        after = next((b for b in blocks[number + 1 : number + 4] if b is not None), None)
        if smoothed[number] is None and smoothed[number - 1] == after:
            smoothed[number] = after
    return smoothed


def _block_numbers(blocks: Sequence[str | None]) -> list[int]:
    """The same number for neighbours of one block; a call by itself has its own."""
    numbers = [0]
    for before, block in pairwise(blocks):
        numbers.append(numbers[-1] + (block is None or block != before))
    return numbers


def _merged(nodes: Sequence[Node], blocks: Sequence[int]) -> Iterator[Node]:
    """One box per block; only neighbours share one, so that data still flows forward."""
    for block in range(blocks[-1] + 1):
        group = [node for node, number in zip(nodes, blocks, strict=True) if number == block]
        sources = (source for node in group for source in node.inputs)
        inputs = dict.fromkeys(BATCH if source == BATCH else blocks[source] for source in sources)
        inputs.pop(block, None)
        merged = replace(group[-1], inputs=tuple(inputs))
        if len(group) > 1:
            merged = replace(
                merged,
                name=_block_name([node.name for node in group]),
                type=", ".join(dict.fromkeys(node.type or node.name for node in group)),
                num_parameters=sum(node.num_parameters for node in group),
                share=_total(node.share for node in group),
                num_calls=len(group),
            )
        yield merged


def _total(shares: Iterable[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return sum(known) if known else None


def _block_name(names: Sequence[str]) -> str:
    """The dotted path that the calls share; the first and the last call where they share none."""
    paths = [name.split(".") for name in names if "." in name]
    by_depth = zip(names[0].split(".")[:-1], *paths, strict=False)
    shared = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, by_depth)]
    return ".".join(shared) or f"{names[0]} … {names[-1]}"
