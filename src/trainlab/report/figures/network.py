"""Graph: the network as boxes and what flows between them.

A network of many calls is shown by block: neighbours under one name become one box.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainlab.analyse.cost.layers import Layer

MOST_BOXES = 60
"""More calls than this are drawn by block."""


BATCH = -1


@dataclass(frozen=True)
class Node:
    """One box: a call, or neighbouring calls of one block."""

    name: str
    type: str
    shape: str
    num_parameters: int
    share: float
    """Of the whole step, forward and backward."""
    inputs: tuple[int, ...]
    """Boxes whose output it takes; -1 stands for the batch itself."""
    num_calls: int = 1


@dataclass(frozen=True)
class Network:
    """The boxes in the order of the calls."""

    nodes: tuple[Node, ...]
    is_collapsed: bool


def network(layers: Sequence[Layer], whole_ms: float, most: int = MOST_BOXES) -> Network:
    """The calls of a step as boxes, at most so many."""
    nodes = [_node(layer, whole_ms) for layer in layers]
    if len(nodes) <= most:
        return Network(tuple(nodes), False)
    for keys in _groupings([layer.row.name for layer in layers], most):
        if len(set(keys)) <= most:
            return Network(tuple(_merged(nodes, keys)), True)
    raise AssertionError("the last grouping always fits")


def _node(layer: Layer, whole_ms: float) -> Node:
    row = layer.row
    inputs = tuple(dict.fromkeys(row.inputs))
    if row.phase == "loss" and len(inputs) > 1:
        # The labels go straight to the loss: a line from top to bottom that tells nothing.
        inputs = tuple(one for one in inputs if one != BATCH)
    again = f" ({row.call})" if row.call > 1 else ""
    return Node(
        name=row.name + again,
        type=row.type if row.type != row.name else "",
        shape=" ".join("x".join(map(str, shape)) or "1" for shape in row.output_shapes[:2]),
        num_parameters=row.num_parameters,
        share=layer.total_ms / whole_ms if whole_ms else 0.0,
        inputs=inputs,
    )


def _groupings(names: Sequence[str], most: int) -> Iterator[list[int]]:
    """Ways to put neighbours together, the finest first; the last one always fits."""
    deepest = max(name.count(".") for name in names)
    for depth in range(deepest, 0, -1):
        yield _runs(_smoothed([_prefix(name, depth) for name in names]))
    size = math.ceil(len(names) / most)
    yield [number // size for number in range(len(names))]


def _prefix(name: str, depth: int) -> str | None:
    """The block a call belongs to; None where it stands by itself."""
    parts = name.split(".")
    return ".".join(parts[:depth]) if len(parts) > depth else None


def _smoothed(blocks: Sequence[str | None]) -> list[str | None]:
    """A function called between two calls of a block belongs to it."""
    found = list(blocks)
    for number in range(1, len(found) - 1):
        after = next((one for one in blocks[number + 1 : number + 4] if one is not None), None)
        if found[number] is None and found[number - 1] == after:
            found[number] = after
    return found


def _runs(blocks: Sequence[str | None]) -> list[int]:
    """A number per run of neighbours of one block."""
    keys: list[int] = []
    for number, block in enumerate(blocks):
        same = number > 0 and block is not None and block == blocks[number - 1]
        keys.append(keys[-1] if same else (keys[-1] + 1 if keys else 0))
    return keys


def _merged(nodes: Sequence[Node], keys: Sequence[int]) -> Iterator[Node]:
    """One box per key: neighbours only, so that data still flows forward."""
    for key in range(keys[-1] + 1):
        mine = [number for number, one in enumerate(keys) if one == key]
        group = [nodes[number] for number in mine]
        inputs = (
            BATCH if one == BATCH else keys[one]
            for node in group
            for one in node.inputs
            if one == BATCH or keys[one] != key
        )
        merged = replace(group[-1], inputs=tuple(dict.fromkeys(inputs)))
        if len(group) > 1:
            merged = replace(
                merged,
                name=_block_name([node.name for node in group]),
                type=", ".join(dict.fromkeys(node.type or node.name for node in group)),
                num_parameters=sum(node.num_parameters for node in group),
                share=sum(node.share for node in group),
                num_calls=len(group),
            )
        yield merged


def _block_name(names: Sequence[str]) -> str:
    first = names[0].split(".")
    common = []
    for number, part in enumerate(first[:-1]):
        dotted = [name.split(".") for name in names if "." in name]
        if all(len(parts) > number and parts[number] == part for parts in dotted):
            common.append(part)
        else:
            break
    return ".".join(common) or f"{names[0]} … {names[-1]}"
