"""Dropout of many trials at once: each draws from its own seed, as it would by itself.

torch's dropout draws for a whole tensor from one generator. So the draws are made before the step, trial
by trial, each from the trial's generator, and the model multiplies by them where it calls dropout.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from trainlab.train.callbacks import ProgramWatch
from trainlab.train.engines.engine import Unsuited
from trainlab.train.engines.lane_updates import LaneUpdate
from trainlab.train.metering import Means, explosion_limit, first_bad, per_sample
from trainlab.train.setup import Setup
from trainlab.workloads.user_code import LOSS, MODEL, PREPARE

_WHOLE = {F.dropout, torch.dropout, torch.dropout_}
_CHANNELS = {F.dropout1d: 3, F.dropout2d: 4, F.dropout3d: 5}
"""Functions that drop whole channels, with the dimensions of a batch that they take."""


@dataclass(frozen=True)
class Draw:
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    probability: float
    drops_channels: bool


class DropoutCalls(TorchFunctionMode):
    """Notes what calls of dropout draw, and lets them; with `noise`, multiplies by what was drawn."""

    def __init__(self, noise: Sequence[Tensor] | None = None) -> None:
        super().__init__()
        self._noise = None if noise is None else iter(noise)
        self.draws: list[Draw] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _WHOLE and func not in _CHANNELS:
            return func(*args, **kwargs)
        given = dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | kwargs
        inputs, probability = given["input"], float(given.get("p", 0.5))
        trains = given.get("training", given.get("train", True))
        is_batch = inputs.dim() == _CHANNELS.get(func, inputs.dim())
        if not trains or probability == 0 or inputs.numel() == 0 or not is_batch:
            return func(*args, **kwargs)  # drops nothing
        if self._noise is not None:
            factor = next(self._noise) if probability < 1 else torch.zeros_like(inputs)
            is_in_place = bool(given.get("inplace", False)) or func is torch.dropout_
            return inputs.mul_(factor) if is_in_place else inputs * factor
        if probability < 1:
            like = inputs
            if drops_channels := func in _CHANNELS:
                like = like.new_empty(*like.shape[:2], *(1 for _ in like.shape[2:]))
            like = torch.empty_like(like)
            shape, strides = tuple(like.shape), tuple(like.stride())
            self.draws.append(Draw(shape, strides, like.dtype, probability, drops_channels))
        return func(*args, **kwargs)


class LaneNoise:
    """The draws of one step: for every call of dropout, one row per trial."""

    def __init__(self, draws: Sequence[Draw], generators: Sequence[torch.Generator]) -> None:
        """Each trial has one of the generators."""
        self._generators, device = generators, generators[0].device
        self._calls: list[tuple[Draw, Tensor, Tensor]] = []
        for draw in draws:
            rows = torch.empty(len(generators), *draw.shape, dtype=draw.dtype, device=device)
            if self._is_in_kernel(draw):
                scale = _empty_as(draw, device).fill_(1)
            else:
                scale = torch.tensor(1 - draw.probability, dtype=draw.dtype, device=device)
            self._calls.append((draw, rows, scale))
        self.rows = tuple(rows for _, rows, _ in self._calls)
        """By call, with the trials as first dimension."""

    def _is_in_kernel(self, draw: Draw) -> bool:
        """A GPU's dropout draws inside its own kernel, from the default generator."""
        return self._generators[0].device.type == "cuda" and not draw.drops_channels

    def draw(self) -> None:
        """Draws anew, call by call, each trial from its own generator."""
        for draw, rows, scale in self._calls:
            if self._is_in_kernel(draw):
                default = torch.cuda.default_generators[rows.device.index or 0]
                own, drawn = default.graphsafe_get_state(), []
                try:
                    for generator in self._generators:
                        default.graphsafe_set_state(generator)
                        drawn.append(torch.native_dropout(scale, draw.probability, True)[0])
                finally:
                    default.graphsafe_set_state(own)
                torch.stack(drawn, out=rows)
                continue
            for row, generator in zip(rows, self._generators, strict=True):
                # In the order in memory in which torch's dropout would.
                place = row if row.stride() == draw.strides else _empty_as(draw, row.device)
                place.bernoulli_(1 - draw.probability, generator=generator)
                if place is not row:
                    row.copy_(place)
            rows.div_(scale)


def _empty_as(draw: Draw, device: torch.device) -> Tensor:
    return torch.empty_strided(draw.shape, draw.strides, dtype=draw.dtype, device=device)


# The parameters and buffers of models that are alike, one row per model, in one piece of memory.

ALIGNED = 64
"""Every parameter starts at a multiple of so many numbers: matrix products want it."""


