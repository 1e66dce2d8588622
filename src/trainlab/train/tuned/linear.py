"""Other ways than torch's to compute a linear layer on the CPU.

torch multiplies by the transposed weight. Some matrix libraries are several times slower with a transposed
right factor than with a transposed left one, or than with a copy; and most are slow where a factor is a
single column.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainlab.train.tuned.choices import TORCH
from trainlab.train.tuned.ways import Parts, Ways, fastest, is_plain


def forward_exchanged(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The transposed product of the factors in the other order."""
    product = torch.mm(weight, x.t()).t().contiguous()
    return product if bias is None else product.add_(bias)


def forward_copied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """With a copy of the weight that lies transposed in memory."""
    turned = weight.t().contiguous()
    return torch.mm(x, turned) if bias is None else torch.addmm(bias, x, turned)


def weight_by_torch(gradient: Tensor, x: Tensor) -> Tensor:
    """As torch forms it."""
    return gradient.t() @ x


def weight_of_one(gradient: Tensor, x: Tensor) -> Tensor:
    """Of a single sample each number is one product, which matrix libraries take far longer for."""
    return gradient.t() * x if len(x) == 1 else gradient.t() @ x


PARTS: Parts = {
    "forward": {TORCH: F.linear, "exchanged": forward_exchanged, "copied": forward_copied},
    "grad_weight": {TORCH: weight_by_torch, "of_one": weight_of_one},
}


class TunedLinear(torch.autograd.Function):
    """A linear layer computed in these ways, of one trial or of many at once."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, ways: Ways) -> Tensor:
        return PARTS["forward"][ways.forward](x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, ctx.ways = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        needed = ctx.needs_input_grad
        return (
            gradient @ weight if needed[0] else None,
            PARTS["grad_weight"][ctx.ways.grad_weight](gradient, x) if needed[1] else None,
            gradient.sum(0) if needed[2] else None,
            None,
        )


def can_be_tuned(module: nn.Module) -> bool:
    """Whether a layer is a linear one, called as torch's class says."""
    return type(module) is nn.Linear and "forward" not in vars(module) and is_plain(module.weight)


def fastest_ways(
    module: nn.Linear, shape: tuple[int, ...], needs_grad_input: bool
) -> dict[str, str]:
    """The names of `Ways`, measured for an input of this shape with numbers that are not the trial's."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=draw)
    gradient = torch.randn(len(x), module.out_features, generator=draw)
    given = {"forward": (x, module.weight, module.bias), "grad_weight": (gradient, x)}
    return fastest(PARTS, given)


def run(module: nn.Linear, x: Tensor, ways: Ways) -> Tensor:
    """The layer's output."""
    given = x, module.weight, module.bias, ways
    output: Tensor = TunedLinear.apply(*given)  # type: ignore[no-untyped-call]
    return output
