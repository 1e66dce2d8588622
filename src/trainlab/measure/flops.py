"""FLOPs of an operator: two per multiply-add, biases and element-wise work apart.

torch's own formulas, with ours where it has none, or where it counts grouped convolutions wrongly.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from trainlab.data.nesting import tensors_in
from trainlab.instruments.calls import Observer, PassCost, storage_bytes, storage_id
from trainlab.train.callbacks import Phase

aten = torch.ops.aten

PRODUCTS = re.compile(
    r"\w*(mm|mv|matmul|dot|conv|convolution|rnn|attention|fft|solve|cholesky)|[cp]dist|inner|outer|ger"
    r"|linear|bilinear|lstm|gru|einsum|kron|inv|inverse|svd|eigh?|qr|lu|ldl|det|slogdet|matrix"
)
"""Words of names of torch's operators that multiply and add."""
NO_PRODUCTS = {"upsample", "cell", "flatten"}
"""Words of names in which those stand for something else."""

Formula = Callable[..., int]


def formula_for(operator: Any) -> Formula | None:
    """Called with the operator's arguments and `out_val`, its result; None where none is known."""
    packet, name = getattr(operator, "_overloadpacket", operator), _name_of(operator)
    if (own := OWN.get(name)) and packet == getattr(aten, name, None):
        return own
    if packet not in flop_registry and name.endswith("_"):
        packet = getattr(aten, name[:-1], packet)
    formula: Formula | None = flop_registry.get(packet)
    return formula


def _name_of(operator: Any) -> str:
    name: str = getattr(getattr(operator, "_overloadpacket", operator), "__name__", "")
    return name


def kind_of(operator: Any) -> str:
    """`convolution`, `recurrent` or `matmul`: torch decides by kind whether fp32 may run as TF32."""
    name = _name_of(operator)
    return "convolution" if "conv" in name else "recurrent" if "rnn" in name else "matmul"


def may_multiply(operator: Any) -> bool:
    """Whether an operator without a formula may do arithmetic that ought to be counted."""
    tags = {tag.name for tag in getattr(operator, "tags", [])}
    if tags & {"pointwise", "reduction", "view_copy"} or getattr(operator, "is_view", False):
        return False
    if getattr(operator, "namespace", "") != "aten":
        return True
    name = _name_of(operator)
    words = {re.sub(r"\d+d?$", "", word) for word in name.split("_")}
    return not words & NO_PRODUCTS and any(map(PRODUCTS.fullmatch, words))


def _convolution(
    x: Tensor, weight: Tensor, *_: Any, out_val: Tensor, transposed: bool = False, **__: Any
) -> int:
    """Every weight meets every position of the smaller image once; groups are in its shape."""
    positions = prod((x if transposed else out_val).shape[2:])
    return 2 * x.shape[0] * positions * weight.numel()


def _convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, *rest: Any, out_val: Any, **_: Any
) -> int:
    """As much again for each of two gradients, where it is wanted."""
    transposed = len(rest) > 4 and rest[4]  # the convolution by columns has no such argument
    num_wanted = sum(gradient is not None for gradient in out_val[:2])
    return num_wanted * _convolution(x, weight, out_val=grad, transposed=transposed)


def _multi_head(
    query: Tensor, key: Tensor, value: Tensor, width: int, *_: Any, out_val: Any
) -> int:
    """The fused inference path: four projections and the attention between them, as of one head."""
    projected = 2 * width * (2 * query.numel() + key.numel() + value.numel())
    shapes = ((len(one), 1, *one.shape[1:]) for one in (query, key, value))
    return int(projected + sdpa_flop_count(*shapes))


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


FLASH = aten._scaled_dot_product_flash_attention
FLASH_BACKWARD = aten._scaled_dot_product_flash_attention_backward
OWN: dict[str, Formula] = {
    "convolution_backward": _convolution_backward,
    "_slow_conv2d_forward": _convolution,  # torch's formula wants an argument that it does not have
    "_slow_conv2d_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_for_cpu": flop_registry[FLASH],
    "_scaled_dot_product_flash_attention_for_cpu_backward": flop_registry[FLASH_BACKWARD],
    "_native_multi_head_attention": _multi_head,
    "_transformer_encoder_layer_fwd": _encoder_layer,
    **dict.fromkeys(("addmv", "addmv_"), lambda c, a, b, *_, **__: 2 * a.numel()),
    "_addmm_activation": flop_registry[aten.addmm],
    **dict.fromkeys(("mv", "dot", "vdot"), lambda a, b, **_: 2 * a.numel()),
}
for _name in ("mkldnn_rnn_layer", "_cudnn_rnn", "miopen_rnn"):
    OWN[_name] = _recurrent
    OWN[f"{_name}_backward"] = lambda *inputs, **named: 2 * _recurrent(*inputs, **named)
"""By the name of the aten operator."""


OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_"}
"""Operators that write their first argument without reading it."""
READS_ROWS = {"embedding", "index", "index_select", "gather", "take", "_embedding_bag"}
"""Operators that read of their first argument only what their indices name."""
WRITES_ROWS = {
    *("index_put_", "_index_put_impl_", "index_add_", "index_copy_", "index_fill_"),
    *("scatter_", "scatter_add_", "scatter_reduce_"),
}
"""Operators that change of their first argument only what their indices name."""
PARTS_OF_SPARSE = {"_indices", "_values", "indices", "values", "_coalesced_"}
NOT_WRITTEN = {"grads"}
"""Marked as written in the fused optimizers' schemas, but only where gradients are scaled."""


