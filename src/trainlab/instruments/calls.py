"""Sees every call of a step as the user wrote it: modules, functions, custom autograd functions.

A module of torch.nn without modules inside is one call, whatever it does. Any other module is a
container: what it calls itself are calls of their own, named under its path. A module that is compiled,
scripted or traced is one call: while it runs, nothing of ours is in torch's way, so that the compiler
compiles the user's code and not what watches it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import _SingleLevelFunction
from torch.overrides import TorchFunctionMode, _get_current_function_mode
from torch.utils.weak import WeakTensorKeyDictionary

from trainlab.data.nesting import tensors_in
from trainlab.train.callbacks import Instrument, Phase
from trainlab.train.opaque import is_opaque

# What a CallWatch reports about the calls of a step.

Kind = Literal["module", "function"]
Role = Literal["call", "container", "inner"]
"""`call`: one call of its own; `container`: a module whose own calls are seen one by one; `inner`: a
module that runs inside another call."""


@dataclass(eq=False, slots=True)
class WatchedCall:
    """One call of a module or function within a step."""

    name: str
    number: int
    """Which call of that name in the step, from 1."""
    types: tuple[str, ...]
    """The function's name, or the module's class and those it derives from."""
    module: nn.Module | None
    """None for a function."""
    role: Role

    @property
    def kind(self) -> Kind:
        return "function" if self.module is None else "module"


EndListener = Callable[[Any], bool]
"""Gets what the call returned; not called if it raised. Returns whether the call counts: then the next one
of that name gets the next number."""
Listener = Callable[[WatchedCall, Any], EndListener | None]
"""Hears of a call with its arguments before it runs. Returns what to call at its end; a call without it
does not count in the numbering.

