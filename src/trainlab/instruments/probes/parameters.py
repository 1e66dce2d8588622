"""Probes of parameters: weights, their gradients and the updates made to them."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from trainlab.errors import SpecError
from trainlab.instruments.calls.watch import types_of
from trainlab.instruments.probes.channels import Target, Targets
from trainlab.instruments.probes.selectors import Selector, no_match, parameters_reached
from trainlab.spec.probe import ProbeSpec
from trainlab.train.moments import Phase


class ProbedParameters:
    """Reads weights, their gradients and updates at the ends of phases."""

    def __init__(self, model: nn.Module, specs: Sequence[ProbeSpec], targets: Targets) -> None:
        self._all = targets
        self._targets: dict[ProbeSpec, list[tuple[Target, Tensor]]] = {}
        for spec in specs:
            selectors = [Selector(text) for text in spec.select]
            found, missed = parameters_reached(model, selectors)
            if missed:
                names = [name for name, _ in model.named_parameters()]
                names += [name for name, module in model.named_modules() if name]
                types = [one for m in model.modules() for one in types_of(m)[:1]]
                raise no_match(str(spec), missed[0], names, types, "parameter")
            self._targets[spec] = [
                (targets.at(spec, name, 1, ("parameter",), "parameter", place), parameter)
                for place, (name, parameter) in enumerate(found.items())
            ]
        self._before: list[tuple[Target, Tensor, Tensor]] = []

    def phase_ends(self, phase: Phase) -> None:
        if phase == "backward":
            for target, parameter in self._of("grad"):
                self._take_gradient(target, parameter)
            # Held while the optimizer runs, and let go.
            self._before = [
                (target, parameter, parameter.detach().clone())
                for target, parameter in self._of("update")
            ]
        elif self._before:
            for target, parameter, before in self._before:
                self._all.take(target, before.neg_().add_(parameter.detach()))
            self._before = []

    def read_weights(self, spec: ProbeSpec) -> None:
        """The weights as they stand: the end of a period."""
        for target, parameter in self._targets[spec]:
            self._all.take(target, parameter)

    def check(self) -> None:
        """After an epoch: a probe none of whose parameters got a gradient is a mistake."""
        for spec, found in self._targets.items():
            if spec.quantity == "grad" and not any(target.num_fired for target, _ in found):
                why = "none of these parameters ever got a gradient; are they frozen or unused?"
                raise SpecError([f"probe {spec}: never fired: {why}"])

    def _of(self, quantity: str) -> Iterator[tuple[Target, Tensor]]:
        for spec, found in self._targets.items():
            if spec.quantity == quantity:
                yield from found

    def _take_gradient(self, target: Target, parameter: Tensor) -> None:
        if parameter.grad is None:
            if not target.num_fired:
                target.why_not = "it never got a gradient; is it frozen or unused?"
        elif parameter.grad.layout != torch.strided:
            told = "has a sparse gradient, which cannot be probed; use sparse=False"
            raise SpecError([f"probe {target.spec}: {target.layer} {told}"])
        else:
            self._all.take(target, parameter.grad)
