"""Which dimension of a tensor holds its units: channels of a convolution, else the last one.

`(samples, a, b)` may be channels and positions of a Conv1d, or tokens and features. A ReLU is told by
what made its input: the autograd graph is followed back through element-wise operations.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor

CHANNELS = 1
"""The dimension of channels in everything that torch convolves, pools or normalises by batch."""
IMAGES = 4
"""A tensor of so many dimensions and more is taken for images where nothing tells."""
MOST_NODES = 32
"""As far as the graph is followed back."""

OF_CHANNELS = re.compile(
    r"(lazy)?(conv|mkldnnconv|cudnnconv|miopenconv|slowconv|batchnorm|nativebatchnorm|cudnnbatchnorm"
    r"|miopenbatchnorm|instancenorm|groupnorm|nativegroupnorm|max_?pool|avgpool|adaptive|mkldnnmaxpool)"
)
OF_FEATURES = re.compile(r"(addmm|mm|bmm|linear|nativelayernorm|layernorm|embedding)")
ELEMENT_WISE = re.compile(
    r"(relu|threshold|leakyrelu|elu|gelu|silu|mish|tanh|sigmoid|hardtanh|hardswish|softplus|prelu"
    r"|mul|add|sub|div|neg|pow|abs|exp|clamp|nativedropout|fuseddropout|clone|tocopy|copy)(backward)"
)
RESHAPED = {
    "channels": re.compile(r"squeezebackward"),
    "features": re.compile(r"(unsafeview|view)backward"),
}
"""Pooling in one dimension is pooling in two, squeezed; a linear layer of more than two dimensions is a
flat product, seen in its old shape again."""

Told = Literal["channels", "features"]


def unit_dimension(types: Sequence[str], values: Tensor) -> int:
    """Of a tensor that a layer of these types took or gave."""
    if values.dim() <= CHANNELS:
        return max(values.dim() - 1, 0)
    told = _by_types(types) or _by_graph(values)
    if told is None:
        told = "channels" if values.dim() >= IMAGES else "features"
    return CHANNELS if told == "channels" else values.dim() - 1


def _by_types(types: Sequence[str]) -> Told | None:
    names = [name.lower().replace("_", "") for name in types]
    return "channels" if any(map(OF_CHANNELS.match, names)) else None


def _by_graph(values: Tensor) -> Told | None:
    """What made the tensor, as far as only element-wise operations lie between."""
    pending: list[Any] = [values.grad_fn]
    for _ in range(MOST_NODES):
        if not pending:
            return None
        node = pending.pop(0)
        name = "" if node is None else type(node).__name__.lower()
        following = [] if node is None else [made_by for made_by, _ in node.next_functions]
        if OF_CHANNELS.match(name):
            return "channels"
        if OF_FEATURES.match(name):
            return "features"
        if ELEMENT_WISE.match(name):
            pending += following
        elif following:
            before = type(following[0]).__name__.lower()
            pooled = RESHAPED["channels"].match(name) and OF_CHANNELS.match(before)
            product = RESHAPED["features"].match(name) and OF_FEATURES.match(before)
            pending += following if pooled or product else []
    return None
