"""The kinds of layer that can be tuned, behind one face."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from trainlab.train.tuned import convolution, linear
from trainlab.train.tuned.ways import Parts, Ways


@dataclass(frozen=True)
class Kind:
    """How layers of one class are tuned."""

    name: str
    parts: Parts
    dims: int
    """Dimensions of an input."""
    can_be_tuned: Callable[[nn.Module], bool]
    fastest_ways: Callable[[Any, tuple[int, ...], bool], dict[str, str]]
    """For a layer, the shape of its input, and whether that needs a gradient."""
    run: Callable[[Any, Tensor, Ways], Tensor]
    runs_in_vmap: bool = False
    """Whether `run` can be vectorised."""


KINDS: Mapping[type[nn.Module], Kind] = {
    nn.Conv2d: Kind(
        "convolution",
        convolution.PARTS,
        4,
        convolution.can_be_tuned,
        convolution.fastest_ways,
        convolution.run,
    ),
    nn.Linear: Kind(
        "linear",
        linear.PARTS,
        2,
        linear.can_be_tuned,
        linear.fastest_ways,
        linear.run,
        runs_in_vmap=True,
    ),
}


def kind_of(layer: nn.Module) -> Kind | None:
    """None for a layer that cannot be tuned."""
    kind = KINDS.get(type(layer))
    return kind if kind is not None and kind.can_be_tuned(layer) else None
