"""Sees every call of a step as the user wrote it: modules, functions, custom autograd functions.

A module of torch.nn that calls no other module is one call, whatever it does inside. Any other
module is a container: what it calls itself are calls of their own, named under its path. A module that
is compiled, scripted or traced is one call, and so is a compiled function that a module holds: while it
runs, nothing of ours is in torch's way, so that the compiler compiles the user's code and not our hooks.
"""

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache, partial
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import _SingleLevelFunction
from torch.nn.modules import module as torch_modules
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode, _get_current_function_mode
from torch.utils.hooks import RemovableHandle

from trainlab.data.nesting import tensors_in
from trainlab.train.callbacks import Phase
from trainlab.train.opaque import compiled_functions, is_compiled, is_opaque, opaque_modules

# What a CallWatch reports to its listener about the calls of a step.

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
    """A torch.nn module begins as a call and becomes a container once it calls another module."""
    container: "WatchedCall | None"
    """The module that makes this call, where the listener wanted that one too."""

    @property
    def type_name(self) -> str:
        """The function's name, or the module's class."""
        return self.types[0] if self.module is None else type(self.module).__name__

    @property
    def kind(self) -> Kind:
        """Whether a module or a function is called."""
        return "function" if self.module is None else "module"


EndListener = Callable[[Any, Any], bool]
"""Gets what the call returned and, of a module, its keyword arguments; not called if it raised.

Returns whether the call counts: then the next one of that name gets the next number.
"""


class CallListener:
    """Overrides what it needs.

    Functions are seen while a container begins and ends. A listener that computes with tensors there
    does so under `torch._C.DisableTorchFunction()`, or its own computations would be reported as calls.
    """

    def wants(self, name: str, types: tuple[str, ...]) -> bool:
        """Comes before anything else is done for a call; one not wanted is not reported further."""
        return True

    def call_begins(self, call: WatchedCall, arguments: Any) -> EndListener | None:
        """The call is about to run; a module's keyword arguments are only known at its end.

        Returns what to call at its end; a call without it does not count in the numbering.
        """
        return None

    def becomes_container(self, call: WatchedCall, arguments: Any) -> None:
        """A torch.nn module that began as one call is about to call another module."""

    def property_read(self, arguments: Any, value: Any) -> None:
        """A property of a tensor was read, such as `.data`: no call, but its value may be a tensor."""


class Patches:
    """Attributes of torch's, or of anything else, that are ours until they are closed."""

    def __init__(self) -> None:
        self._put = ExitStack()

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

        setattr(owner, name, value)
        self._put.callback(restore)

    def close(self) -> None:
        """All is as before."""
        self._put.close()


MISSING = object()
TENSOR_PROPERTIES = {"T", "mT", "H", "mH", "real", "imag"}
"""Properties that are operations; `.shape` and the like are not."""


@dataclass(slots=True)
class _Frame:
    """A module that is being called."""

    path: str
    arguments: tuple[Any, ...]
    """Keeping them costs no memory: torch itself holds them until the module returns."""
    is_call: bool
    """False for a container, and inside another call."""
    call: WatchedCall | None = None
    """None where the listener does not want it."""
    ends: EndListener | None = None


