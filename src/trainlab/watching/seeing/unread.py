"""Unread: single numbers on a device, which is asked for many of them at once."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

TRUSTED_AFTER = 20
"""Numbers that the script has left alone: it will go on so."""


class _Number(NamedTuple):
    place: int
    value: Tensor
    """The script's own tensor, or a copy."""
    own: Tensor | None
    """The script's own; None where it is part of something larger, which is not held on to."""
    version: int
    """Of `own`: how often it had been written to."""


class Unread:
    """Holds on to the script's tensors until they are read. A copy is one more kernel to launch, and made
    only until the script is known to leave its numbers alone."""

    __slots__ = ("_copies", "_num_left_alone", "waiting")

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Tensor, Tensor | None, int]] = []
        """As `_Number`."""
        self._num_left_alone, self._copies = 0, True

    def add(self, place: int, number: Tensor) -> None:
        """`place` is given back with its value. One call and no more where it can be: each takes
        microseconds while a script's own work fills the cache."""
        own = number.detach()
        if type(number) is not Tensor or number._is_view():
            self.waiting.append((place, own.clone(), None, 0))
        elif self._copies:
            self.waiting.append((place, own.clone(), own, own._version))
        else:
            self.waiting.append((place, own, own, own._version))

    def read(self) -> list[tuple[int, float]]:
        """All since the last time; one wait for the device, whatever their number. None while the script
        captures a graph, which must not wait."""
        if not self.waiting or is_capturing():
            return []
        numbers, self.waiting = [_Number(*one) for one in self.waiting], []
        found, alike = list[tuple[int, float]](), dict[Any, list[_Number]]()
        for one, is_kept in zip(numbers, self._are_kept(numbers), strict=True):
            if is_kept and not one.value.is_complex():
                alike.setdefault((one.value.device, one.value.dtype), []).append(one)
            else:
                found.append((one.place, math.nan))
        for those in alike.values():
            with torch.no_grad():
                # Nearly all have no dimension; to reshape one takes longer than all else done for it.
                values = [one.value.reshape(()) if one.value.dim() else one.value for one in those]
                together = torch.stack(values).double()
            found += zip([one.place for one in those], together.tolist(), strict=True)
        return found

    def _are_kept(self, numbers: list[_Number]) -> list[bool]:
        """Of each, whether its value still is what it was. A script that has written to one, as `loss *= 2`
        does, or a captured graph that writes the next to the same place may do it again: from then on all
        are copied."""
        last_at = {one.own.data_ptr(): one for one in numbers if one.own is not None}
        kept = []
        for one in numbers:
            is_alone = one.own is None or (
                one.own._version == one.version and last_at[one.own.data_ptr()] is one
            )
            kept.append(is_alone or one.value is not one.own)
            self._num_left_alone += 1 if is_alone else -(2**62)
        self._copies = self._num_left_alone < TRUSTED_AFTER
        return kept


def is_capturing() -> bool:
    """Whether what is called now is not run but becomes part of a CUDA graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
