"""Records the calls of one step: their data-flow edges, parameters, shapes and memory.

Whoever measures their time or work is an observer, told when each call runs, forward and backward.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from trainlab.instruments.calls.backward import NodeOwners
from trainlab.instruments.calls.flow import (
    BATCH,
    DataFlow,
    memory_bytes,
    memory_of,
    tensors_in,
    version_of,
)
from trainlab.instruments.calls.listener import CallListener, EndListener, Kind, WatchedCall
from trainlab.instruments.calls.watch import CallWatch
from trainlab.train.moments import Phase


@dataclass
class Call:
    """One call, with what is learnt about it in one step."""

    name: str
    type: str
    kind: Kind
    phase: Literal["forward", "loss"]
    number: int = 0
    """Which call of that name in the step, from 1."""
    inputs: set[int] = field(default_factory=set)
    """The calls it takes tensors from, as places in the list of calls, or BATCH."""
    parameters: set[int] = field(default_factory=set)
    """Ids of the model's parameters that it owns or was handed."""
    output_shapes: list[list[int]] = field(default_factory=list)
    output_bytes: int = 0
    """Memory of its results that none of its inputs had."""
    saved_bytes: int = 0
    """Memory that is kept for the backward pass because of it."""
    forward_us: float = 0.0
    backward_us: float = 0.0
    forward_flops: int = 0
    backward_flops: int = 0
    forward_bytes: int = 0
    backward_bytes: int = 0


class Observer(Protocol):
    """Told when a step's work begins and ends, and each call's in it, forward and backward."""

    def begin(self) -> None: ...

    def phase_ends(self, phase: Phase) -> None: ...

    def end(self) -> None:
        """The step is over, or broke off; perhaps before it began."""

    def forward_begins(self, call: Call) -> None: ...

    def forward_ends(self, call: Call) -> None: ...

    def backward_begins(self, call: Call) -> None: ...

    def backward_ends(self, call: Call) -> None: ...


Versions = list[tuple[Tensor, int]]
"""Tensors that a call takes, with their versions before it: what changes one in place counts it up."""


class CallRecorder(CallListener):
    """Lists the calls of one step that made a tensor, in the order they ended."""

    def __init__(self, model: nn.Module, observer: Observer) -> None:
        self.calls: list[Call] = []
        self.phase: Literal["forward", "loss"] = "forward"
        self.watch = CallWatch(model, self)
        self._model, self._observer = model, observer
        self._parameters = {id(parameter) for parameter in model.parameters()}
        self._constants = self._parameters | {id(buffer) for buffer in model.buffers()}
        self._flow = DataFlow()
        self._owners = NodeOwners[Call](observer.backward_begins, observer.backward_ends)
        self._running: Call | None = None
        self._sources_inside: dict[WatchedCall | None, set[int]] = {}
        """By container of torch.nn: the sources of its arguments. What it computes before it calls its
        first module is not seen, so tensors of unknown origin in it are taken to come from those."""

    def release_graph(self) -> None:
        """After the step: lets go of its autograd graph."""
        self._owners.release()

    def call_begins(self, call: WatchedCall, arguments: Any) -> EndListener | None:
        if call.module is not None and call.role == "inner":
            assert self._running is not None
            self._running.parameters |= self._owned(call.module)
            return None
        taken = list(tensors_in(arguments))
        if call.module is self._model:
            self._flow.set_sources(taken, [BATCH])
        if call.role == "container":
            return None
        versions = [(tensor, version_of(tensor)) for tensor in taken]
        record = Call(call.name, call.type_name, call.kind, self.phase, call.number)

        def ends(result: Any, keywords: Any) -> bool:
            if call.role == "container":
                return False
            self._observer.forward_ends(record)
            if call.module is not None:
                record.parameters |= self._owned(call.module)
            if keywords:
                versions.extend((tensor, version_of(tensor)) for tensor in tensors_in(keywords))
            made = list(tensors_in(result))
            if made:
                self._record(record, versions, made, self._sources_inside.get(call.container))
            return bool(made)

        self._running = record
        self._observer.forward_begins(record)
        return ends

    def becomes_container(self, call: WatchedCall, arguments: Any) -> None:
        self._sources_inside[call] = self._flow.sources(tensors_in(arguments))

    def property_read(self, arguments: Any, value: Any) -> None:
        self._flow.set_sources(tensors_in(value), self._flow.sources(tensors_in(arguments)))

    def _record(
        self, call: Call, taken: Versions, made: list[Tensor], sources_inside: set[int] | None
    ) -> None:
        call.parameters |= {id(tensor) for tensor, _ in taken} & self._parameters
        call.output_shapes = [[] if tensor.is_nested else list(tensor.shape) for tensor in made]
        held = {memory_of(tensor): memory_bytes(tensor) for tensor in made}
        call.output_bytes = sum(held[key] for key in held.keys() - {memory_of(t) for t, _ in taken})
        moving = [
            (tensor, version) for tensor, version in taken if id(tensor) not in self._constants
        ]
        # Tensors of unknown origin that the loss takes are the targets.
        unknown = sources_inside or ({BATCH} if self.phase == "loss" else set())
        self._flow.set_sources((t for t, _ in moving if not self._flow.knows(t)), unknown)
        call.inputs = self._flow.sources(tensor for tensor, _ in moving)
        written = [tensor for tensor, version in moving if version_of(tensor) != version]
        place = len(self.calls)
        self._flow.set_sources(made, [place])
        self._flow.set_writer(written, place)
        self._owners.claim(call, [*made, *written])
        self.calls.append(call)

    def _owned(self, module: nn.Module) -> set[int]:
        return {id(parameter) for parameter in module.parameters()} & self._parameters
