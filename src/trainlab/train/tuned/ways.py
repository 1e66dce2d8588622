"""Ways: by which code a layer is computed, part by part."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainlab.train.tuned.choices import TORCH, Work, faster

AS_EXACT = 1e-4
"""A way whose result is further from torch's than this share of the largest value is not used."""
OVERHEAD_MS = 0.05
"""What calling a function of ours costs more than calling torch's; ways must gain more than that."""

Parts = Mapping[str, Mapping[str, Callable[..., Tensor]]]
"""The ways that there are by part (`forward`, `grad_input`, `grad_weight`) and name; torch's among them."""


@dataclass(frozen=True)
class Ways:
    """The names of those that one layer is computed by."""

    forward: str = TORCH
    grad_input: str = TORCH
    grad_weight: str = TORCH

    @classmethod
    def from_names(cls, names: Mapping[str, Any], known: Parts) -> "Ways":
        """As they were kept; torch's for what is not known."""
        return cls(**{part: names[part] for part in known if names.get(part) in known[part]})

    def names(self) -> dict[str, str]:
        """By part."""
        return asdict(self)


ALL_TORCH = Ways()


def fastest(parts: Parts, given: Mapping[str, tuple[Any, ...]]) -> dict[str, str]:
    """The names of `Ways`, measured with what each part is given; torch's for a part without."""
    names: dict[str, str] = {}
    gained_ms = 0.0
    with torch.no_grad():
        for part, arguments in given.items():
            expected = parts[part][TORCH](*arguments)
            works: dict[str, Work] = {
                name: partial(way, *arguments)
                for name, way in parts[part].items()
                if name == TORCH or _agrees(way, expected, *arguments)
            }
            names[part], ms = faster(works)
            gained_ms += ms[TORCH] - ms[names[part]]
    return (Ways(**names) if gained_ms > OVERHEAD_MS else ALL_TORCH).names()


def is_transforming() -> bool:
    """Whether this runs inside a transform of `torch.func`, which takes torch's own operators only."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_plain(tensor: Tensor | None) -> bool:
    """float32 in the CPU's memory, in torch's usual order."""
    return (
        tensor is not None
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
    )


def _agrees(way: Callable[..., Tensor], expected: Tensor, *given: Any) -> bool:
    """False also where this build of torch lacks what the way calls."""
    try:
        found = way(*given)
    except (RuntimeError, AttributeError):
        return False
    return bool((found - expected).abs().max() <= AS_EXACT * expected.abs().max())
