"""Other ways than torch's to compute a convolution and its gradients on the CPU.

torch hands all three to oneDNN, whose gradients can take two or three times as long as a convolution of
the gradient, or as one matrix product. Which is faster depends on CPU and shape, so it is measured.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainlab.train.tuned.choices import TORCH
from trainlab.train.tuned.ways import Parts, Ways, fastest, is_plain

aten = torch.ops.aten

Padding = tuple[int, int]
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Of input, weight and bias."""

STRIDE = DILATION = [1, 1]


def forward_by_columns(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Padding) -> Tensor:
    """Each sample's patches as columns of a matrix: what torch does without oneDNN."""
    kernel = weight.shape[2:]
    output: Tensor = aten._slow_conv2d_forward(x, weight, kernel, bias, STRIDE, padding)
    return output


def input_by_torch(gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """The gradient of the input alone."""
    found = torch_gradients(gradient, x, weight, padding, (True, False, False))[0]
    assert found is not None
    return found


def input_by_convolution(gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """The gradient, convolved with the weights turned by half a turn, channels exchanged."""
    rows, columns = (size - 1 - pad for size, pad in zip(weight.shape[2:], padding, strict=True))
    turned = weight.flip(2, 3).transpose(0, 1).contiguous()
    return F.conv2d(gradient, turned, padding=(rows, columns))


def input_by_columns(gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """A matrix product per sample, whose columns are added up into the image."""
    mask = (True, False, False)
    found = aten._slow_conv2d_backward(
        gradient, x, weight, weight.shape[2:], STRIDE, padding, output_mask=mask
    )
    return found[0]  # type: ignore[no-any-return]


def weight_by_torch(gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """The gradient of the weight alone."""
    found = torch_gradients(gradient, x, weight, padding, (False, True, False))[1]
    assert found is not None
    return found


def weight_by_product(gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """One matrix product over all positions of all samples."""
    rows, columns = padding
    padded = F.pad(x, (columns, columns, rows, rows)) if any(padding) else x
    channels_out, channels_in, *kernel = weight.shape
    samples, _, *positions = gradient.shape
    by_sample, by_channel, by_row, by_column = padded.stride()
    patches = padded.as_strided(
        (channels_in, *kernel, samples, *positions),
        (by_channel, by_row, by_column, by_sample, by_row, by_column),
    ).reshape(weight[0].numel(), -1)
    flat = gradient.transpose(0, 1).reshape(channels_out, -1)
    return (flat @ patches.t()).view_as(weight)


def weight_by_columns(gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """A matrix product per sample, added up."""
    mask = (False, True, False)
    found = aten._slow_conv2d_backward(
        gradient, x, weight, weight.shape[2:], STRIDE, padding, output_mask=mask
    )
    return found[1]  # type: ignore[no-any-return]


Forward = Callable[[Tensor, Tensor, Tensor | None, Padding], Tensor]
Gradient = Callable[[Tensor, Tensor, Tensor, Padding], Tensor]

FORWARD: Mapping[str, Forward] = {
    TORCH: lambda x, weight, bias, padding: F.conv2d(x, weight, bias, padding=padding),
    "columns": forward_by_columns,
}
GRAD_INPUT: Mapping[str, Gradient] = {
    TORCH: input_by_torch,
    "convolution": input_by_convolution,
    "columns": input_by_columns,
}
GRAD_WEIGHT: Mapping[str, Gradient] = {
    TORCH: weight_by_torch,
    "product": weight_by_product,
    "columns": weight_by_columns,
}
PARTS: Parts = {"forward": FORWARD, "grad_input": GRAD_INPUT, "grad_weight": GRAD_WEIGHT}


class TunedConvolution(torch.autograd.Function):
    """A convolution computed in these ways. A gradient that is to be differentiated again is torch's."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: Padding, ways: Ways
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.padding, ctx.ways = padding, ways
        return FORWARD[ways.forward](x, weight, bias, padding)

    @staticmethod
    def backward(
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        padding, ways, needed = ctx.padding, ctx.ways, ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            return *torch_gradients(gradient, x, weight, padding, needed), None, None
        gradient = gradient.contiguous()
        given = gradient, x, weight, padding
        return (
            GRAD_INPUT[ways.grad_input](*given) if needed[0] else None,
            GRAD_WEIGHT[ways.grad_weight](*given) if needed[1] else None,
            gradient.sum((0, 2, 3)) if needed[2] else None,
            None,
            None,
        )


def torch_gradients(
    gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding, needed: tuple[bool, bool, bool]
) -> Gradients:
    """torch's own, of what is needed."""
    found: Gradients = aten.convolution_backward(
        *(gradient, x, weight, [len(weight)], STRIDE, padding, DILATION, False, [0, 0], 1),
        [*needed],
    )
    return found


def can_be_tuned(module: nn.Module) -> bool:
    """Whether a layer is a convolution as the ways here compute it, called as torch's class says."""
    return (
        type(module) is nn.Conv2d
        and "forward" not in vars(module)
        and module.padding_mode == "zeros"
        and module.stride == module.dilation == (1, 1)
        and module.groups == 1
        and not isinstance(module.padding, str)
        and all(pad < size for pad, size in zip(module.padding, module.kernel_size, strict=True))
        and is_plain(module.weight)
    )


def fastest_ways(
    module: nn.Conv2d, shape: tuple[int, ...], needs_grad_input: bool
) -> dict[str, str]:
    """The names of `Ways`, measured for an input of this shape with numbers that are not the trial's."""
    draw = torch.Generator().manual_seed(0)
    x, weight, padding = torch.randn(shape, generator=draw), module.weight, _padding(module)
    with torch.no_grad():
        gradient = torch.randn(F.conv2d(x, weight, padding=padding).shape, generator=draw)
    given: dict[str, tuple[Any, ...]] = {"forward": (x, weight, module.bias, padding)}
    if needs_grad_input:
        given["grad_input"] = gradient, x, weight, padding
    return fastest(PARTS, given | {"grad_weight": (gradient, x, weight, padding)})


def run(module: nn.Conv2d, x: Tensor, ways: Ways) -> Tensor:
    """The layer's output."""
    given = x, module.weight, module.bias, _padding(module), ways
    output: Tensor = TunedConvolution.apply(*given)  # type: ignore[no-untyped-call]
    return output


def _padding(module: nn.Conv2d) -> Padding:
    """Rows and columns of zeros at each side."""
    assert not isinstance(module.padding, str)
    rows, columns = module.padding
    return rows, columns
