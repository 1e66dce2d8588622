"""Losses: what `backward` was called on, in order, read without holding the device up."""

import math

import torch
from torch import Tensor

READ_AFTER = 256
"""Losses on a device that are read together."""


class Losses:
    """A value for every backward pass from a single number; nan for one from anything else."""

    __slots__ = ("_places", "_scaled", "_values", "_waiting")

    def __init__(self) -> None:
        self._values: list[float] = []
        self._places: list[int] = []
        self._waiting: list[Tensor] = []
        self._scaled: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self._values)

    def note_scaled(self, scaled: object, loss: object) -> None:
        """A gradient scaler has made `scaled` of `loss`: that is what the curve shows."""
        if isinstance(scaled, Tensor) and isinstance(loss, Tensor):
            self._scaled = scaled, loss

    def add(self, roots: object) -> None:
        """The tensors that a backward pass begins at."""
        if type(roots) is Tensor and self._scaled is None and roots.is_cpu and roots.numel() == 1:
            self._values.append(roots.item())
            return
        root = roots[0] if isinstance(roots, list | tuple) and len(roots) == 1 else roots
        if self._scaled is not None and root is self._scaled[0]:
            root = self._scaled[1]
            self._scaled = None
        if not isinstance(root, Tensor) or root.numel() != 1:
            self._values.append(math.nan)
            return
        if root.device.type == "cpu":
            self._values.append(root.item())
            return
        # A copy: a captured graph writes the next loss to the same place.
        self._places.append(len(self._values))
        self._values.append(math.nan)
        self._waiting.append(root.detach().clone())
        if len(self._waiting) >= READ_AFTER:
            self._read()

    def values(self) -> list[float]:
        """All so far; waits for what still is on a device."""
        self._read()
        return self._values

    def _read(self) -> None:
        """One wait for the device, whatever the number."""
        if not self._waiting:
            return
        with torch.no_grad():
            values = torch.stack([loss.double().reshape(()) for loss in self._waiting]).tolist()
        for place, value in zip(self._places, values, strict=True):
            self._values[place] = value
        self._waiting.clear()
        self._places.clear()
