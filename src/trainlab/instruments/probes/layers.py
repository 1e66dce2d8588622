"""Probes of calls: what chosen layers take and give, forward and backward.

Gradients are read at the nodes of the autograd graph that the layer made. Nothing is added to the
graph, so neither the losses nor in-place layers are disturbed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainlab.errors import SpecError
from trainlab.instruments.calls.flow import constants_of, tensors_in
from trainlab.instruments.calls.listener import CallListener, EndListener, WatchedCall
from trainlab.instruments.calls.watch import CallWatch, types_of
from trainlab.instruments.probes import quantities as q
from trainlab.instruments.probes.channels import Target, Targets
from trainlab.instruments.probes.selectors import Selector, no_match
from trainlab.spec.probe import ProbeSpec
from trainlab.train.moments import Phase


class ProbedCalls(CallListener):
    """Reads what chosen calls take and give, forward and backward."""

    def __init__(self, model: nn.Module, specs: Sequence[ProbeSpec], targets: Targets) -> None:
        self._targets = targets
        self._selectors = {spec: [Selector(text) for text in spec.select] for spec in specs}
        self._modules = {
            name or type(module).__name__: types_of(module)
            for name, module in model.named_modules()
        }
        self._wanted: dict[tuple[str, tuple[str, ...]], list[ProbeSpec]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        """Every call that was seen, with its types: for hints in error messages."""
        self._gathering: list[q.Gathered] = []
        self._places: dict[tuple[str, int], int] = {}
        self._constants = constants_of(model)
        self.watch = CallWatch(model, self)

    def phase_ends(self, phase: Phase) -> None:
        if phase == "zero_grad":
            self.watch.start_watching()
        elif phase == "loss":
            self.watch.stop_watching()
        elif phase == "backward":
            for gathered in self._gathering:
                gathered.finish()
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
            targets = [
                self._targets.at(spec, call.name, call.number, call.types, call.kind, place)
                for spec in specs
            ]
            given = q.main_tensor(taken, self._constants)
            before = [t for t in targets if t.spec.quantity == "pre_activation"] if taken else []
            for target in before:
                self._take(target, given)
            rest = [target for target in targets if target not in before]
            return self._end_listener(call, rest, given)

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

    def silent(self) -> list[str]:
        """What did not fire although others that the same selector reaches did."""
        return [
            f"probe {target.spec}: {target.name} never fired: {target.why_not or q.NEVER_ARRIVED}"
            for spec in self._selectors
            for target in self._targets.of(spec)
            if not target.num_fired
        ]

    def _works(self, spec: ProbeSpec, selector: Selector, last_chance: bool) -> bool:
        reached = [
            target
            for target in self._targets.of(spec)
            if selector.reaches(target.layer, target.types, target.call)
        ]
        if not reached:
            known = any(selector.reaches(name, types) for name, types in self._modules.items())
            if last_chance and known:
                problem = f"{selector.text!r} was never called while training"
                raise SpecError([f"probe {spec}: {problem}; does forward() use it?"])
            if last_chance:
                raise self._unknown(spec, selector)
            return False
        if any(target.num_fired for target in reached):
            return True
        why = next((target.why_not for target in reached if target.why_not), None)
        if why is None and not last_chance:
            return False
        why = why or q.NEVER_ARRIVED
        raise SpecError([f"probe {spec}: never fired at {reached[0].name}: {why}"])

    def _unknown(self, spec: ProbeSpec, selector: Selector) -> SpecError:
        known = {**self._modules, **self._names}
        types = [one for types in known.values() for one in types[:1]]
        return no_match(str(spec), selector, known, types, "layer")

    def _all_are_modules(self) -> bool:
        """Whether modules are all that was meant: then functions need not be watched."""
        found = [target for spec in self._selectors for target in self._targets.of(spec)]
        selectors = [one for group in self._selectors.values() for one in group]
        return not any(one.is_glob for one in selectors) and all(
            target.kind == "module" and target.layer in self._modules for target in found
        )

    def _end_listener(
        self, call: WatchedCall, targets: Sequence[Target], given: Tensor | None
    ) -> EndListener:
        # Read before the call: one that works in place moves its input to another node of the graph.
        edge = None if given is None else q.edge_of(given)
        since = q.next_number()

        def ends(returned: Any, keywords: Any) -> bool:
            made = list(tensors_in(returned))
            if not made:
                self._forget(call)
                return False
            with torch._C.DisableTorchFunction():
                result, source = q.main_tensor(made), edge
                named = q.main_tensor(tensors_in(keywords), self._constants)
                if given is None and named is not None:
                    source = q.edge_of(named)
                for target in targets:
                    quantity = target.spec.quantity
                    if quantity == "grad_input":
                        self._watch_input(target, made, since, source)
                    elif quantity == "grad_output":
                        self._watch_output(target, result)
                    elif quantity == "pre_activation":
                        self._take(target, named)
                    elif quantity == "local_grad" and not target.by_count:
                        self._take_slope(target, result)
                    else:
                        self._take(target, result)
            return True

        return ends

    def _forget(self, call: WatchedCall) -> None:
        """A call that makes no tensor (`size`, say) is none in the layer record, and none here."""
        for spec in self._wanted[call.name, call.types]:
            self._targets.forget(spec, call.name)
        self._wanted[call.name, call.types] = []
        self._names.pop(call.name, None)

    def _take(self, target: Target, values: Tensor | None) -> None:
        if values is not None:
            self._targets.take(target, values)
        elif not target.num_fired:
            target.why_not = q.NO_TENSOR

    def _take_slope(self, target: Target, result: Tensor | None) -> None:
        slope = q.slope_of(target.spec, target.types)
        if result is not None:
            with torch.no_grad():
                result = slope(result.detach())
        self._take(target, result)

    def _watch_output(self, target: Target, result: Tensor | None) -> None:
        if result is None or result.grad_fn is None:
            self._explain(target, q.NO_TENSOR if result is None else q.NO_GRADIENT_OUT)
            return
        place, take = result.output_nr, self._targets.take

        def arrives(gradients: tuple[Tensor | None, ...]) -> None:
            if (gradient := gradients[place]) is not None:
                take(target, gradient)

        result.grad_fn.register_prehook(arrives)

    def _watch_input(
        self, target: Target, made: Sequence[Tensor], since: int, source: tuple[Any, int] | None
    ) -> None:
        if source is None:
            self._explain(target, q.NO_GRADIENT_IN)
            return
        if not any(tensor.requires_grad for tensor in made):
            self._explain(target, q.NO_GRADIENT_OUT)
            return
        same = [t for t in made if t.grad_fn is source[0] and t.output_nr == source[1]]
        if same:
            # The layer handed its input on: one tensor, one gradient.
            self._watch_output(target, same[0])
            return
        nodes = list(q.edges_into(made, since, source))
        if not nodes:
            self._explain(target, q.CUT_OFF)
            return
        gathered = q.Gathered(
            sum(len(places) for _, places in nodes), lambda sum_: self._targets.take(target, sum_)
        )
        self._gathering.append(gathered)
        for node, places in nodes:
            node.register_hook(_adding_to(gathered, places))

    def _explain(self, target: Target, why: str) -> None:
        """Notes why the target does not fire, unless it has fired before."""
        if not target.num_fired:
            target.why_not = why


def _made_tensors(returned: Any, keywords: Any) -> bool:
    """Hears of the end of a call that counts in the numbering but is not probed itself."""
    return any(True for _ in tensors_in(returned))


def _adding_to(gathered: q.Gathered, places: Sequence[int]) -> Callable[..., None]:
    """A hook of a node: adds up the gradients that the node gives at these places."""

    def add(inputs: tuple[Tensor | None, ...], outputs: tuple[Tensor | None, ...]) -> None:
        for place in places:
            gathered.add(inputs[place])

    return add
