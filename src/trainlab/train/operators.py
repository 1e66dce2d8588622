"""A function as the operators of torch that it calls: traced once, then run by torch's own interpreter.

Each operator is called as Python and autograd would call it, in the same order, so that results are the
same to the last bit. What is saved is the way there: 10 to 20 µs for each call on a slow core.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from torch import _C, Tensor, fx

from trainlab.errors import WorkloadError

Values = dict[fx.Node, Any]
"""The value of each node in the interpreter's graph; several where an operator returns several."""

aten = torch.ops.aten

MEMORY_FORMATS: Mapping[torch.memory_format, int] = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}
"""torch's numbers for them, by which its interpreter knows them."""
LAYOUTS: Mapping[torch.layout, int] = {torch.strided: 0}
FEWEST_UPDATES = 200
"""Of a training that pays for tracing its step, which takes as long as some tens of them."""


class FailedError(Exception):
    """An operator failed, whatever else it has done."""


def failed_alone(failed: FailedError) -> WorkloadError:
    """What to say where Python has no fault to tell."""
    rule = "but its Python did not; use --engine eager"
    return WorkloadError(f"model: its recorded step failed ({failed}), {rule}")


class NotRecordableError(Exception):
    """Running the operators again would not do what the function does."""


class Operators:
    """Takes and gives tensors of the shapes that it was traced with. What else the function uses,
    parameters and buffers say, is used where it lies."""

    def __init__(self, function: Callable[..., Sequence[Tensor]], given: Sequence[Tensor]) -> None:
        """Calls the function, with all that this changes. NotRecordableError where an operator's output has
        a shape that depends on numbers, which the function may have used, or minds where its memory is."""
        # Imports for a second, as optimizers do, which are not there yet when settings are only looked at.
        from torch.fx.experimental.proxy_tensor import make_fx

        # Not the function itself: of a method torch would count one argument too many.
        traced = make_fx(lambda *tensors: function(*tensors))(*given)
        _drop_detached(traced.graph)
        for node in traced.graph.nodes:
            if _has_shape_of_numbers(node):
                raise NotRecordableError(
                    f"the shape of what {node.target} gives depends on numbers"
                )
            if _minds_memory(node):
                raise NotRecordableError(f"{node.target} depends on where its memory is")
        traced.graph.eliminate_dead_code()
        self.kept: list[Tensor] = []
        """What the function used and was not given."""
        self._run = self._interpreted(traced)

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        """What the function gives; FailedError where an operator fails."""
        had_gradients, rewrites = torch.is_grad_enabled(), _C._get_graph_executor_optimize()
        _C._set_grad_enabled(False)  # `torch.no_grad` takes as long as a small operator
        # As written down: what torch would rewrite need not round the same.
        _C._set_graph_executor_optimize(False)
        try:
            found: tuple[Tensor, ...] = self._run(*given, *self.kept)
            return found
        except Exception as error:
            raise FailedError(str(error).strip().splitlines()[-1]) from error
        finally:
            _C._set_graph_executor_optimize(rewrites)
            _C._set_grad_enabled(had_gradients)

    def _interpreted(self, traced: fx.GraphModule) -> Callable[..., Any]:
        graph = _C.Graph()
        nodes, values = list(traced.graph.nodes), Values()
        for kind in ("placeholder", "get_attr"):
            for node in nodes:
                if node.op == kind:
                    values[node] = graph.addInput()
                    if kind == "get_attr":
                        self.kept.append(getattr(traced, str(node.target)))
        for node in nodes:
            if node.op == "call_function":
                values[node] = _called(graph, node, values)
        (returned,) = (node.args[0] for node in nodes if node.op == "output")
        outputs = [values[one] for one in returned]
        given = graph.insertNode(graph.create("prim::TupleConstruct", outputs, 1)).output()
        given.setType(_C.TupleType([one.type() for one in outputs]))
        graph.registerOutput(given)
        run: Callable[..., Any] = _C._create_function_from_graph("recorded", graph)
        return run


def _has_shape_of_numbers(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    tags = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
    if not tags.intersection(target.tags):
        return False
    if target.overloadpacket is not aten.index:
        return True
    # Picked by their places there are as many as places; picked by a mask, as many as it lets through.
    indices: Any = node.args[1]
    kinds = [one.meta["val"].dtype for one in indices if isinstance(one, fx.Node)]
    return any(kind in (torch.bool, torch.uint8) for kind in kinds)


def _minds_memory(node: fx.Node) -> bool:
    """Whether it begins at a fixed place of a tensor's memory, or asks for more of it: other batches lie
    elsewhere in theirs, and beside each other."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target.overloadpacket in (aten.resize_, aten.resize_as_, aten.set_):
        return True
    names = [one.name for one in target._schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return given.get("storage_offset") is not None


def _drop_detached(graph: fx.Graph) -> None:
    """Without autograd a detached tensor is the tensor; but not where its own shape would be changed."""
    for node in graph.find_nodes(op="call_function", target=aten.detach.default):
        if not any(_changes_what_it_gets(user) for user in node.users):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _changes_what_it_gets(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _called(graph: Any, node: fx.Node, values: Values) -> Any:
    """What a call gives, once it stands in the graph."""
    if node.target is getitem:
        several, place = node.args
        given = values[several]  # type: ignore[index]
        if isinstance(given, list):
            return given[place]  # type: ignore[index]
        picked = graph.create("aten::__getitem__", [given, graph.insertConstant(place)], 1)
        return graph.insertNode(picked).output()
    schema = node.target._schema  # type: ignore[union-attr]
    arguments = []
    for place, argument in enumerate(schema.arguments):
        given = node.kwargs.get(argument.name, argument.default_value)
        if place < len(node.args):
            given = node.args[place]
        arguments.append(_value(graph, given, argument.type, values))
    made = graph.insertNode(graph.create(schema.name, arguments, len(schema.returns)))
    outputs = list(made.outputs())
    for output, returned in zip(outputs, schema.returns, strict=True):
        output.setType(returned.type)
    return outputs[0] if len(outputs) == 1 else outputs


def _value(graph: Any, given: Any, type_: Any, values: Values) -> Any:
    """An argument: what an earlier call gave, or a constant of the type that the operator takes."""
    if isinstance(given, fx.Node):
        return values[given]
    inner = type_.getElementType() if isinstance(type_, _C.OptionalType) else type_
    if isinstance(given, list | tuple) and isinstance(inner, _C.ListType):
        of_each = inner.getElementType()
        if given and isinstance(of_each, _C.IntType) and all(type(one) is int for one in given):
            return graph.insertConstant(list(given))  # made once, not with every run
        items = [_value(graph, one, of_each, values) for one in given]
        listed = graph.insertNode(graph.create("prim::ListConstruct", items, 1)).output()
        listed.setType(_C.ListType(of_each))
        return listed
    if isinstance(given, torch.memory_format):
        given = MEMORY_FORMATS[given]
    elif isinstance(given, torch.layout):
        given = LAYOUTS[given]
    elif isinstance(inner, _C.FloatType) and given is not None:
        given = float(given)
    return graph.insertConstant(given)


def are_same(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """To the last bit; what is not a number is the same as another."""
    return len(found) == len(expected) and all(map(_is_same, found, expected))


def _is_same(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if torch.equal(found, expected):
        return True
    return torch.allclose(found, expected, rtol=0, atol=0, equal_nan=True)