class CallWatch:
    """Reports the calls of each step to a listener, between `start_watching` and `stop_watching`."""

    def __init__(self, model: nn.Module, listener: CallListener) -> None:
        self._listener = listener
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._numbers: Counter[str] = Counter()
        self._frames: list[_Frame] = []
        self._is_inside_call = self._goes_on = False
        self._sees_functions, self._is_installed = True, False
        self._mode, self._mode_is_on = _FunctionMode(self._function_called), False
        self._hooks: list[RemovableHandle] = []
        self._compiled = [module for _, module in opaque_modules(model) if is_compiled(module)]
        self._functions = [(module, name) for _, module, name in compiled_functions(model)]
        self._own_calls: list[tuple[nn.Module, Any]] = []
        """Compiled modules that are called through us, each with what it had in that place."""
        self._own_functions: list[tuple[nn.Module, str, Any]] = []
        """Compiled functions that are called through us, each with what its module had in that place."""
        self._warnings: Any = None

    def install(self) -> None:
        """Before the steps, as it takes too long inside one: patches custom autograd functions."""
        if self._sees_functions and not self._is_installed:
            # Function modes do not see custom autograd functions.
            setattr(_SingleLevelFunction, "apply", classmethod(self._apply_called))  # noqa: B010
            self._is_installed = True

    def uninstall(self) -> None:
        """After the steps, however they ended: nothing of ours stays behind in torch."""
        self.stop_watching()
        self._unpatch()

    def _unpatch(self) -> None:
        if self._is_installed:
            delattr(_SingleLevelFunction, "apply")
            self._is_installed = False

    def watch_modules_only(self) -> None:
        """Cheaper: from the next step on functions are not seen, and every module is a container."""
        self.uninstall()
        self._sees_functions = False

    def start_watching(self) -> None:
        """From here on every call is seen, of whatever module; calls are numbered from 1 again."""
        self._numbers.clear()
        self._frames.clear()
        self._is_inside_call = self._goes_on = False
        self._watch()

    def enter(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """The call of a module has begun before it could be seen; its end will be."""
        self._module_begins(module, arguments)

    def go_on_watching(self) -> None:
        """After a stop within an update of several passes: calls go on being numbered. Outside of modules,
        what runs without gradients is not seen: optimizers, and what clips or averages."""
        self._goes_on = True
        if not self._hooks:
            self._watch()

    def _watch(self) -> None:
        # Hooks common to all modules: a hook on a module itself would switch off torch's fast paths.
        self._add_hooks()
        if self._compiled:
            # torch warns of hooks common to all modules beside a compiled one; ours step aside.
            self._warnings = warnings.catch_warnings()
            self._warnings.__enter__()
            warnings.filterwarnings("ignore", r".*there are global hooks")
        for module in self._compiled:
            self._own_calls.append((module, vars(module).get("_compiled_call_impl")))
            vars(module)["_compiled_call_impl"] = self._called_through_us(module)
        for module, name in self._functions:
            self._own_functions.append((module, name, vars(module).get(name)))
            vars(module)[name] = self._run_through_us(name, getattr(module, name))
        self._switch_mode(on=True)

    def stop_watching(self) -> None:
        """No call is seen any more."""
        self._switch_mode(on=False)
        self._remove_hooks()
        for module, before in self._own_calls:
            vars(module)["_compiled_call_impl"] = before
        if self._own_calls:
            self._warnings.__exit__(None, None, None)
        self._own_calls = []
        for module, name, before in self._own_functions:
            if before is None:
                del vars(module)[name]
            else:
                vars(module)[name] = before
        self._own_functions = []

    def _add_hooks(self) -> None:
        self._hooks = [
            register_module_forward_pre_hook(self._module_begins),
            register_module_forward_hook(self._module_ends, with_kwargs=True, always_call=True),
        ]

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
            # torch leaves this behind, and then takes every module for a hooked one.
            torch_modules._global_forward_hooks_with_kwargs.pop(hook.id, None)
        self._hooks = []

    def _called_through_us(self, module: nn.Module) -> Callable[..., Any]:
        """Stands in for the call of a compiled module, which would compile what it finds in its way."""
        compiled = vars(module).get("_compiled_call_impl") or module._call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._hooks:
                return compiled(*args, **kwargs)
            self._module_begins(module, args)
            ended: tuple[Any, ...] = (None,)
            try:
                with self._out_of_the_way():
                    result = compiled(*args, **kwargs)
                ended = (kwargs, result)
                return result
            finally:
                self._module_ends(module, args, *ended)

        return call

    def _run_through_us(self, name: str, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Stands in for a compiled function: one call, whatever it does inside."""

        def unwatched(*args: Any, **kwargs: Any) -> Any:
            with self._out_of_the_way():
                return compiled(*args, **kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._hooks:
                return compiled(*args, **kwargs)
            if self._is_inside_call:
                return unwatched(*args, **kwargs)
            return self._run(name, unwatched, args, kwargs)

        return call

    @contextmanager
    def _out_of_the_way(self) -> Iterator[None]:
        """Inside, torch is as if nobody watched."""
        mode_was_on, was_installed = self._mode_is_on, self._is_installed
        self._switch_mode(on=False)
        self._remove_hooks()
        self._unpatch()
        try:
            yield
        finally:
            self._add_hooks()
            if was_installed:
                self.install()
            self._switch_mode(on=mode_was_on)

    def _function_called(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Stands in for every torch function."""
        if self._is_inside_call or self._is_beside_passes():
            return function(*args, **kwargs)
        if name := _name_of(function):
            return self._run(name, function, args, kwargs)
        value = function(*args, **kwargs)
        self._listener.property_read(args, value)
        return value

    def _is_beside_passes(self) -> bool:
        return self._goes_on and not self._frames and not torch.is_grad_enabled()

    def _apply_called(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Stands in for the `apply` of every custom autograd function."""
        apply = super(_SingleLevelFunction, cls).apply  # type: ignore[misc]
        if self._is_inside_call or not self._hooks:
            return apply(*args, **kwargs)
        # Whether it is wanted or not, the functions it uses are no calls of the user's.
        self._is_inside_call = True
        self._switch_mode(on=False)
        try:
            return self._run(cls.__name__, apply, args, kwargs)
        finally:
            self._is_inside_call = False
            self._switch_mode(on=True)

    def _run(
        self, type_name: str, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Runs a function as a call, if the listener wants it."""
        name = self._below_path(type_name)
        if not self._listener.wants(name, (type_name,)):
            return function(*args, **kwargs)
        call = self._new_call(name, (type_name,), None, "call")
        self._is_inside_call = True
        try:
            ends = self._listener.call_begins(call, (args, kwargs))
            result = function(*args, **kwargs)
            if ends is not None:
                # Writing into a part of a tensor returns nothing, but it is work.
                self._numbers[name] += ends(args[0] if type_name == "setitem" else result, ())
            return result
        finally:
            self._is_inside_call = False

    def _module_begins(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling():
            return
        if self._frames and self._frames[-1].is_call:
            self._make_container(self._frames[-1])
        class_: type = type(module)
        path = self._paths.get(id(module))
        if path is None:
            path = self._below_path(class_.__name__)
        is_whole = _is_torch_module(class_) or is_opaque(module)
        is_call = self._sees_functions and not self._is_inside_call and is_whole
        role: Role = "call" if is_call else "inner" if self._is_inside_call else "container"
        name, types, call = path or class_.__name__, _types_of_class(class_), None
        if self._listener.wants(name, types):
            call = self._new_call(name, types, module, role)
        frame = _Frame(path, args, is_call, call)
        self._frames.append(frame)
        if is_call:
            # Without the mode: it would switch off torch's fast paths.
            self._is_inside_call = True
            self._switch_mode(on=False)
        if call is not None:
            frame.ends = self._listener.call_begins(call, args)

    def _module_ends(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        """`rest` is keyword arguments and result; the result alone where the module raised."""
        if torch.compiler.is_compiling():
            return
        frame = self._frames.pop()
        try:
            if frame.call is not None and frame.ends is not None and len(rest) == 2:
                self._numbers[frame.call.name] += frame.ends(rest[1], rest[0])
        finally:
            if frame.is_call:
                self._is_inside_call = False
                self._switch_mode(on=True)

    def _make_container(self, frame: _Frame) -> None:
        """The module of torch.nn that was taken for one call calls another module."""
        frame.is_call = self._is_inside_call = False
        if frame.call is not None:
            frame.call.role = "container"
            self._listener.becomes_container(frame.call, frame.arguments)
        self._switch_mode(on=True)

    def _new_call(
        self, name: str, types: tuple[str, ...], module: nn.Module | None, role: Role
    ) -> WatchedCall:
        container = self._frames[-1].call if self._frames else None
        return WatchedCall(name, self._numbers[name] + 1, types, module, role, container)

    def _switch_mode(self, on: bool) -> None:
        # Left only where it is on top of the stack: a mode of the user's must stay where it is.
        if on and not self._mode_is_on and self._hooks and self._sees_functions:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
        elif not on and self._mode_is_on and _get_current_function_mode() is self._mode:
            self._mode.__exit__(None, None, None)
        else:
            return
        self._mode_is_on = on

    def _below_path(self, name: str) -> str:
        """The name below the path of the module being called."""
        path = self._frames[-1].path if self._frames else ""
        return f"{path}.{name}" if path else name


class _FunctionMode(TorchFunctionMode):
    def __init__(self, function_called: Callable[..., Any]) -> None:
        super().__init__()
        self._function_called = function_called

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if torch.compiler.is_compiling():  # a function that no module holds: nothing of ours in it
            return func(*args, **kwargs or {})
        return self._function_called(func, args, kwargs or {})


def _name_of(function: Callable[..., Any]) -> str:
    """As a user would write it: relu, getitem, T; empty for properties that are no operation."""
    name: str = getattr(function, "__name__", type(function).__name__)
    if name in ("__get__", "__set__", "__delete__"):
        attribute: str = getattr(getattr(function, "__self__", None), "__name__", "")
        return attribute if name == "__get__" and attribute in TENSOR_PROPERTIES else ""
    return name[2:-2] if name.startswith("__") and name.endswith("__") else name


def types_of(module: nn.Module) -> tuple[str, ...]:
    """The names of a module's class and of those it derives from, torch's base apart."""
    class_: type = type(module)  # mypy takes a `type[nn.Module]` for one that cannot be cached
    return _types_of_class(class_)


@lru_cache
def _types_of_class(class_: type) -> tuple[str, ...]:
    return tuple(c.__name__ for c in class_.__mro__ if c not in (nn.Module, object))


@lru_cache
def _is_torch_module(class_: type) -> bool:
    return f"{class_.__module__}.".startswith(("torch.nn.", "torch.ao.nn."))


# Which call of a step each tensor came from: the edges of its data-flow graph.

BATCH = -1
"""The source of what the model and the loss were given."""


class DataFlow:
    """The sources of the tensors of one step. Holds no tensor: watching must not cost memory."""

    def __init__(self) -> None:
        self._sources: dict[int, tuple[weakref.ref[Tensor], frozenset[int]]] = {}
        self._writers: dict[int, int] = {}

    def set_sources(self, tensors: Iterable[Tensor], sources: Iterable[int]) -> None:
        """These tensors come from these calls."""
        calls = frozenset(sources)
        for tensor in tensors:
            self._sources[id(tensor)] = (weakref.ref(tensor), calls)

    def set_writer(self, tensors: Iterable[Tensor], call: int) -> None:
        """The call changed these in place, and so every view of their memory."""
        for tensor in tensors:
            self.set_sources([tensor], [call])
            if (storage := storage_id(tensor)) is not None:
                self._writers[storage] = call

    def has_sources(self, tensor: Tensor) -> bool:
        """Whether the tensor's sources are set; its id alone may be that of a tensor freed since."""
        entry = self._sources.get(id(tensor))
        return entry is not None and entry[0]() is tensor

    def sources(self, tensors: Iterable[Tensor]) -> set[int]:
        """The calls these came from, or were last changed by; none for constants."""
        calls: set[int] = set()
        for tensor in filter(self.has_sources, tensors):
            came_from = self._sources[id(tensor)][1]
            writer = self._writers.get(storage_id(tensor) or 0) if self._writers else None
            # A writer before the source no longer counts: the source read what it wrote, or the memory
            # was freed in between.
            if writer is not None and writer > max(came_from, default=BATCH):
                calls.add(writer)
            else:
                calls |= came_from
        return calls


def constants_of(model: nn.Module) -> frozenset[int]:
    """Ids of the model's parameters and buffers."""
    return frozenset(id(tensor) for tensor in [*model.parameters(), *model.buffers()])


def storage_id(tensor: Tensor) -> int | None:
    """Equal for two living tensors if they share memory; None for one without, such as a sparse one."""
    if not torch._C._has_storage(tensor):
        return None
    return int(tensor.untyped_storage()._cdata)


def storage_bytes(tensor: Tensor) -> int:
    """All the memory that the tensor keeps alive: a view keeps that of its whole base."""
    return tensor.untyped_storage().nbytes() if torch._C._has_storage(tensor) else 0


def version_of(tensor: Tensor) -> int:
    """Counts changes in place; always 0 where torch does not track them."""
    return 0 if tensor.is_inference() else tensor._version


# Which call's backward work a node of the autograd graph is: that of the call that made the node.


class BackwardHooks:
    """Hooks on the nodes of one step's graph; a node belongs to the first call whose outputs lead to it."""

    def __init__(self) -> None:
        # Kept until the step ends: torch wraps a node anew once the wrapper is gone, and we would
        # not know it again.
        self._claimed: set[Any] = set()

    def claim(
        self, outputs: Iterable[Tensor], begins: Callable[[], None], ends: Callable[[], None]
    ) -> None:
        """Has `begins` and `ends` called around each node from these outputs back to claimed nodes."""
        waiting = [output.grad_fn for output in outputs]
        while waiting:
            node: Any = waiting.pop()
            if node is None or node in self._claimed or type(node).__name__ == "AccumulateGrad":
                continue
            self._claimed.add(node)
            node.register_prehook(lambda grads: begins())
            node.register_hook(lambda inputs, outputs: ends())
            waiting += [next_node for next_node, _ in node.next_functions]

    def release(self) -> None:
        """Lets go of the graph."""
        self._claimed.clear()


# Records the calls of one step: their data-flow edges, parameters, shapes and memory.


@dataclass(slots=True)
class PassCost:
    """What the forward or the backward pass of one call costs in one step."""

    us: float = 0.0
    flops_by_kind: dict[str, int] = field(default_factory=dict)
    """Of convolutions, of recurrent layers, and of all other products."""
    num_bytes: int = 0
    """Read and written."""
    saved_bytes: int = 0
    """Memory that is kept for the backward pass because of it."""

    @property
    def flops(self) -> int:
        """Of all kinds."""
        return sum(self.flops_by_kind.values())

    def add_flops(self, kind: str, flops: int) -> None:
        """One more operator's."""
        self.flops_by_kind[kind] = self.flops_by_kind.get(kind, 0) + flops


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


class Observer(Protocol):
    """Sees a step's work begin and end, and in it each call's forward and backward pass."""

    def begin(self) -> None: ...

    def phase_ends(self, phase: Phase) -> None: ...

    def passes_go_on(self) -> None:
        """A backward pass is over, and further passes may come."""

    def end(self) -> None:
        """The step is over, or broke off; perhaps before it began."""

    def pass_begins(self, cost: PassCost) -> None: ...

    def pass_ends(self, cost: PassCost) -> None: ...


Versions = list[tuple[Tensor, int]]
"""A call's input tensors, each with its version before the call: a change in place raises the version."""


class CallRecorder(CallListener):
    """Lists the calls of one step that returned or wrote a tensor, in the order they ended."""

    def __init__(self, model: nn.Module, observer: Observer) -> None:
        self.calls: list[Call] = []
        self.phase: Literal["forward", "loss"] = "forward"
        self.observer, self.watch = observer, CallWatch(model, self)
        self._model = model
        self._parameters = {id(parameter) for parameter in model.parameters()}
        self._constants = constants_of(model)
        self._flow = DataFlow()
        self._backward_hooks = BackwardHooks()
        self._running: Call | None = None
        self._container_sources: dict[WatchedCall | None, set[int]] = {}
        """By container of torch.nn: the sources of its arguments. What it computes before it calls its
        first module is not seen, so tensors of unknown origin in it are taken to come from those."""

    def release_graph(self) -> None:
        """After the step: lets go of its autograd graph."""
        self._backward_hooks.release()

    def call_begins(self, call: WatchedCall, arguments: Any) -> EndListener | None:
        if call.module is not None and call.role == "inner":
            assert self._running is not None
            self._running.parameters |= self._parameters_of(call.module)
            return None
        inputs = list(tensors_in(arguments))
        if call.module is self._model:
            self._flow.set_sources(inputs, [BATCH])
        if call.role == "container":
            return None
        versions = [(tensor, version_of(tensor)) for tensor in inputs]
        record = Call(call.name, call.type_name, call.kind, self.phase, call.number)

        def ends(result: Any, keywords: Any) -> bool:
            if call.role == "container":
                return False
            self.observer.pass_ends(record.forward)
            if call.module is not None:
                record.parameters |= self._parameters_of(call.module)
            if keywords:
                versions.extend((tensor, version_of(tensor)) for tensor in tensors_in(keywords))
            outputs = list(tensors_in(result))
            if outputs:
                sources = self._container_sources.get(call.container)
                self._record(record, versions, outputs, sources)
            return bool(outputs)

        self._running = record
        self.observer.pass_begins(record.forward)
        return ends

    def becomes_container(self, call: WatchedCall, arguments: Any) -> None:
        self._container_sources[call] = self._flow.sources(tensors_in(arguments))

    def property_read(self, arguments: Any, value: Any) -> None:
        self._flow.set_sources(tensors_in(value), self._flow.sources(tensors_in(arguments)))

    def _record(
        self,
        call: Call,
        inputs: Versions,
        outputs: list[Tensor],
        container_sources: set[int] | None,
    ) -> None:
        call.parameters |= {id(tensor) for tensor, _ in inputs} & self._parameters
        call.output_shapes = [[] if tensor.is_nested else list(tensor.shape) for tensor in outputs]
        output_bytes = {storage_id(tensor): storage_bytes(tensor) for tensor in outputs}
        new_storages = output_bytes.keys() - {storage_id(tensor) for tensor, _ in inputs}
        call.output_bytes = sum(output_bytes[storage] for storage in new_storages)
        inputs = [
            (tensor, version) for tensor, version in inputs if id(tensor) not in self._constants
        ]
        # Tensors of unknown origin that the loss takes are the targets.
        unknown = container_sources or ({BATCH} if self.phase == "loss" else set())
        self._flow.set_sources((t for t, _ in inputs if not self._flow.has_sources(t)), unknown)
        call.inputs = self._flow.sources(tensor for tensor, _ in inputs)
        written = [tensor for tensor, version in inputs if version_of(tensor) != version]
        index = len(self.calls)
        self._flow.set_sources(outputs, [index])
        self._flow.set_writer(written, index)
        begins = partial(self.observer.pass_begins, call.backward)
        ends = partial(self.observer.pass_ends, call.backward)
        self._backward_hooks.claim([*outputs, *written], begins, ends)
        self.calls.append(call)

    def _parameters_of(self, module: nn.Module) -> set[int]:
        return {id(parameter) for parameter in module.parameters()} & self._parameters


# Which calls of one step are those of another, where a loop runs more often in one of them.


def aligned(known: Sequence[Hashable], new: Sequence[Hashable]) -> list[int | None]:
    """For each of the new ones its place among the known ones, None where it has none there. Places rise:
    what comes first in one comes first in the other.

    The ends are put together first: what follows a loop is then not taken for a further round of it.
    """
    num_last = _num_equal(_from_the_end(known, new))
    known_rest, new_rest = len(known) - num_last, len(new) - num_last
    num_first = _num_equal(list(zip(known[:known_rest], new[:new_rest], strict=False)))
    places: list[int | None] = [None] * len(new)
    for place in range(num_first):
        places[place] = place
    for place in range(num_last):
        places[new_rest + place] = known_rest + place
    between = SequenceMatcher(
        None, known[num_first:known_rest], new[num_first:new_rest], autojunk=False
    )
    for block in between.get_matching_blocks():
        for place in range(block.size):
            places[num_first + block.b + place] = num_first + block.a + place
    return places


def _from_the_end(
    first: Sequence[Hashable], second: Sequence[Hashable]
) -> list[tuple[Hashable, Hashable]]:
    """Of two sequences, the last with the last, and so on."""
    return list(zip(reversed(first), reversed(second), strict=False))


def _num_equal(pairs: Sequence[tuple[Hashable, Hashable]]) -> int:
    """How many of the first pairs are of equals."""
    return next((n for n, (one, other) in enumerate(pairs) if one != other), len(pairs))
