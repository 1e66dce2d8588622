"""Channels: each is one probe at one layer or parameter, with what it has seen so far."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch._C import _functorch

from trainlab.instruments.reducers import (
    DeadUnits,
    Reduce,
    own_reducer,
    reduction_for,
    unit_dimension,
)
from trainlab.record.learning_record import FiredRecord, HistogramRecord, ProbeRecord, target_name
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import ProgramView
from trainlab.train.engines.engine import Unsuited

MOST_SHAPES = 8
"""Distinct shapes that are kept as proof."""

Kind = Literal["module", "function", "parameter"]
Place = tuple[ProbeSpec, str, int]
"""A probe, and a layer with the number of its call."""


class Seen(NamedTuple):
    """A tensor that a call takes or gives, as it lies in memory."""

    tensor: Tensor
    lane_dim: int | None = None
    """Which of its dimensions is that of the trials; None: it belongs to one trial, or to all alike."""


@dataclass
class Firings:
    """How often a channel fired, when, and on what."""

    total: int = 0
    first_step: int | None = None
    last_step: int | None = None
    shapes: dict[tuple[int, ...], None] = field(default_factory=dict)
    in_period: int = 0
    num_elements: int = 0
    """Of the period."""


class Channel:
    """Takes in tensors of one probe at one place; told apart by the layer's name and call."""

    def __init__(
        self,
        spec: ProbeSpec,
        layer: str,
        call: int,
        types: Sequence[str],
        kind: Kind,
        place: int,
        own: Reduce | None,
    ) -> None:
        self.spec, self.layer, self.call, self.kind = spec, layer, call, kind
        self.types, self.place = types, place
        self.owner = ""
        """Of a parameter: the class of the module that holds it."""
        self.firings = Firings()
        self.why_not: str | None = None
        is_sum = spec.quantity == "local_grad" and spec.reducer in ("sum", "sq_sum")
        self.by_count = is_sum and any(name.lower().rstrip("_") == "relu" for name in types)
        """A ReLU's derivative, which is 1 or 0, is summed by counting its positive outputs."""
        counted = spec.model_copy(update={"reducer": "positive_count"})
        self.reduction = reduction_for(counted if self.by_count else spec, own)

    @property
    def name(self) -> str:
        """The layer with its call: `relu`, `relu/2`."""
        return target_name(self.layer, self.call)

    @property
    def num_fired(self) -> int:
        """Tensors that it took in since the start."""
        return self.firings.total

    def fired(self, shape: tuple[int, ...], first_step: int, last_step: int) -> None:
        """A tensor of that shape was reduced in each of these steps."""
        now, times = self.firings, last_step - first_step + 1
        now.total += times
        now.in_period += times
        now.num_elements += times * math.prod(shape)
        now.first_step, now.last_step = now.first_step or first_step, last_step
        if len(now.shapes) < MOST_SHAPES:
            now.shapes[shape] = None
        self.why_not = None

    def close(self, epoch: int, step: int, num_steps: int) -> "ClosedPeriod | None":
        """The period's result, still on the device; None where nothing came."""
        closed = self.so_far(epoch, step, num_steps)
        if closed is not None:
            self.reduction.reset()
            self.firings.in_period = self.firings.num_elements = 0
        return closed

    def so_far(self, epoch: int, step: int, num_steps: int) -> "ClosedPeriod | None":
        """The same of a period that goes on."""
        now = self.firings
        if not now.in_period:
            return None
        numbers = self.reduction.numbers()
        return ClosedPeriod(self, numbers, epoch, step, num_steps, now.in_period, now.num_elements)

    def saved(self) -> dict[str, Any]:
        """What is left of it between two periods, as JSON has it."""
        firings, reduction = self.firings, self.reduction
        return {
            "probe": str(self.spec),
            "at": [self.layer, self.call, list(self.types), self.kind, self.place],
            "firings": [firings.total, firings.first_step, firings.last_step],
            "shapes": [list(shape) for shape in firings.shapes],
            "why_not": self.why_not,
            "dimension": reduction.dimension if isinstance(reduction, DeadUnits) else None,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Takes that over."""
        shapes: dict[tuple[int, ...], None] = dict.fromkeys(map(tuple, saved["shapes"]))
        total, first_step, last_step = saved["firings"]
        self.firings = Firings(total, first_step, last_step, shapes)
        self.why_not = saved["why_not"]
        if isinstance(self.reduction, DeadUnits):
            self.reduction.dimension = saved["dimension"]

    def proof(self) -> FiredRecord:
        """That it fired, or why it did not."""
        return FiredRecord(
            probe=str(self.spec),
            layer=self.layer,
            call=self.call,
            type=self.types[0],
            owner=self.owner,
            kind=self.kind,
            place=self.place,
            fired=self.firings.total,
            first_step=self.firings.first_step,
            last_step=self.firings.last_step,
            shapes=[list(shape) for shape in self.firings.shapes],
            why_not=self.why_not,
        )


@dataclass(frozen=True)
class ClosedPeriod:
    """The numbers of one period of a channel, on their way to the record."""

    channel: Channel
    numbers: Tensor
    """A row per trial."""
    epoch: int
    step: int
    num_steps: int
    fired: int
    count: int

    def record(self, numbers: Sequence[float]) -> ProbeRecord:
        """The line of one trial, given its numbers on the host."""
        spec = self.channel.spec
        result = self.channel.reduction.read(numbers, self.count, self.fired)
        value = None if isinstance(result, HistogramRecord) else result
        finite = value is not None and math.isfinite(value)
        return ProbeRecord(
            probe=str(spec),
            layer=self.channel.layer,
            call=self.channel.call,
            quantity=spec.quantity,
            reducer=spec.reducer,
            every=str(spec.every),
            epoch=self.epoch,
            step=self.step,
            num_steps=self.num_steps,
            fired=self.fired,
            count=self.count,
            value=value if finite else None,
            # `nan`, `inf` or `-inf`, as Python spells them.
            not_finite=None if value is None or finite else str(value),  # type: ignore[arg-type]
            histogram=result if isinstance(result, HistogramRecord) else None,
        )


class Channels:
    """All channels of a trial, or of the trials of a program, side by side; reduces what comes, unseen by
    autograd, autocast and other watchers."""

    def __init__(
        self,
        specs: Sequence[ProbeSpec],
        device: torch.device,
        *,
        is_mixed: bool,
        program: ProgramView | None = None,
    ) -> None:
        """`is_mixed`: the model runs under autocast."""
        self.step = 0
        self.in_step: list[tuple[Channel, tuple[int, ...]]] | None = None
        """In a program's step, what fires is only noted: the host counts it for as many steps as were made
        like that one."""
        self.units: dict[Place, int] = {}
        """Where eager found the units: a vectorised function has another graph."""
        self._device, self._is_mixed = device, is_mixed
        self._num_lanes = 1 if program is None else program.num_lanes
        self._is_vectorised = program is not None and program.is_vectorised
        self.parameter_dim = None if program is None else 0
        """The dimension of trials in parameters and their gradients."""
        self._own = {spec: own_reducer(spec) for spec in specs}
        self._by_spec: dict[ProbeSpec, dict[tuple[str, int], Channel]] = {s: {} for s in specs}

    def at(
        self, spec: ProbeSpec, layer: str, call: int, types: Sequence[str], kind: Kind, place: int
    ) -> Channel:
        """The one channel of a probe at a place; made when it first comes up."""
        known = self._by_spec[spec]
        if (layer, call) not in known:
            known[layer, call] = Channel(spec, layer, call, types, kind, place, self._own[spec])
        return known[layer, call]

    def forget(self, spec: ProbeSpec, layer: str) -> None:
        """Lets go of what turned out to be no layer."""
        known = self._by_spec[spec]
        self._by_spec[spec] = {key: channel for key, channel in known.items() if key[0] != layer}

    def of(self, spec: ProbeSpec) -> list[Channel]:
        """Those of a probe that came up so far."""
        return list(self._by_spec[spec].values())

    def all(self) -> list[Channel]:
        """Those that came up so far."""
        return [channel for spec in self._by_spec for channel in self.of(spec)]

    def seen(self, tensor: Tensor) -> Seen:
        """A tensor of a call, as it lies in memory."""
        if not self._is_vectorised:
            return Seen(tensor)
        lane_dim = _functorch.maybe_get_bdim(tensor)
        raw = _functorch.get_unwrapped(tensor) if lane_dim >= 0 else tensor
        # A vectorised function of the user's own, or a gradient that would be that of all trials together.
        if _functorch.is_functorch_wrapped_tensor(raw) or (lane_dim < 0 and raw.requires_grad):
            raise Unsuited("not_probed_alike")
        return Seen(raw, lane_dim if lane_dim >= 0 else None)

    def take(self, channel: Channel, values: Tensor, lane_dim: int | None) -> None:
        """Reduces a tensor; `lane_dim` is its dimension of trials, None where it has none."""
        autocast = torch.autocast(self._device.type, enabled=False)
        with (
            torch._C.DisableTorchFunction(),
            torch.no_grad(),
            autocast if self._is_mixed else nullcontext(),
        ):
            values = values.detach()
            if lane_dim is None:
                lanes = values.expand(self._num_lanes, *values.shape)
            else:
                lanes = values.movedim(lane_dim, 0)
            shape = tuple(lanes.shape[1:])
            # Sums over no dimension at all would be sums over the trials.
            channel.reduction.add(lanes if shape else lanes.unsqueeze(1))
        if self.in_step is None:
            channel.fired(shape, self.step, self.step)
        else:
            self.in_step.append((channel, shape))

    def find_units(self, channel: Channel, values: Tensor) -> None:
        """Tells a reduction that counts units where they are, by the first tensor that it gets."""
        reduction, place = channel.reduction, (channel.spec, channel.layer, channel.call)
        if not isinstance(reduction, DeadUnits) or reduction.dimension is not None:
            return
        if not self._is_vectorised:
            reduction.dimension = unit_dimension(channel.types, values)
        elif place in self.units:
            reduction.dimension = self.units[place]
        else:
            raise Unsuited("not_probed_alike")


def on_host(closed: Sequence[ClosedPeriod]) -> list[list[list[float]]]:
    """The numbers of each period, a row per trial; all moved over at once."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, period in enumerate(closed):
        key = period.numbers.device, period.numbers.dtype
        groups.setdefault(key, []).append(index)
    numbers: list[list[list[float]]] = [[] for _ in closed]
    for indices in groups.values():
        parts = [closed[index].numbers for index in indices]
        flat = torch.cat([part.reshape(-1) for part in parts]).cpu()
        for index, part in zip(indices, flat.split([part.numel() for part in parts]), strict=True):
            numbers[index] = part.view(closed[index].numbers.shape).tolist()
    return numbers
