"""The parameters and buffers of models that are alike, one row per model, in one piece of memory."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainlab.train.program.unsuited import Unsuited

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
        self._gaps = _gaps(places, total)
        self._zeros = torch.zeros(len(models), ALIGNED, dtype=dtype, device=device)
        with torch.no_grad():
            for row, parameters in zip(self.rows, named, strict=True):
                for name, place in places.items():
                    view = row[place].view(shapes[name])
                    view.copy_(parameters[name])
                    parameters[name].data = view
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
        """Parameters that are not learned."""
        self.buffers = _stacked_buffers(models)

    def by_name(self, rows: Tensor) -> dict[str, Tensor]:
        """Views of numbers that are arranged as `rows` are, with the models as first dimension."""
        return {
            name: rows[:, place].view(len(rows), *self.learned[name].shape[1:])
            for name, place in self.places.items()
        }

    def row_of(self, gradients: dict[str, Tensor], place: Tensor | None) -> Tensor:
        """The gradients of all models, arranged as `rows` are; written to `place` where one is given."""
        count = len(self.rows)
        if self.rows.device.type == "cpu":
            return self._written(gradients, torch.empty_like(self.rows) if place is None else place)
        parts: list[Tensor] = []
        for name, gap in self._gaps.items():
            parts.append(gradients[name].reshape(count, -1))
            if gap:
                parts.append(self._zeros[:, :gap])
        return torch.cat(parts, dim=1)

    def _written(self, gradients: dict[str, Tensor], found: Tensor) -> Tensor:
        """One by one to where they belong: on a CPU faster than at once, since many lie transposed in
        memory and would be copied twice."""
        for name, place in self.places.items():
            found[:, place].view(gradients[name].shape).copy_(gradients[name])
            if gap := self._gaps[name]:
                found[:, place.stop : place.stop + gap].zero_()
        return found


def _gaps(places: dict[str, slice], total: int) -> dict[str, int]:
    starts = [*[place.start for place in places.values()][1:], total]
    return {
        name: start - place.stop
        for (name, place), start in zip(places.items(), starts, strict=True)
    }


def _stacked_buffers(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """The buffers by name; those of the models become views."""
    stacked: dict[str, Tensor] = {}
    for name, buffer in models[0].named_buffers():
        path, _, last = name.rpartition(".")
        owners = [model.get_submodule(path) for model in models]
        stacked[name] = torch.stack([getattr(owner, last).detach() for owner in owners])
        for owner, view in zip(owners, stacked[name], strict=True):
            owner._buffers[last] = view
        assert buffer.shape == stacked[name].shape[1:]
    return stacked
