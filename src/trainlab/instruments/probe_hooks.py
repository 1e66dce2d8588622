"""Where probes read: calls of chosen layers, forward and backward; parameters; and when a period ends.

Gradients are read at the nodes of the autograd graph that the layer made. Nothing is added to the
graph, so neither the losses nor in-place layers are disturbed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from trainlab.data.nesting import tensors_in
from trainlab.errors import SpecError
from trainlab.instruments.calls import (
    CallListener,
    CallWatch,
    EndListener,
    WatchedCall,
    constants_of,
    types_of,
)
from trainlab.instruments.probe_channels import Channel, Channels, ClosedPeriod, Seen
from trainlab.instruments.probe_targets import (
    SLOPES,
    Selector,
    main_tensor,
    no_match,
    no_parameter,
    parameters_reached,
)
from trainlab.record.schema import Note, note
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import ParameterIds, Phase
from trainlab.train.opaque import opaque_names
from trainlab.words import Words

MAX_PENDING = 4096
"""Results on the device that wait for the host."""
GRACE_STEPS = 20
"""A function may be called in some steps only; after so many without it a selector is a mistake."""
WhySilent = Literal[
    "no_tensor",
    "no_gradient_out",
    "no_gradient_in",
    "cut_off",
    "never_arrived",
    "other_output",
    "no_parameter_gradient",
]
"""Why a probe does not fire; the sentences are `silent_…` in `trainlab.words`."""
NEVER_ARRIVED: WhySilent = "never_arrived"


class ProbedCalls(CallListener):
    """Reads what chosen calls take and give, forward and backward."""

    def __init__(
        self,
        model: nn.Module,
        specs: Sequence[ProbeSpec],
        channels: Channels,
        constants: frozenset[int] | None = None,
    ) -> None:
        """`constants`: ids of what the model's parameters and buffers are, where not themselves."""
        self._channels = channels
        self._selectors = {spec: [Selector(text) for text in spec.select] for spec in specs}
        self._modules = {
            name or type(module).__name__: types_of(module)
            for name, module in model.named_modules()
        }
        self._wanted: dict[tuple[str, tuple[str, ...]], list[ProbeSpec]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        """Every call that was seen, with its types: for hints in error messages."""
        self._gathering: list[_Gathered] = []
        self._several: set[Channel] = set()
        """Of layers that give several tensors: the model may use another than the first."""
        self._places: dict[tuple[str, int], int] = {}
        self._constants = constants_of(model) if constants is None else constants
        self._opaque = opaque_names(model)
        self.watch = CallWatch(model, self)

    def phase_ends(self, phase: Phase) -> None:
        if phase == "loss":
            self.watch.stop_watching()
        elif phase == "backward":
            # Of an update with several passes, the gradients of some calls come with a later one.
            self._gathering = [one for one in self._gathering if not one.finish()]

    def step_begins(self) -> None:
        """What gradients an earlier step has not given will not come."""
        self._gathering.clear()

    def wants(self, name: str, types: tuple[str, ...]) -> bool:
        key = (name, types)
        if key not in self._wanted:
            self._names[name] = types
            self._wanted[key] = [
                spec
                for spec, selectors in self._selectors.items()
                if any(selector.reaches(name, types) for selector in selectors)
            ]
        return bool(self._wanted[key])

    def call_begins(self, call: WatchedCall, arguments: Any) -> EndListener:
        specs = [
            spec
            for spec in self._wanted[call.name, call.types]
            if any(s.reaches(call.name, call.types, call.number) for s in self._selectors[spec])
        ]
        if not specs:  # counts in the numbering but is not probed itself
            return lambda returned, keywords: any(True for _ in tensors_in(returned))
        place = self._places.setdefault((call.name, call.number), len(self._places))
        taken = list(tensors_in(arguments))
        with torch._C.DisableTorchFunction():  # what a probe computes is no call of the model
            channels = [
                self._channels.at(spec, call.name, call.number, call.types, call.kind, place)
                for spec in specs
            ]
            given = self._main(taken, self._constants)
            before = [t for t in channels if t.spec.quantity == "pre_activation"] if taken else []
            for channel in before:
                self._take(channel, given)
            rest = [channel for channel in channels if channel not in before]
            return self._end_listener(call, rest, given)

    def restore(self, layer: str, call: int, place: int) -> None:
        """A place in the model that came up in an earlier attempt."""
        self._places[layer, call] = place

    def check(self, last_chance: bool) -> bool:
        """Whether every selector has been seen to work; raises for one that cannot."""
        asked = [(spec, one) for spec, group in self._selectors.items() for one in group]
        worked = [self._works(spec, selector, last_chance) for spec, selector in asked]
        if not all(worked):
            return False
        channels = [channel for spec in self._selectors for channel in self._channels.of(spec)]
        are_modules = all(c.kind == "module" and c.layer in self._modules for c in channels)
        if are_modules and not any(selector.is_glob for _, selector in asked):
            self.watch.watch_modules_only()
        return True

    def check_known(self) -> None:
        """After a step: raises for the first selector that reaches neither a layer nor any call so far."""
        known = {**self._modules, **self._names}
        for spec, selectors in self._selectors.items():
            for selector in selectors:
                if not any(selector.reaches(name, types) for name, types in known.items()):
                    raise self._unknown(spec, selector)

    def silent(self) -> list[Note]:
        """What did not fire although others that the same selector reaches did."""
        return [
            note(
                "probe_silent",
                probe=str(spec),
                layer=channel.name,
                why=channel.why_not
                or ("other_output" if channel in self._several else NEVER_ARRIVED),
            )
            for spec in self._selectors
            for channel in self._channels.of(spec)
            if not channel.num_fired
        ]

    def _works(self, spec: ProbeSpec, selector: Selector, last_chance: bool) -> bool:
        reached = [
            channel
            for channel in self._channels.of(spec)
            if selector.reaches(channel.layer, channel.types, channel.call)
        ]
        if not reached and not last_chance:
            return False
        if not reached:
            if not any(selector.reaches(name, types) for name, types in self._modules.items()):
                raise self._unknown(spec, selector)
            rule = "does forward() use it?"
            if self._opaque:
                inside = f"what is inside {', '.join(self._opaque)}, compiled or scripted"
                rule = f"{inside}, cannot be seen; probe it as a whole"
            raise SpecError(
                [f"probe {spec}: {selector.text!r} was never called while training; {rule}"]
            )
        if any(channel.num_fired for channel in reached):
            return True
        why = next((channel.why_not for channel in reached if channel.why_not), None)
        if why is None and not last_chance:
            return False
        if why is None and all(channel in self._several for channel in reached):
            return True  # no mistake of who asked: it is noted
        why_text = Words("en")(f"silent_{why or NEVER_ARRIVED}")
        raise SpecError([f"probe {spec}: never fired at {reached[0].name}: {why_text}"])

    def _unknown(self, spec: ProbeSpec, selector: Selector) -> SpecError:
        known = {**self._modules, **self._names}
        types = [types[0] for types in known.values() if types]
        return no_match(str(spec), selector, known, types, "layer")

    def _main(
        self, tensors: Iterable[Tensor], constants: frozenset[int] = frozenset()
    ) -> Seen | None:
        """The tensor that a call is about."""
        seen = [self._channels.seen(tensor) for tensor in tensors]
        main = main_tensor((one.tensor for one in seen), constants)
        return next((one for one in seen if one.tensor is main), None)

    def _end_listener(
        self, call: WatchedCall, channels: Sequence[Channel], given: Seen | None
    ) -> EndListener:
        # Read before the call: one that works in place moves its input to another node of the graph. The
        # number of the next node tells apart what the call adds to the graph.
        edge = None if given is None else _edge_of(given.tensor)
        since = int(torch._C._autograd._get_sequence_nr())

        def ends(returned: Any, keywords: Any) -> bool:
            made = list(tensors_in(returned))
            if not made:
                self._forget(call)
                return False
            with torch._C.DisableTorchFunction():
                result, named = self._main(made), self._main(tensors_in(keywords), self._constants)
                taken, source = given, edge
                if taken is None and named is not None:
                    taken, source = named, _edge_of(named.tensor)
                for channel in channels:
                    quantity = channel.spec.quantity
                    if quantity == "grad_input":
                        raw = [self._channels.seen(tensor).tensor for tensor in made]
                        lane_dim = taken.lane_dim if taken else None
                        self._watch_input(channel, raw, source, lane_dim, since)
                    elif quantity == "grad_output":
                        self._watch_output(channel, result)
                        if len(made) > 1:
                            self._several.add(channel)
                    elif quantity == "pre_activation":
                        self._take(channel, named)
                    elif quantity == "local_grad" and not channel.by_count:
                        slope = _slope_of(channel)
                        with torch.no_grad():
                            own = result and result._replace(tensor=slope(result.tensor.detach()))
                        self._take(channel, own)
                    else:
                        self._take(channel, result)
            return True

        return ends

    def _forget(self, call: WatchedCall) -> None:
        """A call that makes no tensor (`size`, say) is none in the layer record, and none here."""
        for spec in self._wanted[call.name, call.types]:
            self._channels.forget(spec, call.name)
        self._wanted[call.name, call.types] = []
        self._names.pop(call.name, None)

    def _take(self, channel: Channel, seen: Seen | None) -> None:
        if seen is None:
            _explain(channel, "no_tensor")
            return
        self._channels.find_units(channel, seen.tensor)
        self._channels.take(channel, seen.tensor, seen.lane_dim)

    def _watch_output(self, channel: Channel, result: Seen | None) -> None:
        if result is None or result.tensor.grad_fn is None:
            _explain(channel, "no_tensor" if result is None else "no_gradient_out")
            return
        place, lane_dim, take = result.tensor.output_nr, result.lane_dim, self._channels.take

        def arrives(gradients: tuple[Tensor | None, ...]) -> None:
            if (gradient := gradients[place]) is not None:
                take(channel, gradient, lane_dim)

        result.tensor.grad_fn.register_prehook(arrives)

    def _watch_input(
        self,
        channel: Channel,
        made: Sequence[Tensor],
        source: tuple[Any, int] | None,
        lane_dim: int | None,
        since: int,
    ) -> None:
        """`source`: where the input's gradient goes; `since`: the number of the call's first node."""
        if source is None or not any(tensor.requires_grad for tensor in made):
            _explain(channel, "no_gradient_in" if source is None else "no_gradient_out")
            return
        same = [t for t in made if t.grad_fn is source[0] and t.output_nr == source[1]]
        if same:
            # The layer handed its input on: one tensor, one gradient.
            self._watch_output(channel, Seen(same[0], lane_dim))
            return
        nodes = list(_edges_into(made, since, source))
        if not nodes:
            _explain(channel, "cut_off")
            return
        take = self._channels.take
        num_parts = sum(len(places) for _, places in nodes)
        gathered = _Gathered(num_parts, lambda total: take(channel, total, lane_dim))
        self._gathering.append(gathered)
        for node, places in nodes:

            def add(
                inputs: tuple[Tensor | None, ...], outputs: Any, places: Sequence[int] = places
            ) -> None:
                for place in places:
                    gathered.add(inputs[place])

            node.register_hook(add)


class _Gathered:
    """The gradient of one input, added up from the parts that several nodes hand to it."""

    def __init__(self, num_parts: int, done: Callable[[Tensor], None]) -> None:
        self._num_parts = self._num_missing = num_parts
        self._done = done
        self._sum: Tensor | None = None
        self._is_done = False

    def add(self, part: Tensor | None) -> None:
        """One part, or none where a node had nothing to give."""
        self._num_missing -= 1
        if part is not None:
            self._sum = part if self._sum is None else self._sum + part
        if self._num_missing == 0:
            self.finish()

    def finish(self) -> bool:
        """What has come is all that this pass gives; whether anything has, by now or before."""
        self._is_done = self._num_missing < self._num_parts or self._is_done
        total, self._sum, self._num_missing = self._sum, None, self._num_parts
        if total is not None:
            self._done(total)
        return self._is_done


def _explain(channel: Channel, why: WhySilent) -> None:
    """Notes why the channel does not fire, unless it has fired before."""
    if not channel.num_fired:
        channel.why_not = why


def _slope_of(channel: Channel) -> Callable[[Tensor], Tensor]:
    """A layer's own derivative as a function of its output; SpecError where none is known."""
    named = [name.lower().rstrip("_") for name in channel.types]
    for name in named:
        if name in SLOPES:
            return SLOPES[name]
    raise SpecError(
        [
            f"probe {channel.spec}: local_grad of {named[0]} is not known; it is for "
            f"{', '.join(SLOPES)}; probe grad_input for the gradient that flows through"
        ]
    )


def _edge_of(tensor: Tensor) -> tuple[Any, int] | None:
    """Where the gradient of a tensor goes: a node of the graph and the place in it."""
    if not tensor.requires_grad:
        return None
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _edges_into(outputs: Iterable[Tensor], since: int, target: tuple[Any, int]) -> Iterator[Any]:
    """Nodes made since then that hand gradients to the target, each with the places it does so."""
    pending, seen = [output.grad_fn for output in outputs], set()
    while pending:
        node: Any = pending.pop()
        if node is None or node in seen or type(node).__name__ == "AccumulateGrad":
            continue
        seen.add(node)
        if node._sequence_nr() < since:
            continue
        following = node.next_functions
        if places := [n for n, edge in enumerate(following) if tuple(edge) == target]:
            yield node, places
        pending += [next_node for next_node, _ in following]


class ProbedParameters:
    """Reads weights, their gradients and updates when a step has made them."""

    def __init__(
        self,
        model: nn.Module,
        specs: Sequence[ProbeSpec],
        channels: Channels,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> None:
        """`tensors`: what the model's parameters are, by name, where not themselves."""
        self._all = channels
        self._channels: dict[ProbeSpec, list[tuple[Channel, Tensor]]] = {}
        # A scripted model has no `get_submodule`.
        modules = dict(model.named_modules(remove_duplicate=False))
        for spec in specs:
            parameters, missed = parameters_reached(model, spec)
            if missed:
                raise no_parameter(model, spec, missed[0])
            self._channels[spec] = []
            for place, (name, parameter) in enumerate(parameters.items()):
                if parameter.is_complex():
                    problem = "is complex, which cannot be probed; name others"
                    raise SpecError([f"probe {spec}: {name} {problem}"])
                channel = channels.at(spec, name, 1, ("parameter",), "parameter", place)
                channel.owner = types_of(modules[name.rpartition(".")[0]])[0]
                own = parameter if tensors is None else tensors[name]
                self._channels[spec].append((channel, own))
        self._before: list[tuple[Channel, Tensor, Tensor]] = []
        self._versions: dict[int, int] = {}
        """Of the step, those whose gradients were not read: how often each had been changed before it."""

    def step_begins(self) -> None:
        """No gradient of the step has been read."""
        self._versions = {id(one): one._version for _, one in self._of("grad")}

    def gradients_ready(
        self, which: ParameterIds = None, *, gradients: Mapping[str, Tensor] | None = None
    ) -> None:
        """`gradients`: by name, where the parameters do not hold them themselves."""
        for channel, parameter in self._of("grad", which):
            own = parameter.grad if gradients is None else gradients.get(channel.layer)
            self._take_gradient(channel, own)
            self._versions.pop(id(parameter), None)

    def step_ends(self) -> None:
        """An update of the user's own may change parameters by hand: no optimizer has told of them."""
        for channel, parameter in self._of("grad"):
            if self._versions.get(id(parameter), parameter._version) != parameter._version:
                self._take_gradient(channel, parameter.grad)

    def update_begins(self, which: ParameterIds = None) -> None:
        """Holds the parameters as they are while the optimizer runs."""
        self._before = [
            (channel, parameter, parameter.detach().clone())
            for channel, parameter in self._of("update", which)
        ]

    def update_ends(self) -> None:
        """The parameters have been updated."""
        for channel, parameter, before in self._before:
            self._take(channel, before.neg_().add_(parameter.detach()))
        self._before = []

    def read_weights(self, spec: ProbeSpec) -> None:
        """The weights as they stand: the end of a period."""
        for channel, parameter in self._channels[spec]:
            self._take(channel, parameter)

    def check(self) -> None:
        """After an epoch: a probe none of whose parameters got a gradient is a mistake."""
        for spec, probed in self._channels.items():
            if spec.quantity == "grad" and not any(channel.num_fired for channel, _ in probed):
                why = "none of these parameters ever got a gradient; are they frozen or unused?"
                raise SpecError([f"probe {spec}: never fired: {why}"])

    def _of(self, quantity: str, which: ParameterIds = None) -> Iterator[tuple[Channel, Tensor]]:
        for spec, probed in self._channels.items():
            if spec.quantity == quantity:
                yield from (one for one in probed if which is None or id(one[1]) in which)

    def _take(self, channel: Channel, values: Tensor) -> None:
        self._all.take(channel, values, self._all.parameter_dim)

    def _take_gradient(self, channel: Channel, gradient: Tensor | None) -> None:
        if gradient is None:
            _explain(channel, "no_parameter_gradient")
        elif gradient.layout != torch.strided:
            problem = "has a sparse gradient, which cannot be probed; use sparse=False"
            raise SpecError([f"probe {channel.spec}: {channel.layer} {problem}"])
        else:
            self._take(channel, gradient)


class Periods:
    """Over how many updates each probe is reduced, of a trial or of trials that are updated together; and
    what its channels have when a period ends."""

    def __init__(
        self,
        specs: Sequence[ProbeSpec],
        channels: Channels,
        parameters: ProbedParameters,
        calls: ProbedCalls | None,
    ) -> None:
        self.epoch = self.step = 0
        self.closed: list[ClosedPeriod] = []
        """Results on the device that wait for the host."""
        self._channels, self._parameters, self._calls = channels, parameters, calls
        self._num_steps: dict[ProbeSpec, int] = dict.fromkeys(specs, 0)
        self._checked = calls is None

    @property
    def steps_ahead(self) -> int | None:
        """Updates until the next period ends; None where none does before the epoch."""
        lengths = {spec: _length(spec) for spec in self._num_steps}
        left = [length - self._num_steps[spec] for spec, length in lengths.items() if length]
        return min(left, default=None)

    def steps_done(self, step: int, num_steps: int) -> None:
        """So many further updates, the last of them that step; no period ends before it."""
        self.step = step
        for spec in self._num_steps:
            self._num_steps[spec] += num_steps
            if self._num_steps[spec] == _length(spec):
                self._close(spec)
        if not self._checked and self._calls is not None:
            self._checked = self._calls.check(step >= GRACE_STEPS)

    def epoch_ends(self) -> None:
        """Raises where a probe has never fired; closes the epoch's periods."""
        if self._calls is not None and self.epoch == 1:
            self._calls.check(last_chance=True)
        self._parameters.check()
        for spec, num_steps in self._num_steps.items():
            if spec.every == "epoch" and num_steps:
                self._close(spec)

    def go_on(self) -> None:
        """After an earlier attempt, which may have seen every selector work."""
        self._checked = self._calls is None or self._calls.check(last_chance=False)

    def close_open(self) -> None:
        """A period that the trial ended in, diverged or interrupted, is recorded with its steps."""
        for spec, _ in self.open():
            self._close(spec)

    def open(self) -> list[tuple[ProbeSpec, int]]:
        """The probes that are in a period, and its updates so far."""
        return [(spec, steps) for spec, steps in self._num_steps.items() if steps]

    def take_closed(self) -> list[ClosedPeriod]:
        """What has closed since it was last taken."""
        closed, self.closed = self.closed, []
        return closed

    def _close(self, spec: ProbeSpec) -> None:
        if spec.quantity == "weight":
            self._parameters.read_weights(spec)
        num_steps, self._num_steps[spec] = self._num_steps[spec], 0
        for channel in self._channels.of(spec):
            if (closed := channel.close(self.epoch, self.step, num_steps)) is not None:
                self.closed.append(closed)


def _length(spec: ProbeSpec) -> int | None:
    """The updates of a period; None: those of an epoch."""
    return 1 if spec.every == "step" else None if spec.every == "epoch" else spec.every
