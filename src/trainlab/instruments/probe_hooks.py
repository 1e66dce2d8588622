"""Where probes read: calls of chosen layers, forward and backward, and parameters, by name, glob or type.

Gradients are read at the nodes of the autograd graph that the layer made. Nothing is added to the
graph, so neither the losses nor in-place layers are disturbed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from trainlab.data.nesting import tensors_in
from trainlab.errors import SpecError
from trainlab.instruments.calls import (
    CallWatch,
    EndListener,
    WatchedCall,
    constants_of,
    types_of,
)
from trainlab.instruments.probe_channels import Channel, Channels, Seen
from trainlab.record.schema import Note, note
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import ParameterIds, ProgramView
from trainlab.train.opaque import opaque_names
from trainlab.words import Words

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


MOST_NAMES = 40
"""Of layers in an error line; with a command that lists them all, `MOST_WITH_LIST`."""
MOST_WITH_LIST = 12


class Selector:
    """One selector: a name or glob, perhaps with the number of a call, or a type."""

    def __init__(self, text: str) -> None:
        self.text, self.is_type = text, text.startswith("type=")
        name, _, number = text.rpartition("/")
        self._number = int(number) if name and number.isdigit() and not self.is_type else None
        self.pattern = text.removeprefix("type=") if self._number is None else name
        """What names or types are held against."""
        self.is_glob = any(sign in self.pattern for sign in "*?[")
        """Whether it may reach several names; `*` crosses dots."""

    def reaches(self, name: str, types: Sequence[str], number: int | None = None) -> bool:
        """Whether it reaches a call of that name and type; without a number, any call of it."""
        if self.is_type:
            return any(fnmatchcase(kind, self.pattern) for kind in types)
        if self._number is not None and number is not None and self._number != number:
            return False
        return fnmatchcase(name, self.pattern) if self.is_glob else name == self.pattern


def parameters_reached(
    model: nn.Module, spec: ProbeSpec, **listed: bool
) -> dict[str, nn.Parameter]:
    """Parameters by name, each once, in the order of the model; SpecError for a selector that reaches none.
    One that reaches a layer reaches every parameter in it."""
    named = list(model.named_parameters(remove_duplicate=False))
    modules = [(name, module) for name, module in model.named_modules() if name]
    reached: set[int] = set()
    for selector in map(Selector, spec.select):
        found = {id(one) for name, one in named if selector.reaches(name, ("parameter",))}
        for name, module in modules:
            if selector.reaches(name, types_of(module)):
                found |= {id(one) for one in module.parameters()}
        if not found:
            names = [name for name, _ in (*model.named_parameters(), *modules)]
            types = [types_of(module)[0] for module in model.modules()]
            raise no_match(str(spec), selector, names, types, "parameter", **listed)
        reached |= found
    return {name: one for name, one in model.named_parameters() if id(one) in reached}


def no_match(
    probe: str,
    selector: Selector,
    names: Iterable[str],
    types: Iterable[str],
    what: str,
    *,
    is_listed: bool = False,
) -> SpecError:
    """The error of a selector that reaches no layer, or no parameter, with the nearest that would, and what
    there is; where `trainlab probes` lists that, with the command."""
    known = list(dict.fromkeys(types if selector.is_type else names))
    near = [name for name in known if name.endswith(f".{selector.pattern}")][:3]
    near = near or get_close_matches(selector.pattern, known, n=3, cutoff=0.5)
    if selector.is_type:
        near, known = [f"type={name}" for name in near], [f"type={name}" for name in known]
    most = MOST_WITH_LIST if is_listed else MOST_NAMES
    listed = ", ".join(known[:most]) + (", …" if len(known) > most else "")
    hints = [f"did you mean {' or '.join(near)}?"] if near else []
    if not (near and is_listed):
        hints.append(f"there are {listed or 'none'}")
    if is_listed:
        hints.append("see `trainlab probes WORKLOAD`")
    rule = "reaches no layer" if what == "layer" else "reaches no parameter"
    return SpecError([f"probe {probe}: {selector.text!r} {rule}; {'; '.join(hints)}"])


class ProbedCalls:
    """Reads what chosen calls take and give, forward and backward."""

    def __init__(
        self,
        model: nn.Module,
        specs: Sequence[ProbeSpec],
        channels: Channels,
        program: ProgramView | None = None,
    ) -> None:
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
        self._constants = constants_of(model)
        if program is not None:
            self._constants = frozenset(id(tensor) for tensor in program.constants)
        self._opaque = opaque_names(model)
        only_modules = all(
            not selector.is_glob and any(selector.reaches(*one) for one in self._modules.items())
            for selectors in self._selectors.values()
            for selector in selectors
        )
        self.watch = CallWatch(model, self._call_begins, sees_functions=not only_modules)

    def install(self) -> None:
        if self._selectors:
            self.watch.install()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around model and loss: nothing of ours stays behind in torch, whatever they raise."""
        self.install()
        self.watch.start_watching()
        try:
            yield
        finally:
            self.watch.uninstall()

    def step_begins(self) -> None:
        """What gradients an earlier step has not given will not come."""
        self._gathering.clear()

    def backward_ends(self) -> None:
        """Of an update with several passes, the gradients of some calls come with a later one."""
        self._gathering = [one for one in self._gathering if not one.finish()]

    def _channels_of(self, call: WatchedCall) -> list[Channel] | None:
        """The channels of a call; None where no probe reaches any of its name and type."""
        key = call.name, call.types
        if key not in self._wanted:
            self._names[call.name] = call.types
            self._wanted[key] = [
                spec
                for spec, selectors in self._selectors.items()
                if any(selector.reaches(*key) for selector in selectors)
            ]
        if not self._wanted[key]:
            return None
        return [
            self._channels.at(spec, call.name, call.number, call.types, call.kind)
            for spec in self._wanted[key]
            if any(selector.reaches(*key, call.number) for selector in self._selectors[spec])
        ]

    def _call_begins(self, call: WatchedCall, arguments: Any) -> EndListener | None:
        if (channels := self._channels_of(call)) is None:
            return None
        if not channels:  # counts in the numbering but is not probed itself
            return lambda returned: any(True for _ in tensors_in(returned))
        with torch._C.DisableTorchFunction():  # what a probe computes is no call of the model
            given = self._main(tensors_in(arguments), self._constants)
            for channel in channels:
                if channel.spec.quantity == "pre_activation":
                    self._take(channel, given)
            # Read before the call: one that works in place moves its input to another node of the graph.
            # The number of the next node tells apart what the call adds to the graph.
            source = None
            if given is not None and given.tensor.requires_grad:
                source = get_gradient_edge(given.tensor)[:2]
            since = int(torch._C._autograd._get_sequence_nr())

        def ends(returned: Any) -> bool:
            made = list(tensors_in(returned))
            if not made:
                self._forget(call)
                return False
            with torch._C.DisableTorchFunction():
                self._read_result(channels, made, given, source, since)
            return True

        return ends

    def _read_result(
        self,
        channels: Iterable[Channel],
        made: Sequence[Tensor],
        given: Seen | None,
        source: tuple[Any, int] | None,
        since: int,
    ) -> None:
        """Of a call that took `given` and made these. `source`: where the gradient of what it took goes, a
        node of the graph and the place in it; `since`: the number of the call's first node."""
        result = self._main(made)
        for channel in channels:
            if channel.spec.quantity == "grad_input":
                self._watch_input(channel, made, given, source, since)
            elif channel.spec.quantity == "grad_output":
                if len(made) > 1:
                    channel.explain("other_output")  # until a gradient arrives
                self._watch_output(channel, result)
            elif channel.spec.quantity != "pre_activation":
                self._take(channel, result)

    def check(self, *, is_first_step: bool = False, last_chance: bool = False) -> bool:
        """After a step: whether every selector has been seen to work; SpecError for one that cannot. After
        the first step it must reach a layer, or a call so far; by its last chance it must have fired."""
        has_worked = True
        asked = [(spec, one) for spec, selectors in self._selectors.items() for one in selectors]
        for spec, selector in asked:
            channels = [
                channel
                for channel in self._channels.of(spec)
                if selector.reaches(channel.layer, channel.types, channel.call)
            ]
            if any(channel.fired for channel in channels):
                continue
            if not channels and (is_first_step or last_chance):
                self._check_name(spec, selector, was_never_called=last_chance)
            why = next((channel.why_not for channel in channels if channel.why_not), None)
            if why == "other_output":
                continue  # no mistake of who asked: it is noted
            if channels and (why is not None or last_chance):
                why_text = Words("en")(f"silent_{why or NEVER_ARRIVED}")
                problem = f"never fired at {channels[0].name}: {why_text}"
                raise SpecError([f"probe {spec}: {problem}"])
            has_worked = False
        return has_worked

    def _check_name(self, spec: ProbeSpec, selector: Selector, *, was_never_called: bool) -> None:
        known = {**self._modules, **self._names}
        named = self._modules if was_never_called else known
        if not any(selector.reaches(name, types) for name, types in named.items()):
            types = [types[0] for types in known.values() if types]
            raise no_match(str(spec), selector, known, types, "layer")
        if was_never_called:
            rule = "does forward() use it?"
            if self._opaque:
                inside = f"what is inside {', '.join(self._opaque)}, compiled or scripted"
                rule = f"{inside}, cannot be seen; probe it as a whole"
            problem = f"{selector.text!r} was never called while training; {rule}"
            raise SpecError([f"probe {spec}: {problem}"])

    def silent(self) -> list[Note]:
        """What did not fire although others that the same selector reaches did."""
        notes = []
        for channel in (one for spec in self._selectors for one in self._channels.of(spec)):
            if not channel.fired:
                probe, why = str(channel.spec), channel.why_not or NEVER_ARRIVED
                notes.append(note("probe_silent", probe=probe, layer=channel.name, why=why))
        return notes

    def _main(
        self, tensors: Iterable[Tensor], constants: frozenset[int] = frozenset()
    ) -> Seen | None:
        """The tensor that a call is about: the first of plain floating point, one that is no parameter or
        buffer if there is such a one."""
        usable = [
            seen
            for seen in map(self._channels.seen, tensors)
            if seen.tensor.is_floating_point()
            and not seen.tensor.is_nested
            and seen.tensor.layout == torch.strided
        ]
        moving = [seen for seen in usable if id(seen.tensor) not in constants]
        return next(iter(moving or usable), None)

    def _forget(self, call: WatchedCall) -> None:
        """A call that makes no tensor (`size`, say) is none in the layer record, and none here."""
        for spec in self._wanted[call.name, call.types]:
            self._channels.forget(spec, call.name)
        self._wanted[call.name, call.types] = []
        self._names.pop(call.name, None)

    def _take(self, channel: Channel, seen: Seen | None) -> None:
        if seen is None:
            channel.explain("no_tensor")
        else:
            self._channels.take(channel, seen.tensor, seen.lane_dim)

    def _watch_output(self, channel: Channel, result: Seen | None) -> None:
        if result is None or result.tensor.grad_fn is None:
            channel.explain("no_tensor" if result is None else "no_gradient_out")
        else:
            lane_dim, take = result.lane_dim, self._channels.take
            result.tensor.register_hook(lambda gradient: take(channel, gradient, lane_dim))

    def _watch_input(
        self,
        channel: Channel,
        made: Iterable[Tensor],
        given: Seen | None,
        source: tuple[Any, int] | None,
        since: int,
    ) -> None:
        made = [self._channels.seen(tensor).tensor for tensor in made]
        if given is None or source is None or not any(tensor.requires_grad for tensor in made):
            channel.explain("no_gradient_in" if source is None else "no_gradient_out")
            return
        same = [t for t in made if t.grad_fn is source[0] and t.output_nr == source[1]]
        if same:
            # The layer handed its input on: one tensor, one gradient.
            self._watch_output(channel, Seen(same[0], given.lane_dim))
            return
        nodes = list(_nodes_into(made, since, source))
        if not nodes:
            channel.explain("cut_off")
            return
        lane_dim, take = given.lane_dim, self._channels.take
        num_parts = sum(len(places) for _, places in nodes)
        gathered = _Gathered(num_parts, lambda total: take(channel, total, lane_dim))
        self._gathering.append(gathered)
        for node, places in nodes:
            node.register_hook(partial(gathered.add, places))


