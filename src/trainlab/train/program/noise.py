"""Dropout of many trials at once: each draws from its own seed, as it would by itself.

torch's dropout draws for a whole tensor from one generator. So the draws are made before the step, trial
by trial, each from the trial's generator, and the model multiplies by them where it calls dropout.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from trainlab.train.program.unsuited import Unsuited

_WHOLE = {F.dropout, torch.dropout, torch.dropout_}
_CHANNELS = {F.dropout1d: 3, F.dropout2d: 4, F.dropout3d: 5}
"""Functions that drop whole channels, with the dimensions of a batch that they take."""


@dataclass(frozen=True)
class Draw:
    """What one call of dropout draws."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    probability: float
    drops_channels: bool

    @property
    def layout(self) -> tuple[Any, ...]:
        """All but the probability, in which trials may differ."""
        return self.shape, self.strides, self.dtype, self.drops_channels


@dataclass(frozen=True)
class _Call:
    inputs: Tensor
    probability: float
    is_in_place: bool
    drops_channels: bool


def _call_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
    """A call that drops something; None for any other."""
    if function not in _WHOLE and function not in _CHANNELS:
        return None
    names = (
        "input",
        "p",
        "training" if function not in (torch.dropout, torch.dropout_) else "train",
    )
    given = dict(zip((*names, "inplace"), args, strict=False)) | kwargs
    trains = given.get("training", given.get("train", True))
    probability = float(given.get("p", 0.5))
    drops_channels = function in _CHANNELS
    if drops_channels and given["input"].dim() != _CHANNELS[function]:
        return None
    if not trains or probability == 0 or given["input"].numel() == 0:
        return None
    in_place = bool(given.get("inplace", False)) or function is torch.dropout_
    return _Call(given["input"], probability, in_place, drops_channels)


class DropoutRecorder(TorchFunctionMode):
    """Notes what every call of dropout draws, and lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[Draw] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if (call := _call_of(func, args, kwargs)) is not None and call.probability < 1:
            like = call.inputs
            if call.drops_channels:
                like = like.new_empty(*like.shape[:2], *(1 for _ in like.shape[2:]))
            like = torch.empty_like(like)
            shape, strides = tuple(like.shape), tuple(like.stride())
            draw = Draw(shape, strides, like.dtype, call.probability, call.drops_channels)
            self.draws.append(draw)
        return func(*args, **kwargs)


class GivenNoise(TorchFunctionMode):
    """Multiplies by what was drawn where the model calls dropout."""

    def __init__(self, noise: Sequence[Tensor]) -> None:
        super().__init__()
        self._noise = iter(noise)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        call = _call_of(func, args, kwargs)
        if call is None:
            return func(*args, **kwargs)
        factor = next(self._noise) if call.probability < 1 else torch.zeros_like(call.inputs)
        return call.inputs.mul_(factor) if call.is_in_place else call.inputs * factor


class LaneNoise:
    """The draws of one step: for every call of dropout, one row per trial."""

    def __init__(
        self, draws: Sequence[Sequence[Draw]], generators: Sequence[torch.Generator]
    ) -> None:
        """`draws` of each trial, which has one of the generators."""
        if len({tuple(draw.layout for draw in one) for one in draws}) > 1:
            raise Unsuited("not_alike")
        self._generators = generators
        self._device = generators[0].device
        self._calls = list(zip(*draws, strict=True))
        self.rows = [
            torch.empty(len(draws), *of_all[0].shape, dtype=of_all[0].dtype, device=self._device)
            for of_all in self._calls
        ]
        self._kept = [
            torch.tensor(
                [1 - draw.probability for draw in of_all], dtype=torch.float64, device=self._device
            )
            for of_all in self._calls
        ]

        self._ones = {
            draw: torch.empty_strided(
                draw.shape, draw.strides, dtype=draw.dtype, device=self._device
            ).fill_(1)
            for draw in {draw for of_all in self._calls for draw in of_all}
            if self._is_fused(draw)
        }

    def draw(self) -> None:
        """Draws anew, call by call, each trial from its own generator."""
        for of_all, rows, kept in zip(self._calls, self.rows, self._kept, strict=True):
            if self._is_fused(of_all[0]):
                self._draw_fused(of_all, rows)
                continue
            for row, draw, generator in zip(rows, of_all, self._generators, strict=True):
                drawn = _like(draw, row)
                drawn.bernoulli_(1 - draw.probability, generator=generator)
                if drawn is not row:
                    row.copy_(drawn)
            rows.div_(kept.to(rows.dtype).view(-1, *(1 for _ in rows.shape[1:])))

    def _is_fused(self, draw: Draw) -> bool:
        return self._device.type == "cuda" and not draw.drops_channels

    def _draw_fused(self, of_all: Sequence[Draw], rows: Tensor) -> None:
        """A GPU's dropout draws inside its own kernel, from the default generator."""
        drawn = []
        for draw, generator in zip(of_all, self._generators, strict=True):
            with _default_is(generator):
                kept = torch.native_dropout(self._ones[draw], draw.probability, True)[0]
                drawn.append(kept)
        torch.stack(drawn, out=rows)


def _like(draw: Draw, row: Tensor) -> Tensor:
    """Memory to draw into in the order in which torch's dropout would."""
    if tuple(row.stride()) == draw.strides:
        return row
    return torch.empty_strided(draw.shape, draw.strides, dtype=draw.dtype, device=row.device)


@contextmanager
def _default_is(generator: torch.Generator) -> Iterator[None]:
    """Inside this block the GPU's default generator draws from the state of this one."""
    default = torch.cuda.default_generators[generator.device.index or 0]
    own = default.graphsafe_get_state()
    default.graphsafe_set_state(generator)
    try:
        yield
    finally:
        default.graphsafe_set_state(own)
