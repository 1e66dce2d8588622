"""FLOPs of an operator: two per multiply-add, biases and element-wise work apart.

torch's own formulas, with ours where it has none, or where it counts grouped convolutions wrongly.
"""

import re
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten

NO_MULTIPLY_ADDS = re.compile(
    r"all|any|amax|amin|arg|argmax|argmin|argsort|max|min|maximum|minimum|median|mode|sum"
    r"|nansum|mean|var|std|prod|cumsum|cumprod|cummax|cummin|logsumexp|logcumsumexp|count|norm"
    r"|aminmax|copy|clone|fill|zero|zeros|ones|full|empty|set|resize|contiguous|cat|stack|pad"
    r"|rand|randn|randint|randperm|random|bernoulli|normal|uniform|multinomial|exponential"
    r"|dropout|index|indices|gather|scatter|select|slice|take|put|embedding|one|where|masked"
    r"|nonzero|unique|bincount|bucketize|searchsorted|sort|topk|kthvalue|flip|roll|repeat|tril"
    r"|triu|diag|diagonal|arange|linspace|eye|flatten|reshape|view|unfold|fold|im2col|col2im"
    r"|shuffle|unshuffle|lift|relu|rrelu|prelu|leaky|elu|selu|celu|gelu|silu|mish|sigmoid"
    r"|hardsigmoid|logsigmoid|tanh|hardtanh|hardswish|hardshrink|softshrink|softplus|threshold"
    r"|glu|softmax|softmin|pool|upsample|loss|entropy|nested|jagged|padded|histc|isin|equal|cell|split"
)
"""Words of names of operators that move, draw, compare, reduce, normalise or activate."""

Formula = Callable[..., int]


def formula_for(operator: Any) -> Formula | None:
    """Called with the operator's arguments and `out_val`, its result; None where none is known."""
    packet = getattr(operator, "_overloadpacket", operator)
    name = getattr(packet, "__name__", "")
    if (own := OWN.get(name)) and packet == getattr(aten, name, None):
        return own
    if packet not in flop_registry and name.endswith("_"):
        packet = getattr(aten, name[:-1], packet)
    formula: Formula | None = flop_registry.get(packet)
    return formula


def kind_of(operator: Any) -> str:
    """`convolution`, `recurrent` or `matmul`: torch decides by kind whether fp32 may run as TF32."""
    name = getattr(getattr(operator, "_overloadpacket", operator), "__name__", "")
    if "conv" in name:
        return "convolution"
    return "recurrent" if "rnn" in name else "matmul"


def may_multiply(operator: Any) -> bool:
    """Whether an operator without a formula may do arithmetic that ought to be counted."""
    tags = {tag.name for tag in getattr(operator, "tags", [])}
    if tags & {"pointwise", "reduction", "view_copy"} or getattr(operator, "is_view", False):
        return False
    name = getattr(getattr(operator, "_overloadpacket", operator), "__name__", "")
    words = (re.sub(r"\d+d?$", "", word) for word in name.split("_"))
    return not any(map(NO_MULTIPLY_ADDS.fullmatch, words))


def _forward_of_convolution(x: Tensor, weight: Tensor, y: Tensor, transposed: bool) -> int:
    """Every weight meets every position of the smaller image once; groups are in its shape."""
    positions = prod((x if transposed else y).shape[2:])
    return 2 * x.shape[0] * positions * weight.numel()


def _convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, *rest: Any, out_val: Any, **_: Any
) -> int:
    transposed, wanted = rest[4], rest[7]
    once = _forward_of_convolution(x, weight, grad, transposed)
    return once * (bool(wanted[0]) + bool(wanted[1]))


def _convolution_by_columns(x: Tensor, weight: Tensor, *_: Any, out_val: Any, **__: Any) -> int:
    """torch's own formula for it wants an argument that it does not have."""
    return _forward_of_convolution(x, weight, out_val, transposed=False)


def _convolution_by_columns_backward(
    grad: Tensor, x: Tensor, weight: Tensor, *rest: Any, out_val: Any, **_: Any
) -> int:
    wanted = rest[3]
    once = _forward_of_convolution(x, weight, grad, transposed=False)
    return once * (bool(wanted[0]) + bool(wanted[1]))


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, out_val: Any, **__: Any) -> int:
    """Of (..., tokens, features): scores, and what they weigh."""
    return 2 * prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, out_val: Any, **__: Any
) -> int:
    """Scores again, then two products for each of the two of the forward pass."""
    scores, weighed = query.shape[-1], value.shape[-1]
    return 2 * prod(query.shape[:-1]) * key.shape[-2] * (3 * scores + 2 * weighed)


def _multi_head(
    query: Tensor, key: Tensor, value: Tensor, width: int, *_: Any, out_val: Any
) -> int:
    """The fused inference path: four projections and the attention between them."""
    projected = 2 * width * (2 * query.numel() + key.numel() + value.numel())
    return projected + _attention(query, key, value, out_val=out_val)


def _encoder_layer(source: Tensor, width: int, *rest: Any, out_val: Any) -> int:
    """The fused inference path of nn.TransformerEncoderLayer."""
    first, second = rest[12], rest[14]
    ahead = 2 * (source.numel() // width) * (first.numel() + second.numel())
    return int(ahead) + _multi_head(source, source, source, width, out_val=out_val)


def _recurrent(x: Tensor, weights: Any, *rest: Any, out_val: Any, **_: Any) -> int:
    """Every matrix meets every token once; `weights` is a list, or the first of two."""
    matrices = weights if isinstance(weights, list | tuple) else [weights, rest[0]]
    tokens = x.numel() // x.shape[-1]
    return int(2 * tokens * sum(matrix.numel() for matrix in matrices if matrix.dim() == 2))


def _recurrent_backward(x: Tensor, weights: Any, *rest: Any, out_val: Any, **_: Any) -> int:
    return 2 * _recurrent(x, weights, *rest, out_val=out_val)


def _product(a: Tensor, b: Tensor, *_: Any, out_val: Any, **__: Any) -> int:
    """Matrix or vector times vector."""
    return 2 * a.numel()


def _added_product(c: Tensor, a: Tensor, b: Tensor, *_: Any, out_val: Any, **__: Any) -> int:
    return 2 * a.numel() * (b.shape[-1] if b.dim() > 1 else 1)


def _linear(x: Tensor, weight: Tensor, *_: Any, out_val: Any, **__: Any) -> int:
    return 2 * (x.numel() // x.shape[-1]) * weight.numel()


OWN: dict[str, Formula] = {
    "convolution_backward": _convolution_backward,
    "_slow_conv2d_forward": _convolution_by_columns,
    "_slow_conv2d_backward": _convolution_by_columns_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    "_scaled_dot_product_fused_attention_overrideable_backward": _attention_backward,
    "_native_multi_head_attention": _multi_head,
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "mkldnn_rnn_layer": _recurrent,
    "mkldnn_rnn_layer_backward": _recurrent_backward,
    "_cudnn_rnn": _recurrent,
    "_cudnn_rnn_backward": _recurrent_backward,
    "miopen_rnn": _recurrent,
    "miopen_rnn_backward": _recurrent_backward,
    "mv": _product,
    "dot": _product,
    "vdot": _product,
    "addmv": _added_product,
    "addmv_": _added_product,
    "addbmm": _added_product,
    "addbmm_": _added_product,
    "_addmm_activation": _added_product,
    "mkldnn_linear": _linear,
}
"""By the name of the aten operator."""