Functions are seen while a container begins and ends. A listener that computes with tensors there does so
under `torch._C.DisableTorchFunction()`, or its own computations would be reported as calls."""


class Patches:
    """Attributes of torch's, or of anything else, that are ours until they are closed."""

    def __init__(self) -> None:
        self._restores: list[Callable[[], None]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute of a class, a module or an object, which may be new or inherited."""
        before = vars(owner).get(name, MISSING)

        def restore() -> None:
            if vars(owner).get(name) is not value:
                return  # what somebody else has put in its place stays there
            if before is MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        self._restores.append(restore)
        setattr(owner, name, value)

    def close(self) -> None:
        """May be called again, after an interrupt, say."""
        for restore in reversed(self._restores):
            restore()
        self._restores.clear()


MISSING = object()
TENSOR_PROPERTIES = {"T", "mT", "H", "mH", "real", "imag"}
"""Properties that are operations; `.shape` and the like are not."""


class CallWatch:
    """Once it is installed, reports the calls of each step to a listener, between `start_watching` and
    `stop_watching`."""

    def __init__(
        self, model: nn.Module, listener: Listener, *, sees_functions: bool = True
    ) -> None:
        """Without `sees_functions` it is cheaper, and every module is a container."""
        self._listener, self._sees_functions = listener, sees_functions
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._numbers: Counter[str] = Counter()
        self._open: list[str] = []
        """The paths of the modules that are being called."""
        self._is_watching = self._is_inside_call = self._goes_on = False
        self._mode, self._mode_is_on = _FunctionMode(self._function_called), False
        self._patches: Patches | None = None
        self._entered = ExitStack()

    def install(self) -> None:
        """Before the steps, as it takes too long inside one."""
        if self._patches is not None:
            return
        self._patches, run = Patches(), nn.Module.__call__

        # A hook on a module, or one common to all, would switch off torch's fast paths.
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not self._is_watching:
                return run(module, *args, **kwargs)
            with self._in_module(module, (args, kwargs)) as ended:
                with self._out_of_the_way() if is_opaque(module) else nullcontext():
                    result = run(module, *args, **kwargs)
                ended(result)
            return result

        self._patches.put(nn.Module, "__call__", call)
        if self._sees_functions:
            # A mode does not see those with a backward pass of their own.
            self._patches.put(_SingleLevelFunction, "apply", classmethod(self._apply_called))

    def uninstall(self) -> None:
        """After the steps, however they ended: nothing of ours stays behind in torch."""
        self.stop_watching()
        if self._patches is not None:
            self._patches.close()
            self._patches = None

    def start_watching(self, *, goes_on: bool = False) -> None:
        """From here on every call is seen, of whatever module; calls are numbered from 1 again, unless an
        update of several passes `goes_on`. Outside of modules, what then runs without gradients is not
        seen: optimizers, and what clips or averages."""
        if not goes_on:
            self._numbers.clear()
            self._open.clear()
            self._is_inside_call = False
        self._goes_on, self._is_watching = goes_on, self._patches is not None
        self._switch_mode(on=True)

    def stop_watching(self) -> None:
        self._switch_mode(on=False)
        self._is_watching = False

    def enter(self, module: nn.Module, arguments: Any) -> None:
        """The call of a module has begun before it could be seen; `leave` tells its end."""
        self._ended = self._entered.enter_context(self._in_module(module, arguments))

    def leave(self, result: Any = None) -> None:
        """That call has returned, or raised."""
        if result is not None:
            self._ended(result)
        self._entered.close()

    @contextmanager
    def _out_of_the_way(self) -> Iterator[None]:
        """Inside, torch is as if nobody watched."""
        was_watching, mode_was_on = self._is_watching, self._mode_is_on
        self.uninstall()
        try:
            yield
        finally:
            self.install()
            self._is_watching = was_watching
            self._switch_mode(on=mode_was_on)

    def _function_called(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Stands in for every torch function, named as a user would write it: relu, getitem, T."""
        name: str = getattr(function, "__name__", type(function).__name__)
        if name in ("__get__", "__set__", "__delete__"):
            attribute: str = getattr(getattr(function, "__self__", None), "__name__", "")
            name = attribute if name == "__get__" and attribute in TENSOR_PROPERTIES else ""
        elif name.startswith("__") and name.endswith("__"):
            name = name[2:-2]
        is_beside_passes = self._goes_on and not self._open and not torch.is_grad_enabled()
        if not name or self._is_inside_call or is_beside_passes:
            return function(*args, **kwargs)
        return self._run(name, function, args, kwargs)

    def _apply_called(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Stands in for the `apply` of every custom autograd function."""
        apply = super(_SingleLevelFunction, cls).apply  # type: ignore[misc]
        if self._is_inside_call or not self._is_watching:
            return apply(*args, **kwargs)
        return self._run(cls.__name__, apply, args, kwargs)

    def _run(
        self, type_name: str, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Runs a function as a call; what it uses is no call of the user's."""
        with self._inside_call():
            name = self._below_path(type_name)
            ended = self._begun(name, (type_name,), None, "call", (args, kwargs))
            result = function(*args, **kwargs)
            # Writing into a part of a tensor returns nothing, but it is work.
            ended(args[0] if type_name == "setitem" else result)
            return result

    @contextmanager
    def _in_module(self, module: nn.Module, arguments: Any) -> Iterator[Callable[[Any], None]]:
        """Inside, the module runs; gives what its result is to be told to."""
        types = types_of(module)
        path = self._paths.get(id(module))
        if path is None:
            path = self._below_path(types[0])
        is_call = self._sees_functions and not self._is_inside_call and _is_whole(module)
        role: Role = "call" if is_call else "inner" if self._is_inside_call else "container"
        self._open.append(path)
        try:
            with self._inside_call() if is_call else nullcontext():
                yield self._begun(path or types[0], types, module, role, arguments)
        finally:
            self._open.pop()

    @contextmanager
    def _inside_call(self) -> Iterator[None]:
        """Without the mode: it would switch off torch's fast paths."""
        self._is_inside_call = True
        self._switch_mode(on=False)
        try:
            yield
        finally:
            self._is_inside_call = False
            self._switch_mode(on=True)

    def _begun(
        self,
        name: str,
        types: tuple[str, ...],
        module: nn.Module | None,
        role: Role,
        arguments: Any,
    ) -> Callable[[Any], None]:
        """Tells the listener of a call; gives what the call's result is to be told to."""
        call = WatchedCall(name, self._numbers[name] + 1, types, module, role)
        ends = self._listener(call, arguments)

        def ended(result: Any) -> None:
            if ends is not None:
                self._numbers[name] += ends(result)

        return ended

    def _switch_mode(self, on: bool) -> None:
        # Left only where it is on top of the stack: a mode of the user's must stay where it is.
        if on and not self._mode_is_on and self._is_watching and self._sees_functions:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
        elif not on and self._mode_is_on and _get_current_function_mode() is self._mode:
            self._mode.__exit__(None, None, None)
        else:
            return
        self._mode_is_on = on

    def _below_path(self, name: str) -> str:
        """The name below the path of the module being called."""
        return f"{self._open[-1]}.{name}" if self._open and self._open[-1] else name


@dataclass(eq=False)
class _FunctionMode(TorchFunctionMode):
    function_called: Callable[..., Any]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if torch.compiler.is_compiling():  # a compiled function: nothing of ours in it
            return func(*args, **kwargs or {})
        return self.function_called(func, args, kwargs or {})


def types_of(module: nn.Module) -> tuple[str, ...]:
    """The names of a module's class and of those it derives from, torch's base apart."""
    return tuple(c.__name__ for c in type(module).__mro__ if c not in (nn.Module, object))


def _is_whole(module: nn.Module) -> bool:
    """Whether it is one call: those of torch.nn that call no module, though some hold one."""
    if not f"{type(module).__module__}.".startswith("torch.nn."):
        return is_opaque(module)
    is_fused = isinstance(module, nn.TransformerEncoderLayer) and not module.training
    return is_fused or isinstance(module, nn.MultiheadAttention) or not module._modules


def constants_of(model: nn.Module) -> frozenset[int]:
    """Ids of the model's parameters and buffers."""
    return frozenset(id(tensor) for tensor in [*model.parameters(), *model.buffers()])


def storage_id(tensor: Tensor) -> int | None:
    """Equal for two living tensors if they share memory; None for one without, such as a sparse one."""
    return tensor.untyped_storage()._cdata if torch._C._has_storage(tensor) else None


def storage_bytes(tensor: Tensor) -> int:
    """All the memory that the tensor keeps alive: a view keeps that of its whole base."""
    return tensor.untyped_storage().nbytes() if torch._C._has_storage(tensor) else 0


# Records the calls of one step: their data-flow edges, parameters, shapes and memory.

BATCH = -1
"""The source of what the model and the loss were given."""


@dataclass(slots=True)
class PassCost:
    """What the forward or the backward pass of one call costs in one step."""

    us: float = 0.0
    flops_by_kind: Counter[str] = field(default_factory=Counter)
    """Of convolutions, of recurrent layers, and of all other products."""
    num_bytes: int = 0
    """Read and written."""
    saved_bytes: int = 0
    """Memory that is kept for the backward pass because of it."""


@dataclass
class Call:
    """One call, with what is learnt about it in one step."""

    name: str
    type: str
    kind: Kind
    phase: Literal["forward", "loss"]
    number: int
    """Which call of that name in the step, from 1."""
    inputs: set[int] = field(default_factory=set)
    """The calls it takes tensors from, as indices into the list of calls, or BATCH."""
    parameters: set[int] = field(default_factory=set)
    """Ids of the model's parameters that it owns or was handed."""
    output_shapes: list[list[int]] = field(default_factory=list)
    output_bytes: int = 0
    """Memory of its results that none of its inputs had."""
    forward: PassCost = field(default_factory=PassCost)
    backward: PassCost = field(default_factory=PassCost)

    def facts(self, unseen: dict[int, int]) -> dict[str, Any]:
        """What its row tells beside its inputs; `unseen`: the sizes of parameters that no row has told."""
        return {
            "name": self.name,
            "call": self.number,
            "kind": self.kind,
            "type": self.type,
            "phase": self.phase,
            "output_shapes": self.output_shapes,
            "num_parameters": sum(unseen.pop(parameter, 0) for parameter in self.parameters),
        }


class Observer(Instrument):
    """Sees a step's work, and in it each call's forward and backward pass; this one measures nothing. Of an
    instrument's moments it gets those of model and loss."""

    def pass_begins(self, cost: PassCost) -> None:
        """The forward or the backward pass of a call."""

    def pass_ends(self, cost: PassCost) -> None:
        """That pass."""

    def end(self) -> None:
        """The step is over, or broke off; perhaps before it began."""


class CallRecorder(Instrument):
    """Lists the calls of a step that returned or wrote a tensor, in the order they ended."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._watch = model, CallWatch(model, self._call_begins)
        self._parameters = {id(parameter) for parameter in model.parameters()}
        self._constants = constants_of(model)

    @contextmanager
    def watching(self, observer: Observer) -> Iterator[list[Call]]:
        """The calls of the step run inside, as they come; whatever it raises, nothing stays behind."""
        self._observer = observer
        self._phase: Literal["forward", "loss"] | None = None
        """None until the step has begun."""
        self._calls: list[Call] = []
        self._sources: MutableMapping[Tensor, int] = WeakTensorKeyDictionary()
        """The call that each tensor came from: the edges of the data-flow graph. Watching must not cost
        memory, so it holds none. A view does not see what is written through another one later."""
        self._claimed: set[Any] = set()
        """Nodes of the step's graph. Kept until it ends: torch wraps a node anew once the wrapper is gone,
        and we would not know it again."""
        self._running: Call | None = None
        self._watch.install()
        try:
            yield self._calls
        finally:
            self._watch.uninstall()
            self._claimed.clear()
            observer.end()

    def forward_begins(self) -> None:
        if self._phase is not None:  # of an update that has several batches
            self.passes_go_on()
            return
        self._phase = "forward"
        self._observer.forward_begins()
        self._watch.start_watching()

    def phase_ends(self, phase: Phase) -> None:
        if self._phase is None:
            return
        self._observer.phase_ends(phase)
        if phase == "forward":
            self._phase = "loss"
        elif phase == "loss":
            self._watch.stop_watching()

    def passes_go_on(self) -> None:
        self._phase = "forward"
        self._observer.passes_go_on()
        self._watch.start_watching(goes_on=True)

    def passes_end(self) -> None:
        self._watch.stop_watching()

    def _call_begins(self, call: WatchedCall, arguments: Any) -> EndListener | None:
        if call.module is not None and call.role == "inner":
            assert self._running is not None
            self._running.parameters |= self._parameters_of(call.module)
            return None
        inputs = list(tensors_in(arguments))
        if call.module is self._model:
            self._sources.update(dict.fromkeys(inputs, BATCH))
        if call.role == "container":
            return None
        assert self._phase is not None
        record = Call(call.name, call.types[0], call.kind, self._phase, call.number)
        if call.module is not None:
            record.parameters = self._parameters_of(call.module)

        def ends(result: Any) -> bool:
            self._observer.pass_ends(record.forward)
            if outputs := list(tensors_in(result)):
                self._record(record, inputs, outputs)
            return bool(outputs)

        self._running = record
        self._observer.pass_begins(record.forward)
        return ends

    def _record(self, call: Call, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        call.parameters |= {id(tensor) for tensor in inputs} & self._parameters
        call.output_shapes = [[] if tensor.is_nested else list(tensor.shape) for tensor in outputs]
        output_bytes = {storage_id(tensor): storage_bytes(tensor) for tensor in outputs}
        new_storages = output_bytes.keys() - set(map(storage_id, inputs))
        call.output_bytes = sum(output_bytes[storage] for storage in new_storages)
        inputs = [tensor for tensor in inputs if id(tensor) not in self._constants]
        if self._phase == "loss":
            # Tensors of unknown origin are the targets.
            unknown = [tensor for tensor in inputs if tensor not in self._sources]
            self._sources.update(dict.fromkeys(unknown, BATCH))
        call.inputs = {self._sources[tensor] for tensor in inputs if tensor in self._sources}
        self._sources.update(dict.fromkeys(outputs, len(self._calls)))
        self._calls.append(call)
        # The nodes from the outputs back to those of earlier calls are the call's backward pass.
        begins, ends = partial(self._observer.pass_begins, call.backward), self._observer.pass_ends
        waiting = [output.grad_fn for output in outputs]
        while waiting:
            node: Any = waiting.pop()
            if node is None or node in self._claimed or type(node).__name__ == "AccumulateGrad":
                continue
            self._claimed.add(node)
            node.register_prehook(lambda grads: begins())
            node.register_hook(lambda inputs, outputs: ends(call.backward))
            waiting += [next_node for next_node, _ in node.next_functions]

    def _parameters_of(self, module: nn.Module) -> set[int]:
        return {id(parameter) for parameter in module.parameters()} & self._parameters
