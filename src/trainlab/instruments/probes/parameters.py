"""Probes of parameters: weights, their gradients and the updates made to them."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from trainlab.errors import SpecError
from trainlab.instruments.calls import types_of
from trainlab.instruments.probes.channels import Channel, Channels
from trainlab.instruments.probes.quantities import NO_PARAMETER_GRADIENT
from trainlab.instruments.probes.selectors import Selector, no_match, parameters_reached
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import ParameterIds


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
        for spec in specs:
            selectors = [Selector(text) for text in spec.select]
            parameters, missed = parameters_reached(model, selectors)
            if missed:
                names = [name for name, _ in model.named_parameters()]
                names += [name for name, module in model.named_modules() if name]
                types = [types_of(module)[0] for module in model.modules()]
                raise no_match(str(spec), missed[0], names, types, "parameter")
            for name, parameter in parameters.items():
                if parameter.is_complex():
                    problem = "is complex, which cannot be probed; name others"
                    raise SpecError([f"probe {spec}: {name} {problem}"])
            self._channels[spec] = [
                (
                    self._channel(model, spec, name, place),
                    parameter if tensors is None else tensors[name],
                )
                for place, (name, parameter) in enumerate(parameters.items())
            ]
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
            self._all.take(channel, before.neg_().add_(parameter.detach()))
        self._before = []

    def read_weights(self, spec: ProbeSpec) -> None:
        """The weights as they stand: the end of a period."""
        for channel, parameter in self._channels[spec]:
            self._all.take(channel, parameter)

    def check(self) -> None:
        """After an epoch: a probe none of whose parameters got a gradient is a mistake."""
        for spec, probed in self._channels.items():
            if spec.quantity == "grad" and not any(channel.num_fired for channel, _ in probed):
                why = "none of these parameters ever got a gradient; are they frozen or unused?"
                raise SpecError([f"probe {spec}: never fired: {why}"])

    def _channel(self, model: nn.Module, spec: ProbeSpec, name: str, place: int) -> Channel:
        channel = self._all.at(spec, name, 1, ("parameter",), "parameter", place)
        # A scripted model has no `get_submodule`.
        modules = dict(model.named_modules(remove_duplicate=False))
        channel.owner = types_of(modules[name.rpartition(".")[0]])[0]
        return channel

    def _of(self, quantity: str, which: ParameterIds = None) -> Iterator[tuple[Channel, Tensor]]:
        for spec, probed in self._channels.items():
            if spec.quantity == quantity:
                yield from (one for one in probed if which is None or id(one[1]) in which)

    def _take_gradient(self, channel: Channel, gradient: Tensor | None) -> None:
        if gradient is None:
            if not channel.num_fired:
                channel.why_not = NO_PARAMETER_GRADIENT
        elif gradient.layout != torch.strided:
            problem = "has a sparse gradient, which cannot be probed; use sparse=False"
            raise SpecError([f"probe {channel.spec}: {channel.layer} {problem}"])
        else:
            self._all.take(channel, gradient)
