"""Channels: each is one probe at one layer or parameter, with what it has seen so far."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch._C import _functorch

from trainlab.errors import SpecError
from trainlab.instruments.reducers import (
    DeadUnits,
    Reduction,
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

SLOPES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda out: (out > 0).to(out.dtype),
    "relu6": lambda out: ((out > 0) & (out < 6)).to(out.dtype),
    "sigmoid": lambda out: out * (1 - out),
    "tanh": lambda out: 1 - out * out,
}
"""The derivative of element-wise layers, from their output: so in-place ones can be asked as well."""


def slope_name(types: Sequence[str]) -> str | None:
    """Which of these a layer has."""
    return next((name for one in types if (name := one.lower().rstrip("_")) in SLOPES), None)


class Seen(NamedTuple):
    """A tensor that a call takes or gives, as it lies in memory."""

    tensor: Tensor
    lane_dim: int | None = None
    """Which of its dimensions is that of the trials; None: it belongs to one trial, or to all alike."""


@dataclass(eq=False)
class Channel:
    """Takes in tensors of one probe at one place; told apart by the layer's name and call."""

    spec: ProbeSpec
    layer: str
    call: int
    types: tuple[str, ...]
    kind: Kind
    place: int
    reduction: Reduction
    owner: str = ""
    """Of a parameter: the class of the module that holds it."""
    slope: Callable[[Tensor], Tensor] | None = None
    """What is reduced in place of the layer's output."""
    fired: int = 0
    first_step: int | None = None
    last_step: int | None = None
    shapes: dict[tuple[int, ...], None] = field(default_factory=dict)
    why_not: str | None = None
    in_period: int = 0
    """Tensors, and the next: elements, of the period."""
    num_elements: int = 0

    @property
    def at(self) -> Place:
        return self.spec, self.layer, self.call

    @property
    def name(self) -> str:
        """The layer with its call: `relu`, `relu/2`."""
        return target_name(self.layer, self.call)

    def fires(self, shape: tuple[int, ...], first_step: int, last_step: int) -> None:
        """A tensor of that shape was reduced in each of these steps."""
        times = last_step - first_step + 1
        self.fired += times
        self.in_period += times
        self.num_elements += times * math.prod(shape)
        self.first_step, self.last_step = self.first_step or first_step, last_step
        if len(self.shapes) < MOST_SHAPES:
            self.shapes[shape] = None
        self.why_not = None

    def explain(self, why: str) -> None:
        """Notes why it does not fire, unless it has fired before."""
        if not self.fired:
            self.why_not = why

    def reset(self) -> None:
        self.reduction.reset()
        self.in_period = self.num_elements = 0

    def proof(self) -> FiredRecord:
        """That it fired, or why it did not."""
        told = vars(self) | {"probe": str(self.spec), "type": self.types[0]}
        return FiredRecord(**told | {"shapes": [list(shape) for shape in self.shapes]})


class Period:
    """What a channel has reduced in a period that is over, or so far: its numbers stay on the device until
    `move_to_host`."""

    def __init__(
        self, channel: Channel, epoch: int, step: int, num_steps: int, lanes: list[int]
    ) -> None:
        """`lanes`: the trials that were in it."""
        self._channel, self._epoch, self._step, self._num_steps = channel, epoch, step, num_steps
        self._fired, self._count = channel.in_period, channel.num_elements
        self.lanes = lanes
        self.numbers = channel.reduction.numbers()
        """A row per trial."""

    def record(self, lane: int) -> ProbeRecord:
        """The line of one trial."""
        spec = self._channel.spec
        row: list[float] = self.numbers[lane].tolist()
        result = self._channel.reduction.read(row, self._count, self._fired)
        value = None if isinstance(result, HistogramRecord) else result
        finite = value is not None and math.isfinite(value)
        return ProbeRecord(
            probe=str(spec),
            layer=self._channel.layer,
            call=self._channel.call,
            quantity=spec.quantity,
            reducer=spec.reducer,
            every=str(spec.every),
            epoch=self._epoch,
            step=self._step,
            num_steps=self._num_steps,
            fired=self._fired,
            count=self._count,
            value=value if finite else None,
            # `nan`, `inf` or `-inf`, as Python spells them.
            not_finite=None if value is None or finite else str(value),  # type: ignore[arg-type]
            histogram=result if isinstance(result, HistogramRecord) else None,
        )


def move_to_host(periods: Sequence[Period]) -> None:
    """Their numbers, all at once: every transfer waits for the device."""
    groups: defaultdict[tuple[torch.device, torch.dtype], list[Period]] = defaultdict(list)
    for period in periods:
        groups[period.numbers.device, period.numbers.dtype].append(period)
    for group in groups.values():
        sizes = [period.numbers.numel() for period in group]
        moved = torch.cat([period.numbers.flatten() for period in group]).cpu()
        for period, row in zip(group, moved.split(sizes), strict=True):
            period.numbers = row.view(period.numbers.shape)


