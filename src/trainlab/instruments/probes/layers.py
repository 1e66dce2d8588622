"""Probes of calls: what chosen layers take and give, forward and backward.

Gradients are read at the nodes of the autograd graph that the layer made. Nothing is added to the
graph, so neither the losses nor in-place layers are disturbed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

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
from trainlab.instruments.probes import quantities as q
from trainlab.instruments.probes.channels import Channel, Channels, Seen
from trainlab.instruments.probes.selectors import Selector, no_match
from trainlab.record.schema import Note, note
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import Phase
from trainlab.train.opaque import opaque_names
from trainlab.words import Words


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
        self._gathering: list[q.Gathered] = []
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
        if not specs:
            return _made_tensors
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
        worked = [
            self._works(spec, selector, last_chance)
            for spec, selectors in self._selectors.items()
            for selector in selectors
        ]
        if all(worked) and self._all_are_modules():
            self.watch.watch_modules_only()
        return all(worked)

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
                why=channel.why_not or self._why_silent(channel),
            )
            for spec in self._selectors
            for channel in self._channels.of(spec)
            if not channel.num_fired
        ]

    def _why_silent(self, channel: Channel) -> str:
        return q.OTHER_OUTPUT if channel in self._several else q.NEVER_ARRIVED

    def _works(self, spec: ProbeSpec, selector: Selector, last_chance: bool) -> bool:
        reached = [
            channel
            for channel in self._channels.of(spec)
            if selector.reaches(channel.layer, channel.types, channel.call)
        ]
        if not reached:
            known = any(selector.reaches(name, types) for name, types in self._modules.items())
            if last_chance and known:
                raise self._never_called(spec, selector)
            if last_chance:
                raise self._unknown(spec, selector)
            return False
        if any(channel.num_fired for channel in reached):
            return True
        why = next((channel.why_not for channel in reached if channel.why_not), None)
        if why is None and not last_chance:
            return False
        if why is None and all(channel in self._several for channel in reached):
            return True  # no mistake of who asked: it is noted
        why_text = Words("en")(f"silent_{why or q.NEVER_ARRIVED}")
        raise SpecError([f"probe {spec}: never fired at {reached[0].name}: {why_text}"])

    def _never_called(self, spec: ProbeSpec, selector: Selector) -> SpecError:
        problem = f"{selector.text!r} was never called while training"
        if self._opaque:
            rule = f"what is inside {', '.join(self._opaque)}, compiled or scripted, cannot be seen"
            return SpecError([f"probe {spec}: {problem}; {rule}; probe it as a whole"])
        return SpecError([f"probe {spec}: {problem}; does forward() use it?"])

    def _unknown(self, spec: ProbeSpec, selector: Selector) -> SpecError:
        known = {**self._modules, **self._names}
        types = [types[0] for types in known.values() if types]
        return no_match(str(spec), selector, known, types, "layer")

    def _all_are_modules(self) -> bool:
        """Whether modules are all that was meant: then functions need not be watched."""
        channels = [channel for spec in self._selectors for channel in self._channels.of(spec)]
        selectors = [selector for group in self._selectors.values() for selector in group]
        return not any(selector.is_glob for selector in selectors) and all(
            channel.kind == "module" and channel.layer in self._modules for channel in channels
        )

    def _main(
        self, tensors: Iterable[Tensor], constants: frozenset[int] = frozenset()
    ) -> Seen | None:
        """The tensor that a call is about."""
        seen = [self._channels.seen(tensor) for tensor in tensors]
        main = q.main_tensor((one.tensor for one in seen), constants)
        return next((one for one in seen if one.tensor is main), None)

    def _end_listener(
        self, call: WatchedCall, channels: Sequence[Channel], given: Seen | None
    ) -> EndListener:
        # Read before the call: one that works in place moves its input to another node of the graph.
        edge = None if given is None else q.edge_of(given.tensor)
        since = q.next_number()

        def ends(returned: Any, keywords: Any) -> bool:
            made = list(tensors_in(returned))
            if not made:
                self._forget(call)
                return False
            with torch._C.DisableTorchFunction():
                result, named = self._main(made), self._main(tensors_in(keywords), self._constants)
                taken, source = given, edge
                if taken is None and named is not None:
                    taken, source = named, q.edge_of(named.tensor)
                for channel in channels:
                    quantity = channel.spec.quantity
                    if quantity == "grad_input":
                        raw = [self._channels.seen(tensor).tensor for tensor in made]
                        way = _Way(source, taken.lane_dim if taken else None, since)
                        self._watch_input(channel, raw, way)
                    elif quantity == "grad_output":
                        self._watch_output(channel, result)
                        if len(made) > 1:
                            self._several.add(channel)
                    elif quantity == "pre_activation":
                        self._take(channel, named)
                    elif quantity == "local_grad" and not channel.by_count:
                        self._take_slope(channel, result)
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
        if seen is not None:
            self._channels.find_units(channel, seen.tensor)
            self._channels.take(channel, seen.tensor, seen.lane_dim)
        elif not channel.num_fired:
            channel.why_not = q.NO_TENSOR

    def _take_slope(self, channel: Channel, result: Seen | None) -> None:
        slope = q.slope_of(channel.spec, channel.types)
        if result is not None:
            with torch.no_grad():
                result = result._replace(tensor=slope(result.tensor.detach()))
        self._take(channel, result)

    def _watch_output(self, channel: Channel, result: Seen | None) -> None:
        if result is None or result.tensor.grad_fn is None:
            self._explain(channel, q.NO_TENSOR if result is None else q.NO_GRADIENT_OUT)
            return
        place, lane_dim, take = result.tensor.output_nr, result.lane_dim, self._channels.take

        def arrives(gradients: tuple[Tensor | None, ...]) -> None:
            if (gradient := gradients[place]) is not None:
                take(channel, gradient, lane_dim)

        result.tensor.grad_fn.register_prehook(arrives)

    def _watch_input(self, channel: Channel, made: Sequence[Tensor], way: "_Way") -> None:
        source, take = way.source, self._channels.take
        if source is None:
            self._explain(channel, q.NO_GRADIENT_IN)
            return
        if not any(tensor.requires_grad for tensor in made):
            self._explain(channel, q.NO_GRADIENT_OUT)
            return
        same = [t for t in made if t.grad_fn is source[0] and t.output_nr == source[1]]
        if same:
            # The layer handed its input on: one tensor, one gradient.
            self._watch_output(channel, Seen(same[0], way.lane_dim))
            return
        nodes = list(q.edges_into(made, way.since, source))
        if not nodes:
            self._explain(channel, q.CUT_OFF)
            return
        gathered = q.Gathered(
            sum(len(places) for _, places in nodes),
            lambda sum_: take(channel, sum_, way.lane_dim),
        )
        self._gathering.append(gathered)
        for node, places in nodes:
            node.register_hook(_adding_to(gathered, places))

    def _explain(self, channel: Channel, why: str) -> None:
        """Notes why the channel does not fire, unless it has fired before."""
        if not channel.num_fired:
            channel.why_not = why


class _Way(NamedTuple):
    """How the gradient of a call's input is found."""

    source: tuple[Any, int] | None
    """Where it goes."""
    lane_dim: int | None
    since: int
    """The number of the first node that the call made."""


def _made_tensors(returned: Any, keywords: Any) -> bool:
    """Hears of the end of a call that counts in the numbering but is not probed itself."""
    return any(True for _ in tensors_in(returned))


def _adding_to(gathered: q.Gathered, places: Sequence[int]) -> Callable[..., None]:
    """A hook of a node: adds up the gradients that the node gives at these places."""

    def add(inputs: tuple[Tensor | None, ...], outputs: tuple[Tensor | None, ...]) -> None:
        for place in places:
            gathered.add(inputs[place])

    return add
