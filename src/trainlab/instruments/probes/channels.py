"""Channel: one probe at one layer or parameter, with what it has seen so far."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor

from trainlab.instruments.probes.own_reducer import own_reducer
from trainlab.instruments.probes.quantities import counts_positive
from trainlab.instruments.probes.reducers import Reduce, Reduction, reduction_for
from trainlab.record.probe import FiredRecord, HistogramRecord, ProbeRecord, target_name
from trainlab.spec.probe import ProbeSpec
from trainlab.train.moments import TrialView

MOST_SHAPES = 8
"""Distinct shapes that are kept as proof."""

Kind = Literal["module", "function", "parameter"]


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
        device: torch.device,
    ) -> None:
        self.spec, self.layer, self.call, self.kind = spec, layer, call, kind
        self.types, self.place = types, place
        self.owner = ""
        """Of a parameter: the class of the module that holds it."""
        self.num_fired = 0
        self.why_not: str | None = None
        self.by_count = counts_positive(spec, types)
        """A ReLU's derivative is summed by counting its positive outputs."""
        counted = spec.model_copy(update={"reducer": "positive_count"})
        self.reduction: Reduction = reduction_for(counted if self.by_count else spec, own, device)
        self._first_step: int | None = None
        self._last_step: int | None = None
        self._shapes: dict[tuple[int, ...], None] = {}
        self._fired = self._count = 0

    @property
    def name(self) -> str:
        """The layer with its call: `relu`, `relu/2`."""
        return target_name(self.layer, self.call)

    def take(self, values: Tensor, step: int) -> None:
        """Reduces one tensor."""
        self.reduction.add(values)
        self._fired += 1
        self._count += values.numel()
        self.num_fired += 1
        self._first_step = self._first_step or step
        self._last_step = step
        self.why_not = None
        if len(self._shapes) < MOST_SHAPES:
            self._shapes[tuple(values.shape)] = None

    def close(self, epoch: int, step: int, num_steps: int) -> "ClosedPeriod | None":
        """The period's result, still on the device; None where nothing came."""
        if not self._fired:
            return None
        closed = ClosedPeriod(
            self, self.reduction.close(), epoch, step, num_steps, self._fired, self._count
        )
        self._fired = self._count = 0
        return closed

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
            fired=self.num_fired,
            first_step=self._first_step,
            last_step=self._last_step,
            shapes=[list(shape) for shape in self._shapes],
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

    def __init__(self, specs: Sequence[ProbeSpec], view: TrialView) -> None:
        self.step = 0
        self._device = view.device
        self._is_mixed = view.trial.settings.precision == "bf16"
        self._own = {spec: own_reducer(spec) for spec in specs}
        self._by_spec: dict[ProbeSpec, dict[tuple[str, int], Channel]] = {s: {} for s in specs}

    def at(
        self, spec: ProbeSpec, layer: str, call: int, types: Sequence[str], kind: Kind, place: int
    ) -> Channel:
        """The one channel of a probe at a place; made when it first comes up."""
        known = self._by_spec[spec]
        if (layer, call) not in known:
            known[layer, call] = Channel(
                spec, layer, call, types, kind, place, self._own[spec], self._device
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

    def take(self, channel: Channel, values: Tensor) -> None:
        """Reduces a tensor."""
        with torch._C.DisableTorchFunction(), torch.no_grad(), self._full_precision():
            channel.take(values.detach(), self.step)

    def _full_precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self._device.type, enabled=False) if self._is_mixed else nullcontext()


def on_host(closed: Sequence[ClosedPeriod], write: Callable[[ProbeRecord], None]) -> None:
    """Moves all results over at once and writes their lines in order."""
    groups: dict[tuple[torch.device, torch.dtype], list[ClosedPeriod]] = {}
    for period in closed:
        key = period.numbers.device, period.numbers.dtype
        groups.setdefault(key, []).append(period)
    numbers: dict[int, list[float]] = {}
    for group in groups.values():
        row, at = torch.cat([period.numbers for period in group]).tolist(), 0
        for period in group:
            numbers[id(period)] = row[at : at + period.numbers.numel()]
            at += period.numbers.numel()
    for period in closed:
        write(period.record(numbers[id(period)]))


def _not_finite_text(value: float) -> Literal["nan", "inf", "-inf"]:
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"