class Stacked:
    """Rows of numbers that the models' own tensors are views of: what changes here changes there."""

    def __init__(self, models: Sequence[nn.Module], learning: Sequence[str]) -> None:
        """`learning` are the names of the parameters that get a gradient."""
        named = [dict(model.named_parameters()) for model in models]
        first = named[0]
        kinds = {(first[name].dtype, first[name].device) for name in learning}
        if len(kinds) != 1:
            raise Unsuited("not_one_dtype")
        shapes = {name: first[name].shape for name in learning}
        if any(one[name].shape != shape for one in named for name, shape in shapes.items()):
            raise Unsuited("not_alike")
        ((dtype, device),) = kinds
        places, total = {}, 0
        for name, shape in shapes.items():
            places[name] = slice(total, total + shape.numel())
            total += -(-shape.numel() // ALIGNED) * ALIGNED
        self.rows = torch.zeros(len(models), total, dtype=dtype, device=device)
        """All numbers that are learned; a few unused ones between parameters stay zero."""
        self.places = places
        self._zeros = torch.zeros(len(models), ALIGNED, dtype=dtype, device=device)
        with torch.no_grad():
            for row, parameters in zip(self.rows, named, strict=True):
                for name, place in places.items():
                    row[place].view(shapes[name]).copy_(parameters[name])
        self.learned = {
            name: self.rows[:, place].view(len(models), *shapes[name]).detach().requires_grad_()
            for name, place in places.items()
        }
        """By name, with the models as first dimension: leaves of the autograd graph."""
        self.fixed = {
            name: torch.stack([one[name].detach() for one in named])
            for name in first
            if name not in places
        }
        buffers = [dict(model.named_buffers()) for model in models]
        self.buffers = {n: torch.stack([one[n].detach() for one in buffers]) for n in buffers[0]}
        self.hold(models)

    def hold(self, models: Sequence[nn.Module]) -> None:
        """Makes what is learned of the models, and their buffers, views of the rows."""
        for number, model in enumerate(models):
            for name, parameter in model.named_parameters():
                if name in self.places:
                    parameter.data = self.rows[number, self.places[name]].view(parameter.shape)
            for name, of_all in self.buffers.items():
                path, _, last = name.rpartition(".")
                model.get_submodule(path)._buffers[last] = of_all[number]

    def by_name(self, rows: Tensor) -> dict[str, Tensor]:
        """Views of numbers that are arranged as `rows` are, with the models as first dimension."""
        return {
            name: rows[:, place].view(len(rows), *self.learned[name].shape[1:])
            for name, place in self.places.items()
        }

    def row_of(self, gradients: dict[str, Tensor]) -> Tensor:
        """The gradients of all models, arranged as `rows` are."""
        parts: list[Tensor] = []
        for name, place in self.places.items():
            parts.append(gradients[name].reshape(len(self.rows), -1))
            if gap := (place.start - place.stop) % ALIGNED:
                parts.append(self._zeros[:, :gap])
        return torch.cat(parts, dim=1)


# Sample-weighted means of loss and metrics of many trials, added up where the step runs.


class LaneSums:
    """Sums and losses of the steps since the last reading; read by the host once per point."""

    def __init__(
        self, num_trials: int, metrics: Sequence[str], num_steps: int, device: torch.device
    ) -> None:
        self._names = ("loss", *metrics)
        self._totals = torch.zeros(len(self._names), num_trials, dtype=torch.float64, device=device)
        self._losses = torch.zeros(num_steps, num_trials, dtype=torch.float64, device=device)
        self.limits: dict[int, float] = {}
        """Of every trial, set by the first loss there ever was."""
        self.tensors = [self._totals, self._losses]

    def add(self, position: Tensor, losses: Tensor, metrics: Sequence[Tensor], count: int) -> None:
        """A step at a place of the epoch: the mean loss and the metrics' values of every trial."""
        losses = losses.detach().to(torch.float64)
        self._losses.index_copy_(0, position, losses.unsqueeze(0))
        sums = [values.to(torch.float64).sum(dim=1) for values in metrics]
        self._totals.add_(torch.stack([losses * count, *sums]))

    def means(self, first: int, num_steps: int, num_samples: int) -> list[Means]:
        """Over the steps from that place of the epoch on; starts anew."""
        losses = self._losses[first : first + num_steps]
        numbers = torch.cat([self._totals / num_samples, losses[:1]]).T.tolist()
        self._totals.zero_()
        found = []
        for trial, (*values, first_loss) in enumerate(numbers):
            limit = self.limits.setdefault(trial, explosion_limit(first_loss))
            means = dict(zip(self._names, values, strict=True))
            bad = first_bad(means["loss"], [losses[:, trial]], limit)
            found.append(Means(means, num_samples, num_steps, *bad))
        return found


# One step of all trials of a group, from gathering its batches to adding up losses, without arguments.


@dataclass(frozen=True)
class LaneGroup:
    """What the steps of a group share, whatever the size of their batches."""

    setup: Setup
    """Of the first, with the model whose modules run for all."""
    stacked: Stacked
    update: LaneUpdate
    gradients: Tensor
    """Of the last step, or summed since the start of a trial that never resets them; what parameters show
    as `.grad`."""
    resets: Tensor | None
    """Which of the trials reset them, as a column; None: all do."""
    sums: LaneSums
    position: Tensor
    """The step of the epoch that comes next, on the device."""
    is_vectorised: bool
    """Whether all trials run as one vectorised function; else there is one, run as it is."""
    watch: ProgramWatch | None
    """Sees the steps from inside."""


class GroupStep:
    """Steps of one batch size; the rows of each are found at the group's position."""

    def __init__(self, group: LaneGroup, rows: Tensor, noise: LaneNoise | None) -> None:
        """`rows` (steps x trials x samples) is filled anew for every epoch."""
        self.rows, self._group, self._noise = rows, group, noise
        self._setup = setup = group.setup
        self._model, self._workload, self._loss = setup.model, setup.workload, setup.loss

    def __call__(self) -> None:
        group = self._group
        place = group.position if len(self.rows) > 1 else torch.zeros_like(group.position)
        losses, values, gradients = self.run(self.rows.index_select(0, place)[0])
        with torch.no_grad():
            if group.resets is not None:
                # Not by a product: zero times a gradient that is not finite is none either.
                gradients = torch.where(group.resets, gradients, group.gradients + gradients)
            group.gradients.copy_(gradients)  # the update may use its own up
            if group.watch is not None:
                group.watch.gradients_ready(group.stacked.by_name(gradients))
            group.update.step(gradients)
            if group.watch is not None:
                group.watch.update_ends()
            group.sums.add(group.position, losses, values, self.rows.shape[2])
            group.position.add_(1)

    def run(self, rows: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        """Losses, metrics' values and gradients of every trial on its rows of the data."""
        stored, targets = self._setup.split_batches.gather(rows.reshape(-1))
        if self._noise is not None:
            self._noise.draw()
        group = self._group
        if group.is_vectorised:
            shape = tuple(rows.shape)
            stored, targets = stored.unflatten(0, shape), targets.unflatten(0, shape)
            noise = () if self._noise is None else self._noise.rows
            learned = group.stacked.learned
            losses, values = vmap(self._lane)(
                learned, group.stacked.fixed, group.stacked.buffers, noise, stored, targets
            )
            leaves = list(learned.values())
        else:
            loss, alone = self._forward(self._model, stored, targets)
            losses, values = loss.unsqueeze(0), [one.unsqueeze(0) for one in alone]
            own = dict(self._model.named_parameters())
            leaves = [own[name] for name in group.stacked.places]
        found = torch.autograd.grad(losses.sum(), leaves)
        if group.watch is not None:
            group.watch.backward_ends()
        by_name = dict(zip(group.stacked.places, found, strict=True))
        return losses.detach(), values, group.stacked.row_of(by_name)

    def _lane(
        self,
        learned: dict[str, Tensor],
        fixed: dict[str, Tensor],
        buffers: dict[str, Tensor],
        noise: tuple[Tensor, ...],
        stored: Tensor,
        targets: Tensor,
    ) -> tuple[Tensor, list[Tensor]]:
        """One trial, as vmap sees it."""

        def model(inputs: Tensor) -> Tensor:
            tensors = {**learned, **fixed, **buffers}
            outputs: Tensor = functional_call(self._model, tensors, (inputs,))
            return outputs

        with DropoutCalls(noise) if noise else nullcontext():
            return self._forward(model, stored, targets)

    def _forward(
        self, model: Callable[[Tensor], Tensor], stored: Tensor, targets: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        with PREPARE:
            inputs = self._workload.prepare(stored)
        # Without autocast's cache: a copy of a weight that a graph keeps would go stale.
        kind, is_bf16 = self._setup.device.type, self._setup.settings.precision == "bf16"
        autocast = torch.autocast(kind, torch.bfloat16, enabled=is_bf16, cache_enabled=False)
        watch = self._group.watch
        with autocast, nullcontext() if watch is None else watch.forward(len(targets)):
            with MODEL:
                outputs = model(inputs)
            with LOSS:
                loss = self._loss(outputs, targets)
        outputs = outputs.detach()
        values = [
            per_sample(name, metric(outputs, targets), len(targets))
            for name, metric in self._workload.sample_metrics.items()
        ]
        return loss, values
