"""Channels of many trials: tensors are taken in with the trials first, and firings are counted per step."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._C import _functorch

from trainlab.instruments.probes.channels import Channel, Channels, Seen
from trainlab.instruments.probes.lanes.reducers import (
    LaneDeadUnits,
    LaneReduction,
    lane_reduction_for,
)
from trainlab.instruments.probes.reducers import DeadUnits, Reduce
from trainlab.instruments.probes.units import unit_dimension
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import ProgramView
from trainlab.train.engines.engine import Unsuited

Fired = tuple[Channel, tuple[int, ...]]
"""A channel, and the shape of what it took in of one trial."""
Shapes = dict[tuple[ProbeSpec, str, int], list[tuple[int, ...]]]
"""By probe, layer and call: what was taken in."""


def lanes_can_be_seen() -> bool:
    """Whether this torch shows what a tensor in a vectorised function is in memory."""
    needed = "get_unwrapped", "maybe_get_bdim", "is_batchedtensor", "is_functorch_wrapped_tensor"
    return all(hasattr(_functorch, name) for name in needed)


class LaneChannels(Channels):
    """Reduces each trial's share of what comes. In a step it only notes what fired; the host counts it
    for as many steps as were made like that one."""

    def __init__(self, specs: Sequence[ProbeSpec], view: ProgramView) -> None:
        super().__init__(specs, view.device, is_mixed=view.precision == "bf16")
        self._num_lanes, self._is_vectorised = view.num_lanes, view.is_vectorised
        self._in_step: list[Fired] | None = None
        self._units: dict[tuple[ProbeSpec, str, int], int] = {}

    def begin_step(self) -> list[Fired]:
        """The list that firings of this step go to."""
        self._in_step = []
        return self._in_step

    def end_step(self) -> None:
        """What comes from here on is counted at once."""
        self._in_step = None

    def count(self, fired: Sequence[Fired], num_steps: int) -> None:
        """So many further steps were made in which this fired."""
        known = set(self.all())
        for channel, shape in fired:
            if channel in known:
                channel.fired(shape, self.step - num_steps + 1, self.step)

    def shapes_of_calls(self, fired: Sequence[Fired]) -> Shapes:
        """What fired at calls, to be held against what eager sees."""
        known, shapes = set(self.all()), Shapes()
        for channel, shape in fired:
            if channel in known and channel.kind != "parameter":
                shapes.setdefault((channel.spec, channel.layer, channel.call), []).append(shape)
        return shapes

    def reduction_of(self, channel: Channel) -> LaneReduction:
        """That of all trials."""
        assert isinstance(channel.reduction, LaneReduction)
        return channel.reduction

    def learn_units(self, reference: Channels) -> None:
        """Where eager found the units: a vectorised function has another graph."""
        for channel in reference.all():
            if isinstance(channel.reduction, DeadUnits) and channel.num_fired:
                assert channel.reduction.dimension is not None
                place = channel.spec, channel.layer, channel.call
                self._units[place] = channel.reduction.dimension

    def seen(self, tensor: Tensor) -> Seen:
        if not self._is_vectorised:
            return Seen(tensor)
        lane_dim = _functorch.maybe_get_bdim(tensor)
        raw = _functorch.get_unwrapped(tensor) if lane_dim >= 0 else tensor
        # A vectorised function of the user's own, or a gradient that would be that of all trials together.
        if _functorch.is_functorch_wrapped_tensor(raw) or (lane_dim < 0 and raw.requires_grad):
            raise Unsuited("not_probed_alike")
        return Seen(raw, lane_dim if lane_dim >= 0 else None)

    def take(self, channel: Channel, values: Tensor, lane_dim: int | None = 0) -> None:
        with torch._C.DisableTorchFunction(), torch.no_grad(), self._full_precision():
            values = values.detach()
            if lane_dim is None:
                lanes = values.unsqueeze(0).expand(self._num_lanes, *values.shape)
            else:
                lanes = values.movedim(lane_dim, 0)
            shape = tuple(lanes.shape[1:])
            # Sums over no dimension at all would be sums over the trials.
            channel.reduction.add(lanes if shape else lanes.unsqueeze(1))
        if self._in_step is None:
            channel.fired(shape, self.step, self.step)
        else:
            self._in_step.append((channel, shape))

    def find_units(self, channel: Channel, values: Tensor) -> None:
        reduction = channel.reduction
        if not isinstance(reduction, LaneDeadUnits) or reduction.dimension is not None:
            return
        place = channel.spec, channel.layer, channel.call
        if not self._is_vectorised:
            reduction.dimension = unit_dimension(channel.types, values)
        elif place in self._units:
            reduction.dimension = self._units[place]
        else:
            raise Unsuited("not_probed_alike")

    def _reduction(self, spec: ProbeSpec, own: Reduce | None) -> LaneReduction:
        return lane_reduction_for(spec, own, self._num_lanes, self._device)
