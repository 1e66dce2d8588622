"""Records the calls of one step: their data-flow edges, parameters, shapes and memory.

Whoever measures their time or work is an observer: it sees each call's forward and backward pass run.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from trainlab.data.nesting import tensors_in
from trainlab.instruments.calls.backward import BackwardHooks
from trainlab.instruments.calls.flow import (
    BATCH,
    DataFlow,
    constants_of,
    storage_bytes,
    storage_id,
    version_of,
)
from trainlab.instruments.calls.listener import CallListener, EndListener, Kind, WatchedCall
from trainlab.instruments.calls.watch import CallWatch
from trainlab.train.moments import Phase


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