class _Gathered:
    """The gradient of one input, added up from the parts that several nodes hand to it."""

    def __init__(self, num_parts: int, done: Callable[[Tensor], None]) -> None:
        self._num_parts = self._num_missing = num_parts
        self._done = done
        self._sum: Tensor | None = None
        self._is_done = False

    def add(self, places: Sequence[int], inputs: Sequence[Tensor | None], outputs: object) -> None:
        """A node's parts, or none where it had nothing to give."""
        for place in places:
            self._num_missing -= 1
            if (part := inputs[place]) is not None:
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


def _nodes_into(outputs: Iterable[Tensor], since: int, target: tuple[Any, int]) -> Iterator[Any]:
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
        program: ProgramView | None = None,
    ) -> None:
        self._specs, self._channels = specs, channels
        self._probed: list[tuple[Channel, Tensor]] = []
        # A scripted model has no `get_submodule`.
        modules = dict(model.named_modules(remove_duplicate=False))
        for spec in specs:
            for name, parameter in parameters_reached(model, spec).items():
                if parameter.is_complex():
                    problem = "is complex, which cannot be probed; name others"
                    raise SpecError([f"probe {spec}: {name} {problem}"])
                owner = types_of(modules[name.rpartition(".")[0]])[0]
                channel = channels.at(spec, name, 1, ("parameter",), "parameter", owner)
                own = parameter if program is None else program.parameters[name]
                self._probed.append((channel, own))
        self._before: list[tuple[Channel, Tensor, Tensor]] = []

    def gradients_ready(
        self, which: ParameterIds = None, *, gradients: Mapping[str, Tensor] | None = None
    ) -> None:
        """`gradients`: by name, where the parameters do not hold them themselves."""
        for channel, parameter in self._of("grad", which):
            own = parameter.grad if gradients is None else gradients.get(channel.layer)
            self._take_gradient(channel, own)

    def update_begins(self, which: ParameterIds = None) -> None:
        """Holds the parameters as they are while the optimizer runs."""
        self._before = [
            (channel, parameter, parameter.detach().clone())
            for channel, parameter in self._of("update", which)
        ]

    def update_ends(self) -> None:
        for channel, parameter, before in self._before:
            self._take(channel, before.neg_().add_(parameter.detach()))
        self._before = []

    def read_weights(self, spec: ProbeSpec) -> None:
        """The weights as they stand: the end of a period."""
        for channel, parameter in self._of("weight"):
            if channel.spec == spec:
                self._take(channel, parameter)

    def check(self) -> None:
        """After an epoch: a probe none of whose parameters got a gradient is a mistake."""
        for spec in self._specs:
            if spec.quantity == "grad" and not any(one.fired for one in self._channels.of(spec)):
                why = "none of these parameters ever got a gradient"
                remedy = "are they frozen, unused, or changed without an optimizer?"
                raise SpecError([f"probe {spec}: never fired: {why}; {remedy}"])

    def _of(self, quantity: str, which: ParameterIds = None) -> Iterator[tuple[Channel, Tensor]]:
        for channel, parameter in self._probed:
            if channel.spec.quantity == quantity and (which is None or id(parameter) in which):
                yield channel, parameter

    def _take(self, channel: Channel, values: Tensor) -> None:
        self._channels.take(channel, values, self._channels.parameter_dim)

    def _take_gradient(self, channel: Channel, gradient: Tensor | None) -> None:
        if gradient is None:
            channel.explain("no_parameter_gradient")
        elif gradient.layout != torch.strided:
            problem = "has a sparse gradient, which cannot be probed; use sparse=False"
            raise SpecError([f"probe {channel.spec}: {channel.layer} {problem}"])
        else:
            self._take(channel, gradient)
