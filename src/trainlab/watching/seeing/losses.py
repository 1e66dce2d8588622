"""Losses: what `backward` was called on, in order, read without holding the device up."""

import math

import torch
from torch import Tensor

from trainlab.watching.seeing.unread import Unread, is_capturing, value_of

_is_capturing_on_gpu = getattr(torch._C, "_cuda_isCurrentStreamCapturing", bool)
"""Of a tensor on a GPU, which has been set up then."""
READ_AFTER = 256
"""Losses on a device that are read together."""


class Losses:
    """A value for every backward pass from a single number; nan for one from anything else."""

    __slots__ = ("_unread", "known", "scaled")

    def __init__(self) -> None:
        self.known: list[float] = []
        """All so far; nan for what still is on a device."""
        self._unread = Unread()
        self.scaled: tuple[Tensor, Tensor] | None = None
        """What a gradient scaler has made of a loss, until a backward pass begins from it."""

    def __len__(self) -> int:
        return len(self.known)

    def note_scaled(self, scaled: object, loss: object) -> None:
        """A gradient scaler has made `scaled` of `loss`: that is what the curve shows."""
        if isinstance(scaled, Tensor) and isinstance(loss, Tensor):
            self.scaled = scaled, loss

    def add(self, roots: object) -> None:
        """The tensors that a backward pass begins at."""
        root = _single(roots)
        if self.scaled is not None and root is self.scaled[0]:
            root = self.scaled[1]
            self.scaled = None
        if not isinstance(root, Tensor) or root.numel() != 1:
            self.known.append(math.nan)
            return
        if root.is_cpu:
            self.known.append(value_of(root))
            return
        if not is_capturing():
            self._unread.add(len(self.known), root)
        self.known.append(math.nan)
        if len(self._unread.waiting) >= READ_AFTER:
            self._read()

    def add_on_gpu(self, loss: Tensor) -> None:
        """The same for what lies on a GPU, as nearly all do there, asking for as little as it can."""
        if self.scaled is not None or loss.numel() != 1 or _is_capturing_on_gpu():
            self.add(loss)
            return
        known, unread = self.known, self._unread
        unread.add(len(known), loss)
        known.append(math.nan)
        if len(unread.waiting) >= READ_AFTER:
            self._read()

    def values(self) -> list[float]:
        """All so far; waits for what still is on a device."""
        self._read()
        return self.known

    def _read(self) -> None:
        for place, value in self._unread.read():
            self.known[place] = value


def _single(roots: object) -> object:
    """The one that a pass begins from; of several numbers, whose gradients add up, their sum."""
    if not isinstance(roots, list | tuple):
        return roots
    if len(roots) == 1:
        return roots[0]
    if not all(isinstance(one, Tensor) and one.numel() == 1 for one in roots):
        return None
    are_together = len({one.device for one in roots}) == 1
    return torch.stack([one.detach().reshape(()) for one in roots]).sum() if are_together else None
