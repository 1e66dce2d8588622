"""Channel: one probe at one layer or parameter, with what it has seen so far."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from trainlab.instruments.probes.own_reducer import own_reducer
from trainlab.instruments.probes.quantities import counts_positive
from trainlab.instruments.probes.reducers import DeadUnits, Reduce, Reduction, reduction_for
from trainlab.instruments.probes.units import unit_dimension
from trainlab.record.learning_record import FiredRecord, HistogramRecord, ProbeRecord, target_name
from trainlab.spec.probe import ProbeSpec

MOST_SHAPES = 8
"""Distinct shapes that are kept as proof."""

Kind = Literal["module", "function", "parameter"]


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

    def add(self, shape: tuple[int, ...], first_step: int, last_step: int) -> None:
        """Once in each of these steps."""
        times = last_step - first_step + 1
        self.total += times
        self.in_period += times
        self.num_elements += times * math.prod(shape)
        self.first_step = self.first_step or first_step
        self.last_step = last_step
        if len(self.shapes) < MOST_SHAPES:
            self.shapes[shape] = None

    def copy(self) -> "Firings":
        """As they stand."""
        return replace(self, shapes=dict(self.shapes))


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
        reduction_of: Callable[[ProbeSpec], Reduction],
    ) -> None:
        self.spec, self.layer, self.call, self.kind = spec, layer, call, kind
        self.types, self.place = types, place
        self.owner = ""
        """Of a parameter: the class of the module that holds it."""
        self.firings = Firings()
        self.why_not: str | None = None
        self.by_count = counts_positive(spec, types)
        """A ReLU's derivative is summed by counting its positive outputs."""
        counted = spec.model_copy(update={"reducer": "positive_count"})
        self.reduction: Reduction = reduction_of(counted if self.by_count else spec)

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
        self.firings.add(shape, first_step, last_step)
        self.why_not = None

    def close(self, epoch: int, step: int, num_steps: int) -> "ClosedPeriod | None":
        """The period's result, still on the device; None where nothing came."""
        if not self.firings.in_period:
            return None
        closed = self.period(self.reduction.close(), epoch, step, num_steps)
        self.firings.in_period = self.firings.num_elements = 0
        return closed

    def period(self, numbers: Tensor, epoch: int, step: int, num_steps: int) -> "ClosedPeriod":
        """The period so far, with these numbers."""
        fired, count = self.firings.in_period, self.firings.num_elements
        return ClosedPeriod(self, numbers, epoch, step, num_steps, fired, count)

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
        total, first_step, last_step = saved["firings"]
        shapes: dict[tuple[int, ...], None] = dict.fromkeys(map(tuple, saved["shapes"]))
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


class ClosedPeriod:
    """The numbers of one period of a channel, on their way to the record."""

    def __init__(
        self,
        channel: Channel,
        numbers: Tensor,
        epoch: int,
        step: int,
        num_steps: int,
        fired: int,
        count: int,
    ) -> None:
        self.channel, self.numbers = channel, numbers
        self._epoch, self._step, self._num_steps = epoch, step, num_steps
        self._fired, self._count = fired, count

    def record(self, numbers: Sequence[float]) -> ProbeRecord:
        """The line, given the numbers on the host."""
        spec = self.channel.spec
        result = self.channel.reduction.read(numbers, self._count, self._fired)
        value = None if isinstance(result, HistogramRecord) else result
        finite = value is not None and math.isfinite(value)
        return ProbeRecord(
            probe=str(spec),
            layer=self.channel.layer,
            call=self.channel.call,
            quantity=spec.quantity,
            reducer=spec.reducer,
            every=str(spec.every),
            epoch=self._epoch,
            step=self._step,
            num_steps=self._num_steps,
            fired=self._fired,
            count=self._count,
            value=value if finite else None,
            not_finite=None if value is None or finite else _not_finite_text(value),
            histogram=result if isinstance(result, HistogramRecord) else None,
        )


class Channels:
    """All channels of a trial; reduces what comes, unseen by autograd, autocast and other watchers."""

    def __init__(self, specs: Sequence[ProbeSpec], device: torch.device, *, is_mixed: bool) -> None:
        """`is_mixed`: the model runs under autocast."""
        self.step = 0
        self._device, self._is_mixed = device, is_mixed
        self._own = {spec: own_reducer(spec) for spec in specs}
        self._by_spec: dict[ProbeSpec, dict[tuple[str, int], Channel]] = {s: {} for s in specs}

    def at(
        self, spec: ProbeSpec, layer: str, call: int, types: Sequence[str], kind: Kind, place: int
    ) -> Channel:
        """The one channel of a probe at a place; made when it first comes up."""
        known = self._by_spec[spec]
        if (layer, call) not in known:
            own = self._own[spec]
            known[layer, call] = Channel(
                spec, layer, call, types, kind, place, lambda to: self._reduction(to, own)
            )
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
        return Seen(tensor)

    def take(self, channel: Channel, values: Tensor, lane_dim: int | None = 0) -> None:
        """Reduces a tensor; `lane_dim` is its dimension of trials, where there are several."""
        with torch._C.DisableTorchFunction(), torch.no_grad(), self._full_precision():
            channel.reduction.add(values.detach())
        channel.fired(tuple(values.shape), self.step, self.step)

    def find_units(self, channel: Channel, values: Tensor) -> None:
        """Tells a reduction that counts units where they are, by the first tensor that it gets."""
        reduction = channel.reduction
        if isinstance(reduction, DeadUnits) and reduction.dimension is None:
            reduction.dimension = unit_dimension(channel.types, values)

    def _reduction(self, spec: ProbeSpec, own: Reduce | None) -> Reduction:
        return reduction_for(spec, own, self._device)

    def _full_precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self._device.type, enabled=False) if self._is_mixed else nullcontext()


def on_host(closed: Sequence[ClosedPeriod]) -> list[list[float]]:
    """The numbers of each period, all moved over at once."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, period in enumerate(closed):
        key = period.numbers.device, period.numbers.dtype
        groups.setdefault(key, []).append(index)
    numbers: list[list[float]] = [[] for _ in closed]
    for indices in groups.values():
        row, at = torch.cat([closed[index].numbers.reshape(-1) for index in indices]).tolist(), 0
        for index in indices:
            size = closed[index].numbers.numel()
            numbers[index] = row[at : at + size]
            at += size
    return numbers


def _not_finite_text(value: float) -> Literal["nan", "inf", "-inf"]:
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"