class Channels:
    """All channels of a trial, or of the trials of a program, side by side; reduces what comes, unseen by
    autograd, autocast and other watchers."""

    def __init__(
        self,
        specs: Sequence[ProbeSpec],
        device: torch.device,
        program: ProgramView | None = None,
        earlier: Iterable[FiredRecord] = (),
    ) -> None:
        """`earlier`: what channels saw in the attempt that this one goes on from."""
        self.step = 0
        self.in_step: list[tuple[Channel, tuple[int, ...]]] | None = None
        """In a program's step, what fires is only noted: the host counts it for as many steps as were made
        like that one."""
        self.units: dict[Place, int] = {}
        """Where eager found the units: a vectorised function has another graph."""
        self._device = device
        self._num_lanes = 1 if program is None else program.num_lanes
        self._is_vectorised = program is not None and program.is_vectorised
        self.parameter_dim = None if program is None else 0
        """The dimension of trials in parameters and their gradients."""
        self._own = {spec: own_reducer(spec) for spec in specs}
        self._by_spec: dict[ProbeSpec, dict[tuple[str, int], Channel]] = {s: {} for s in specs}
        self._earlier = {(one.probe, one.layer, one.call): one for one in earlier}
        of_calls = (one for one in self._earlier.values() if one.kind != "parameter")
        self._places = {(one.layer, one.call): one.place for one in of_calls}
        """Of calls, in the order in which they first came up."""
        self.errors: list[Exception] | None = None
        """Where what `take` raises is kept, instead of being raised amid the model."""

    def at(
        self,
        spec: ProbeSpec,
        layer: str,
        call: int,
        types: tuple[str, ...],
        kind: Kind,
        owner: str = "",
    ) -> Channel:
        """The one channel of a probe at a place; made when it first comes up."""
        known = self._by_spec[spec]
        if (layer, call) in known:
            return known[layer, call]
        place = len(known)
        if kind != "parameter":
            place = self._places.setdefault((layer, call), len(self._places))
        slope, asked = None, spec
        if spec.quantity == "local_grad":
            if (name := slope_name(types)) is None:
                problem = f"local_grad of {types[0].lower().rstrip('_')} is not known; it is for "
                remedy = "probe grad_input for the gradient that flows through"
                raise SpecError([f"probe {spec}: {problem}{', '.join(SLOPES)}; {remedy}"])
            slope = SLOPES[name]
            if name == "relu" and spec.reducer in ("sum", "sq_sum"):
                # 1 where the output is positive, else 0: counted, so that it is a whole number.
                slope, asked = None, spec.model_copy(update={"reducer": "positive_count"})
        reduction = reduction_for(asked, self._own[spec])
        channel = Channel(spec, layer, call, types, kind, place, reduction, owner, slope)
        if (before := self._earlier.pop((str(spec), layer, call), None)) is not None:
            for name in ("fired", "first_step", "last_step", "why_not"):
                setattr(channel, name, getattr(before, name))
            channel.shapes = dict.fromkeys(map(tuple, before.shapes))
        known[layer, call] = channel
        return channel

    def forget(self, spec: ProbeSpec, layer: str) -> None:
        """Lets go of what turned out to be no layer."""
        known = self._by_spec[spec]
        self._by_spec[spec] = {key: channel for key, channel in known.items() if key[0] != layer}

    def of(self, spec: ProbeSpec) -> list[Channel]:
        return list(self._by_spec[spec].values())

    def all(self) -> list[Channel]:
        """Those that came up so far."""
        return [channel for known in self._by_spec.values() for channel in known.values()]

    def proof(self) -> list[FiredRecord]:
        """What each saw, here and in earlier attempts."""
        return [*(channel.proof() for channel in self.all()), *self._earlier.values()]

    def seen(self, tensor: Tensor) -> Seen:
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
        try:
            self._take(channel, values, lane_dim)
        except Exception as error:
            if self.errors is None:
                raise
            self.errors.append(error.with_traceback(None))

    def _take(self, channel: Channel, values: Tensor, lane_dim: int | None) -> None:
        kind, reduction = self._device.type, channel.reduction
        if isinstance(reduction, DeadUnits) and reduction.dimension is None:
            if not self._is_vectorised:
                reduction.dimension = unit_dimension(channel.types, values)
            elif channel.at in self.units:
                reduction.dimension = self.units[channel.at]
            else:
                raise Unsuited("not_probed_alike")
        is_cast = torch.is_autocast_enabled(kind)
        with (
            torch._C.DisableTorchFunction(),
            torch.no_grad(),
            torch.autocast(kind, enabled=False) if is_cast else nullcontext(),
        ):
            values = values.detach()
            if channel.slope is not None:
                values = channel.slope(values)
            if lane_dim is None:
                lanes = values.expand(self._num_lanes, *values.shape)
            else:
                lanes = values.movedim(lane_dim, 0)
            shape = tuple(lanes.shape[1:])
            # Sums over no dimension at all would be sums over the trials.
            reduction.add(lanes if shape else lanes.unsqueeze(1))
        if self.in_step is None:
            channel.fires(shape, self.step, self.step)
        else:
            self.in_step.append((channel, shape))