def traffic_bytes(operator: Any, args: tuple[Any, ...], kwargs: Any, result: Any) -> int:
    """Read and written; 0 where the operator only makes a view, or memory that nobody has written to."""
    name = _name_of(operator)
    inputs, outputs = list(tensors_in((args, kwargs))), list(tensors_in(result))
    is_mutable = getattr(getattr(operator, "_schema", None), "is_mutable", False)
    is_view = not is_mutable and set(map(storage_id, outputs)) <= set(map(storage_id, inputs))
    makes_nothing = name.startswith(("empty", "new_empty", "_sparse_coo_tensor"))
    if is_view or makes_nothing or name in PARTS_OF_SPARSE:
        return 0
    read = {id(tensor): tensor for tensor in inputs}
    written = {id(tensor): tensor for tensor in [*outputs, *_written(operator, args, kwargs)]}
    num_bytes = sum(map(num_bytes_of, [*read.values(), *written.values()]))
    return num_bytes - (_not_reached(name, inputs, outputs) if inputs else 0)


def num_bytes_of(tensor: Tensor) -> int:
    """Of its elements; of a sparse one, of its values and their indices."""
    if tensor.layout == torch.sparse_coo:
        return num_bytes_of(tensor._indices()) + num_bytes_of(tensor._values())
    # An expanded tensor has more elements than memory.
    if tensor.is_nested or not torch._C._has_storage(tensor):
        return storage_bytes(tensor)
    return min(tensor.numel() * tensor.element_size(), storage_bytes(tensor))


def _not_reached(name: str, inputs: list[Tensor], outputs: list[Tensor]) -> int:
    """Bytes of the first argument that were counted as read or written and are not."""
    table, others = inputs[0], inputs[1:]
    whole = num_bytes_of(table)
    if name in OVERWRITES:
        return whole
    if name in READS_ROWS:
        rows = num_bytes_of(outputs[0])
        if name == "_embedding_bag":
            rows = others[0].numel() * (whole // max(1, len(table)))
        return max(0, whole - rows)
    is_sparse_sum = name == "add_" and others and others[0].layout == torch.sparse_coo
    if name in WRITES_ROWS or is_sparse_sum:
        values = max((num_bytes_of(t) for t in others if t.is_floating_point()), default=0)
        return 2 * max(0, whole - values)
    return 0


def _written(operator: Any, args: tuple[Any, ...], kwargs: Any) -> Iterator[Tensor]:
    """Arguments that the operator changes: those of a list are in no result."""
    schema = getattr(operator, "_schema", None)
    for place, argument in enumerate(schema.arguments if schema is not None else ()):
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written and argument.name not in NOT_WRITTEN:
            yield from tensors_in(args[place] if place < len(args) else kwargs.get(argument.name))


class WorkCounter(TorchDispatchMode, Observer):
    """Sees every operator of one step and adds its work to the call that runs; nothing is timed."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.uncounted: set[str] = set()
        self.between, self.optimizer = PassCost(), PassCost()
        """The work of no call: up to the end of a backward pass, and from there to the next call."""
        self._rest = self.between
        self._running: PassCost | None = None
        self._unsaved: set[int | None] = set()
        """Memory that the step made and has not saved; parameters and the batch were there before."""
        self._counting, self._saving = ExitStack(), ExitStack()

    def forward_begins(self) -> None:
        self._saving.enter_context(saved_tensors_hooks(self._save, lambda tensor: tensor))
        self._counting.enter_context(self)

    def phase_ends(self, phase: Phase) -> None:
        if phase == "loss":
            self._saving.close()
        elif phase == "backward":
            self._rest = self.optimizer

    def passes_go_on(self) -> None:
        self._saving.enter_context(saved_tensors_hooks(self._save, lambda tensor: tensor))

    def end(self) -> None:
        self._counting.close()
        self._saving.close()

    def pass_begins(self, cost: PassCost) -> None:
        self._running, self._rest = cost, self.between

    def pass_ends(self, cost: PassCost) -> None:
        self._running = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        formula = formula_for(func)
        if formula is None and isinstance(func, torch._ops.OpOverload):
            # An operator made of others is counted by those, as torch's own counter does.
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        inputs, outputs = list(tensors_in((args, kwargs))), list(tensors_in(result))
        if not inputs and not outputs:
            return result
        self._unsaved |= set(map(storage_id, outputs)) - set(map(storage_id, inputs))
        cost = self._running or self._rest
        cost.num_bytes += traffic_bytes(func, args, kwargs, result)
        if formula is not None and not any(tensor.is_nested for tensor in inputs):
            cost.flops_by_kind[kind_of(func)] += int(formula(*args, **kwargs, out_val=result))
        elif self._running is not None and outputs and may_multiply(func):
            self.uncounted.add(str(getattr(func, "_overloadpacket", func)))
        return result

    def _save(self, tensor: Tensor) -> Tensor:
        """Counts each storage once, and only those that this step made."""
        storage = storage_id(tensor)
        if self._running is not None and storage in self._unsaved:
            self._unsaved.remove(storage)
            self._running.saved_bytes += storage_bytes(tensor)
        return tensor
